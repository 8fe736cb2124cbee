"""`dpbeam verify` and `dpbeam report` on what `dpbeam select` wrote: what they see and refuse, and their exit codes."""

import html
import json
import os
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dpbeam.accounting.dp_event import export_event
from dpbeam.accounting.ledger import Ledger
from dpbeam.cli import main
from tests.support.instances import popular_table

VERSION_1_0_0 = Path(__file__).resolve().parents[1] / "review" / "version-1.0.0"
OLD = Path(__file__).resolve().parents[1] / "accounting" / "ledgers" / "gsu.ledger.json"
FLAGS = [
    "--user_column=user",
    "--item_column=item",
    "--epsilon=2",
    "--delta=1e-3",
    "--method=basic",
    "--quiet",
]


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A folder with the input, and `out.ledger.json` with two files of output."""
    folder = tmp_path_factory.mktemp("made")
    pq.write_table(popular_table(300), folder / "pairs.parquet")
    out = [f"--output={folder / 'out'}", "--num_output_shards=2"]
    out += [f"--result_file={folder / 'result.json'}", "--output_format=text"]
    assert main(["select", "--input", str(folder / "pairs.parquet"), *FLAGS, *out]) == 0
    return folder


@pytest.fixture
def copy(made, tmp_path) -> Path:
    """The output alone, in a folder of its own."""
    for path in made.glob("out*"):
        shutil.copy(path, tmp_path)
    return tmp_path


def verify(capsys, *argv) -> tuple[int, dict[str, bool | None]]:
    code = main(["verify", *map(str, argv), "--json"])
    (answer,) = json.loads(capsys.readouterr().out)
    assert answer["verified"] == (code == 0)
    return code, {statement["name"]: statement["holds"] for statement in answer["statements"]}


class TestLedger:
    def test_release(self, made):
        release = Ledger.from_json((made / "out.ledger.json").read_text()).release
        result = json.loads((made / "result.json").read_text())
        assert [shard.name for shard in release.outputs] == [Path(path).name for path in result["outputs"]]
        lines = [Path(path).read_text().count("\n") for path in result["outputs"]]
        assert [shard.rows for shard in release.outputs] == lines and len(lines) == 2
        assert release.items_released == result["items_released"] > 5
        assert (release.command, release.release_id, release.inputs) == ("select", None, ("pairs.parquet",))
        today = datetime.now(UTC)
        assert 0 <= (today.date() - datetime.fromisoformat(release.date).date()).days <= 1
        started = datetime.strptime(release.started, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        assert 0 <= (today - started).total_seconds() < 3_600

    def test_rows_of_agents_leave_no_digest(self, made, tmp_path, monkeypatch, capsys):
        """Where each agent sees its own row alone, the bytes of all rows are as private as the input."""
        from dataclasses import replace

        from dpbeam.accounting.ledger import REPLACE_ONE_AGENT
        from dpbeam.cli.select import SelectCommand

        honest = SelectCommand.ledger
        changed = lambda *run: replace(honest(*run), neighbouring_relation=REPLACE_ONE_AGENT)  # noqa: E731
        monkeypatch.setattr(SelectCommand, "ledger", changed)
        out = tmp_path / "x"
        assert main(["select", "--input", str(made / "pairs.parquet"), *FLAGS, f"--output={out}"]) == 0
        (shard,) = json.loads(Path(f"{out}.ledger.json").read_text())["release"]["outputs"]
        assert shard == {"name": "x-00000-of-00001.parquet", "rows": None, "sha256": None}
        code, verdicts = verify(capsys, f"{out}.ledger.json", "--contents")
        assert code == 0 and verdicts["output"] is True and verdicts["contents"] is None

    def test_names_of_the_input_are_those_of_the_command(self, made, tmp_path):
        """Not those of the files that the pattern matches, nor of their folder."""
        argv = ["select", "--input", str(made / "p*.parquet"), *FLAGS, f"--output={tmp_path / 'x'}"]
        assert main(argv) == 0
        release = json.loads((tmp_path / "x.ledger.json").read_text())["release"]
        assert release["inputs"] == ["p*.parquet"] and release["input_digest"] is None

    def test_files_that_are_users_are_not_named(self, tmp_path):
        for user in range(40):
            (tmp_path / f"user{user}.txt").write_text("common words\n")
        files = sorted(map(str, tmp_path.glob("user*.txt")))
        flags = ["--text_layout=file", "--epsilon=3", "--delta=1e-2", "--quiet", f"--output={tmp_path / 'x'}"]
        assert main(["select", "--input", *files, *flags]) == 0
        text = (tmp_path / "x.ledger.json").read_text()
        assert "user39" not in text and json.loads(text)["release"]["inputs"] is None

    def test_who_is_protected_stands_in_ledger_and_page(self, tmp_path):
        """Whoever signs sees whether people are protected or their sessions."""
        pq.write_table(popular_table(300).rename_columns(["session", "item"]), tmp_path / "pairs.parquet")
        flags = ["--user_column=session", "--item_column=item", "--epsilon=2", "--delta=1e-3", "--quiet"]
        inputs = ["--input", str(tmp_path / "pairs.parquet")]
        unit = "one user: one value of the column 'session'"
        for command, more in [("select", ["--method=basic"]), ("top-k", ["--k=3", "--selector=basic"])]:
            out = tmp_path / command
            assert main([command, *inputs, *flags, *more, f"--output={out}"]) == 0
            assert json.loads(Path(f"{out}.ledger.json").read_text())["privacy_unit"] == unit
            assert main(["report", f"{out}.ledger.json", "--quiet"]) == 0
            assert unit in html.unescape(Path(f"{out}.report.html").read_text())


class TestVerify:
    def test_all_of_it_holds(self, made, capsys):
        ledger = made / "out.ledger.json"
        code, verdicts = verify(capsys, ledger, "--contents")
        assert verdicts.pop("other settings") is None
        assert code == 0 and set(verdicts.values()) == {True}
        assert set(verdicts) >= {
            "guarantee",
            "thresholds",
            "noise",
            "key",
            "settings",
            "output",
            "contents",
        }

    def test_what_is_not_asked_for_is_not_claimed(self, made, capsys):
        ledger = made / "out.ledger.json"
        assert verify(capsys, ledger)[1]["contents"] is None
        assert "output" not in verify(capsys, ledger, "--ledger_alone")[1]
        assert main(["verify", str(ledger)]) == 0
        told = capsys.readouterr().out
        assert told.startswith(f"{ledger}: verified\n  ok     guarantee: the events cost epsilon 2 ")
        assert "not proved: that the run did what the ledger states" in told
        assert main(["verify", str(ledger), "--quiet"]) == 0 and capsys.readouterr().out == ""

    def test_a_missing_file(self, copy, capsys):
        (copy / "out-00001-of-00002.txt").unlink()
        code, verdicts = verify(capsys, copy / "out.ledger.json", "--contents")
        assert (
            code == 1
            and verdicts["output"] is False
            and verdicts["guarantee"] is True
            and "contents" not in verdicts
        )

    @pytest.mark.parametrize("data", [b"x\n", b""])
    def test_a_changed_file(self, copy, data, capsys):
        path = copy / "out-00001-of-00002.txt"
        path.write_bytes(path.read_bytes()[1:] + data)
        assert verify(capsys, copy / "out.ledger.json")[0] == 0
        code, verdicts = verify(capsys, copy / "out.ledger.json", "--contents")
        assert code == 1 and verdicts["contents"] is False

    @pytest.mark.parametrize(
        "change,failing",
        [
            (lambda v: v.update(epsilon=1.9, code_revision="another"), "guarantee"),
            (lambda v: v.update(key_source="NOT PRIVATE: fixed test key"), "key"),
            (lambda v: v["release"]["outputs"].pop(), "output"),
            (lambda v: v["release"]["outputs"][0].update(rows=1), "contents"),
            (lambda v: v["release"]["outputs"][1].update(sha256="0" * 64), "contents"),
        ],
    )
    def test_a_changed_ledger(self, copy, change, failing, capsys):
        path = copy / "out.ledger.json"
        values = json.loads(path.read_text())
        change(values)
        path.write_text(json.dumps(values))
        code, verdicts = verify(capsys, path, "--contents")
        assert code == 1 and [name for name, holds in verdicts.items() if holds is False] == [failing]
        assert main(["verify", str(path), "--contents", "--quiet"]) == 1
        told = capsys.readouterr().out
        assert f"NOT VERIFIED\n  FAILS  {failing}: " in told and told.count("\n") == 2

    def test_several_ledgers(self, made, copy, capsys):
        good, bad = made / "out.ledger.json", copy / "out.ledger.json"
        bad.write_text(bad.read_text().replace('"epsilon": 2.0', '"epsilon": 1.0', 1))
        assert main(["verify", str(good), str(OLD)]) == 0
        assert main(["verify", str(good), str(bad)]) == 1
        assert main(["verify", str(good), str(copy / "none"), str(bad)]) == 2
        told = capsys.readouterr()
        assert told.err == f"dpbeam verify: error: cannot read '{copy / 'none'}': No such file or directory\n"
        assert told.out.count(": verified") == 4 and told.out.count("NOT VERIFIED") == 2

    def test_an_old_ledger_names_no_files(self, capsys):
        code, verdicts = verify(capsys, OLD)
        assert code == 0 and verdicts["output"] is None and verdicts["settings"] is True

    @pytest.mark.parametrize("data", [b"", b"{}", b"\xff\xfe", b"[" * 10_000, b'{"format": "dpbeam ledger"}'])
    def test_what_is_no_ledger(self, tmp_path, data, capsys):
        path = tmp_path / "x.ledger.json"
        path.write_bytes(data)
        assert main(["verify", str(path)]) == 2
        err = capsys.readouterr().err
        assert err.startswith(f"dpbeam verify: error: '{path}': ") and err.count("\n") == 1

    @pytest.mark.parametrize(
        "argv,message",
        [
            ([], "name the ledger of a run"),
            (["x", "--input_digests=y"], "unknown flag --input_digests"),
            (["x", "--contents", "--ledger_alone"], "exclude each other"),
        ],
    )
    def test_wrong_usage(self, argv, message, capsys):
        assert main(["verify", *argv]) == 2 and message in capsys.readouterr().err

    def test_a_terminal_takes_no_orders_from_a_ledger(self, copy, capsys):
        path = copy / "out.ledger.json"
        values = json.loads(path.read_text())
        values["privacy_unit"] = "one user\x1b]0;owned\x07\u202e"
        path.write_text(json.dumps(values))
        assert main(["verify", str(path)]) == 0
        told = capsys.readouterr().out
        assert "one user\\x1b]0;owned\\x07\\u202e" in told and "\x1b" not in told

    def test_it_is_quick(self, made):
        """Beam is not imported."""
        script = (
            "import sys; from dpbeam.cli import main; code = main(sys.argv[1:]); "
            "print(code, [m for m in ('apache_beam', 'jinja2') if m in sys.modules])"
        )
        argv = [sys.executable, "-c", script, "verify", str(made / "out.ledger.json"), "--quiet"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
        assert done.stdout == "0 []\n", done.stderr

    def test_a_floor_that_was_written_in_by_hand_is_stated(self, made, tmp_path, capsys):
        """Ledger and page of a release without one: both say so."""
        values = json.loads((made / "out.ledger.json").read_text())
        values["parameters"]["min_users"] = 50
        forged = Path(shutil.copytree(made, tmp_path / "copy")) / "out.ledger.json"
        forged.write_text(json.dumps(values))
        assert main(["verify", str(forged)]) == 0
        lines = capsys.readouterr().out.splitlines()
        (floor,) = [line for line in lines if "floor:" in line]
        assert (
            floor.startswith("  --     floor: no item of fewer than 50 users")
            and "stated, as no event" in floor
        )
        (others,) = [line for line in lines if "other settings:" in line]
        assert (
            others.startswith("  --     other settings: stated, and not recomputed: ")
            and "min_users" in others
        )
        assert main(["report", str(forged), "--quiet"]) == 0
        page = (forged.parent / "out.report.html").read_text()
        assert re.search(r'<th scope="row">floor</th><td class="open">stated</td>', page)


class TestOtherFamilies:
    """Ledgers of another kind: the plan is found again from what the command wrote, and the page is made."""

    @pytest.mark.parametrize(
        "command, more, event",
        [("top-k", ["--noisy_counts"], "Rank"), ("hitting-set", ["--k=90"], "First hit")],
    )
    def test_with_a_selection(self, command, more, event, made, tmp_path, capsys):
        flags = ["--user_column=user", "--item_column=item", "--k=5", "--selector=basic", *more]
        out = [f"--output={tmp_path / 'top'}", "--epsilon=2", "--delta=1e-3", "--quiet"]
        assert main([command, "--input", str(made / "pairs.parquet"), *flags, *out]) == 0
        code, verdicts = verify(capsys, tmp_path / "top.ledger.json", "--contents")
        assert verdicts.pop("other settings") is None
        assert code == 0 and set(verdicts.values()) == {True} and "settings" in verdicts
        assert main(["report", str(tmp_path / "top.ledger.json"), "--quiet"]) == 0
        page = (tmp_path / "top.report.html").read_text()
        assert 'id="keeping"' in page and event in page and f"dpbeam {command}" in page

    def test_a_digest_of_the_input_of_version_1_0_0(self, tmp_path, capsys):
        for path in VERSION_1_0_0.glob("evens*"):
            shutil.copy(path, tmp_path)
        ledger = tmp_path / "evens.ledger.json"
        code, verdicts = verify(capsys, ledger, "--contents")
        assert code == 0 and verdicts.pop("input") is verdicts.pop("other settings") is None
        assert set(verdicts.values()) == {True}
        assert main(["report", str(ledger), "--quiet"]) == 0
        assert Ledger.from_json(ledger.read_text()).to_json() == ledger.read_text()

    @pytest.mark.parametrize("name", ["counted", "ranked"])
    def test_of_counts_that_version_1_0_0_read(self, name, tmp_path, capsys):
        """Its commands took a histogram in place of the input; what they wrote is verified and reported."""
        for path in VERSION_1_0_0.glob(f"{name}*"):
            shutil.copy(path, tmp_path)
        ledger = tmp_path / f"{name}.ledger.json"
        code, verdicts = verify(capsys, ledger, "--contents")
        assert code == 0 and verdicts.pop("other settings") is None
        assert set(verdicts.values()) == {True} and {"settings", "contents"} <= set(verdicts)
        assert main(["report", str(ledger), "--quiet"]) == 0
        assert "one unit of at most one count each" in (tmp_path / f"{name}.report.html").read_text()


class TestExport:
    def test_printed_and_written(self, copy, capsys):
        path = copy / "out.ledger.json"
        assert main(["export", str(path)]) == 0
        values = json.loads(capsys.readouterr().out)
        assert values == export_event(Ledger.from_json(path.read_text())).to_dict()
        assert main(["export", str(path), f"--output={copy / 'event.json'}"]) == 0
        assert capsys.readouterr().out == f"event: {copy / 'event.json'}\n"
        assert json.loads((copy / "event.json").read_text()) == values

    def test_what_does_not_verify_gets_none(self, copy, capsys):
        path = copy / "out.ledger.json"
        path.write_text(path.read_text().replace('"epsilon": 2.0', '"epsilon": 1.0', 1))
        assert main(["export", str(path), f"--output={copy / 'event.json'}"]) == 1
        told = capsys.readouterr()
        assert "dpbeam export: error: " in told.err and "does not verify: guarantee: " in told.err
        assert told.out == "" and not (copy / "event.json").exists()

    def test_wrong_usage(self, tmp_path, capsys):
        (tmp_path / "x.ledger.json").write_text("{}")
        for argv, message in (
            ([], "name the ledger of a run"),
            ([str(tmp_path / "x.ledger.json")], "not a ledger of dpbeam"),
        ):
            assert main(["export", *argv]) == 2
            err = capsys.readouterr().err
            assert message in err and err.count("\n") == 1


class TestReport:
    def test_a_page_beside_the_ledger(self, copy, capsys):
        argv = ["report", str(copy / "out.ledger.json"), "--prepared_by=Ada"]
        assert main(argv) == 0
        assert capsys.readouterr().out == f"report: {copy / 'out.report.html'}\n"
        page = (copy / "out.report.html").read_text()
        assert "<h1>out</h1>" in page and "Ada" in page and "digests and numbers of rows are those" in page
        assert main(argv) == 2 and "exists; pass --overwrite" in capsys.readouterr().err
        assert main([*argv, "--overwrite", "--no_contents"]) == 0 and capsys.readouterr().err == ""
        assert "digests and numbers of rows are those" not in (copy / "out.report.html").read_text()
        assert main([*argv, "--overwrite", "--quiet"]) == 0 and capsys.readouterr().out == ""
        assert sorted(os.listdir(copy))[-2:] == ["out.ledger.json", "out.report.html"]

    def test_the_same_page_for_the_same_ledger(self, copy):
        pages = []
        for name in ("a", "b"):
            assert main(["report", str(copy / "out.ledger.json"), f"--output={copy / name}", "--quiet"]) == 0
            pages.append((copy / name).read_bytes())
        assert pages[0] == pages[1]

    def test_nothing_private_is_in_it(self, copy, made):
        """Names of released items are not, nor the input's folder, nor the number of users or pairs."""
        assert main(["report", str(copy / "out.ledger.json"), "--quiet"]) == 0
        page = (copy / "out.report.html").read_text()
        items = "".join(path.read_text() for path in copy.glob("out-*.txt")).split()
        assert not [item for item in items if f">{item}<" in page]
        assert str(made) not in page
        assert not {"1800", "1,800"} & set(page.replace("<", " ").replace(">", " ").split())

    def test_what_does_not_verify_gets_no_page(self, copy, capsys):
        path = copy / "out.ledger.json"
        text = path.read_text()
        path.write_text(text.replace('"epsilon": 2.0', '"epsilon": 1.0', 1))
        assert main(["report", str(path)]) == 1
        assert "does not verify: guarantee: " in capsys.readouterr().err
        path.write_text(text)
        (copy / "out-00000-of-00002.txt").unlink()
        assert main(["report", str(path)]) == 1
        assert "does not verify: output: 1 of 2 files are missing" in capsys.readouterr().err
        assert not list(copy.glob("*.html"))
        assert main(["report", str(path), "--ledger_alone"]) == 0

    def test_a_fixed_key_is_said_first(self, copy, capsys):
        path = copy / "out.ledger.json"
        text = path.read_text()
        path.write_text(text.replace('"operating system"', '"NOT PRIVATE: fixed test key"'))
        assert main(["report", str(path)]) == 0
        assert "NOT PRIVATE" in capsys.readouterr().err
        assert "<strong>NOT PRIVATE.</strong>" in (copy / "out.report.html").read_text()

    @pytest.mark.parametrize(
        "argv,message",
        [
            ([], "name the ledger of a run"),
            (["out.ledger.json", "--output=."], "is a folder"),
            (["out.ledger.json", "--output=out.ledger.json/x.html"], "no folder that can be written"),
            (["out.ledger.json", "--output=out.ledger.json", "--overwrite"], "is an input of this run"),
            (["out.ledger.json", "--output=gs://b/x.html"], "must be a file of this machine"),
            (["out.ledger.json", "--pdf=x"], "unknown flag --pdf"),
            (["none.ledger.json"], "cannot read 'none.ledger.json': No such file"),
            (["out-00000-of-00002.txt"], "not a ledger"),
        ],
    )
    def test_wrong_usage(self, argv, message, copy, capsys, monkeypatch):
        monkeypatch.chdir(copy)
        before = sorted(os.listdir(copy))
        assert main(["report", *argv]) == 2
        assert message in capsys.readouterr().err and sorted(os.listdir(copy)) == before
