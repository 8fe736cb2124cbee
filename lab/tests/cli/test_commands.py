"""The commands that the lab adds: evaluate and synth, and what they have in common with all others."""

import json
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpbeam.cli import main
from dpbeam_lab.cli.tables import _plain
from dpbeam_lab.commands import COMMANDS
from dpbeam_lab.evaluation.quality import MEANINGS
from dpbeam_lab.experiments.markdown import _spread
from tests.cli.test_constants import check_help
from tests.cli.test_flags import refused
from tests.jobs.test_exit_codes import check_ends
from tests.support.commands import COLUMNS, run

BUDGET = ["--epsilon=1", "--delta=1e-5"]


@pytest.mark.parametrize("command", COMMANDS)
class TestEvery:
    def test_ends_as_the_table_says(self, command, monkeypatch, capsys):
        check_ends(command, monkeypatch, capsys)

    def test_help(self, command, capsys, monkeypatch):
        check_help(command, capsys, monkeypatch)

    def test_has_the_common_flags(self, command, capsys):
        code, out, err = run(capsys, command, "--help_all")
        words = (f"dpbeam {command}", "--quiet", "--verbose", "--config", "--version")
        assert (code, err) == (0, "") and all(word in out for word in words)

    def test_has_no_flag_of_beam(self, command, capsys):
        assert "unknown flag --runner" in refused(capsys, command, "--runner=FnApiRunner")


@pytest.mark.parametrize(
    "argv", [["tune", "--users=10", "--mean_items_per_user=2"], ["evaluate", "--input=x.csv", "--released=y"]]
)
@pytest.mark.parametrize(
    "epsilon,delta,message",
    [("1", "0.999999", "delta must lie between"), ("nan", "1e-5", "epsilon must be a finite number")],
)
def test_budgets(argv, epsilon, delta, message, capsys):
    assert refused(capsys, *argv, f"--epsilon={epsilon}", f"--delta={delta}").startswith(f"--{message}")


def test_a_name_that_is_no_utf_8(place, capsys):
    name = os.fsdecode(b"caf\xe9.csv")
    (place / name).write_text("user,item\nu,i\n")
    said = refused(capsys, "tune", *COLUMNS, *BUDGET, f"--input={name}")
    assert said == "--input: 'caf\\xe9.csv' is not valid UTF-8; rename it"


class TestSynth:
    def test_writes_shards(self, tmp_path, capsys):
        out = tmp_path / "s"
        arguments = [
            "synth",
            f"--output={out}",
            "--users=100",
            "--items=50",
            "--mean_items_per_user=5",
            "--shards=2",
        ]
        assert run(capsys, *arguments)[0] == 0
        rows = sum(pq.read_table(path).num_rows for path in tmp_path.glob("s-*-of-00002.parquet"))
        assert rows == 500
        code, _, err = run(capsys, *arguments)
        assert code == 2 and "--overwrite" in err


class TestEvaluate:
    def write(self, tmp_path):
        rows = [(f"u{n}", "all") for n in range(300)] + [(f"u{n}", f"own {n}") for n in range(100)]
        users, items = zip(*rows)
        pq.write_table(pa.table({"user": users, "item": items}), tmp_path / "pairs.parquet")
        columns = ["--input", str(tmp_path / "pairs.parquet"), "--user_column=user", "--item_column=item"]
        out = str(tmp_path / "x")
        assert main(["select", *columns, "--epsilon=1", "--delta=1e-9", f"--output={out}", "--quiet"]) == 0
        return columns, out

    def test_says_that_it_is_not_private(self, tmp_path, capsys):
        columns, out = self.write(tmp_path)
        arguments = [f"--released={out}-*.parquet", f"--ledger={out}.ledger.json"]
        code, told, err = run(capsys, "evaluate", *columns, *arguments, "--json")
        assert (code, err) == (0, "")
        result = json.loads(told)
        assert result["not_private"] is True
        assert (result["users"], result["items"], result["entries"]) == (300, 101, 400)
        assert result["released"]["items"] == 1
        assert result["missing_mass"]["p1"] == pytest.approx(100 / 400)

    def test_bad_ledger(self, tmp_path, capsys):
        columns, out = self.write(tmp_path)
        bad = tmp_path / "bad.json"
        bad.write_text("{}")
        code, _, err = run(capsys, "evaluate", *columns, f"--released={out}-*.parquet", f"--ledger={bad}")
        assert code == 2 and "is not a ledger of dpbeam" in err


class TestEvaluation:
    def test_every_figure_is_explained(self, tmp_path, capsys):
        (tmp_path / "d.txt").write_text("a b\n" * 5 + "c\n")
        (tmp_path / "r.txt").write_text("a\n")
        flags = ["--input", str(tmp_path / "d.txt"), f"--released={tmp_path / 'r.txt'}", *BUDGET]
        assert main(["evaluate", *flags, "--json"]) == 0
        result = json.loads(capsys.readouterr().out)
        figures = {("", name) for name, value in result.items() if not isinstance(value, dict)} - {
            ("", "not_private")
        }
        figures |= {
            (part, name) for part, value in result.items() if isinstance(value, dict) for name in value
        }
        assert figures == set(MEANINGS) and result["users"] == 6
        assert main(["evaluate", *flags]) == 0
        table = capsys.readouterr().out
        assert "NOT PRIVATE" in table and "users that hold at least one released item" in table
        assert "full_knowledge expected_items" in table
        assert main(["evaluate", *flags, "--no_full_knowledge"]) == 0
        assert "full_knowledge" not in capsys.readouterr().out

    @pytest.mark.parametrize("size", [0, 1_000_001])
    def test_d0_out_of_range_is_one_line(self, size, tmp_path, capsys):
        (tmp_path / "d.txt").write_text("a b\n")
        flags = ["--input", str(tmp_path / "d.txt"), f"--released={tmp_path / 'd.txt'}", *BUDGET]
        assert main(["evaluate", *flags, f"--max_items_per_user={size}"]) == 2
        error = capsys.readouterr().err
        assert "--max_items_per_user must be an integer from 1 to 1e+06" in error and error.count("\n") == 1


@pytest.mark.parametrize(
    "shards,said",
    [
        (1, "1 file, m-00000-of-00001.csv; m.supplies.yaml"),
        (2, "2 files, m-00000-of-00002.csv to m-00001-of-00002.csv; m.supplies.yaml"),
    ],
)
def test_files_of_a_market(shards, said, place, capsys):
    assert (
        main(
            [
                "synth",
                "--agents=9",
                "--resources=1",
                "--output=m",
                "--output_format=csv",
                f"--shards={shards}",
            ]
        )
        == 0
    )
    assert capsys.readouterr().out == said + "\n"


def test_errors_are_written_like_their_means():
    assert [_spread(value, 69.0) for value in (9.96, 12.3, 0.12)] == ["10", "12", "0.1"]
    assert "e" not in _spread(14.0, 69.0) and _spread(12.0, 110.0) == "12"
    assert [_plain(value) for value in (0.123, 9.9, 12.3, 1234.5)] == ["0.12", "9.9", "12", "1,234"]


def test_no_exponent_beside_a_whole_number():
    for value in np.linspace(9.4, 10.6, 25).tolist():
        assert "e" not in _spread(value, 69.0) and "e" not in _plain(value), value
