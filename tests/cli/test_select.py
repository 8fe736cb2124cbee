"""`dpbeam select` as its users meet it: exit codes, one-line errors, and what lies on disk afterwards."""

import glob
import gzip
import json
import os
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpbeam.accounting.ledger import Ledger
from tests.support.commands import COLUMNS, run_job
from tests.support.instances import popular_table
from tests.support.ledgers import without_times

pytestmark = pytest.mark.usefixtures("own_temp")

BUDGET = ["--epsilon=2", "--delta=1e-3", "--users_at_least=100"]
KEY = "--insecure_test_key=00ff"
TABLE = popular_table(300)


def select(capsys, *arguments):
    return run_job(capsys, "select", *arguments)


def read(prefix):
    return pq.read_table(sorted(glob.glob(f"{prefix}-*.parquet")))


def fails(capsys, message, *arguments, output):
    code, _, err = select(capsys, *arguments, f"--output={output}")
    assert code == 2, err
    assert re.fullmatch(rf"dpbeam select: error: {message}\n", err), err
    assert not glob.glob(f"{output}*"), "a failed run left output"


class TestOutput:
    def test_the_delimiter_is_in_the_ledger_where_it_is_not_the_comma(self, tmp_path, capsys):
        """It decides what a row is; ledgers of other runs are what they were."""
        rows = [f"{row['user']},{row['item']}" for row in TABLE.to_pylist()]
        for mark, expected in ((",", None), (";", ";"), ("\\t", "\t")):
            path = tmp_path / "pairs.csv"
            path.write_text("\n".join(["user,item", *rows]).replace(",", expected or ","))
            prefix = tmp_path / f"out{ord(mark[0])}"
            flags = ["--input", str(path), *COLUMNS, *BUDGET, KEY, f"--csv_delimiter={mark}", "--quiet"]
            assert select(capsys, *flags, f"--output={prefix}")[0] == 0
            ledger = Ledger.from_json(Path(f"{prefix}.ledger.json").read_text())
            ledger.verify()
            assert ledger.parameters["input"].get("csv_delimiter") == expected

    def test_items_and_ledger(self, pairs, tmp_path, capsys):
        out = str(tmp_path / "out" / "items")
        code, told, err = select(capsys, "--input", pairs, *COLUMNS, *BUDGET, f"--output={out}")
        assert (code, err) == (0, "")
        assert sorted(os.listdir(tmp_path / "out")) == ["items-00000-of-00001.parquet", "items.ledger.json"]
        assert f"{out}-00000-of-00001.parquet" in told and f"{out}.ledger.json" in told
        released = read(out)
        assert released.schema.names == ["item"]
        items = released["item"].to_pylist()
        assert items == sorted(items) and 5 < len(items) < 40
        assert set(items) <= set(TABLE["item"].to_pylist())
        ledger = Ledger.from_json(Path(f"{out}.ledger.json").read_text())
        assert ledger.private and ledger.method == "gsu"
        assert (ledger.epsilon, ledger.delta) == (2.0, 1e-3)
        assert ledger.neighbouring_relation == "add/remove one user"
        assert ledger.versions["apache-beam"]

    @pytest.mark.usefixtures("beams_runner")
    def test_large_inputs_run_in_threads_and_give_the_same_bytes(self, pairs, tmp_path, capsys, monkeypatch):
        flags = ["--set=rounds=2", "--max_items_per_user=60", KEY, "--noisy_weights", "--num_shards=6"]
        written = []
        for threads in (1, 3):
            monkeypatch.setattr("dpbeam.jobs.job.threads", lambda pairs, threads=threads: threads)
            out = str(tmp_path / f"items{threads}")
            assert select(capsys, "--input", pairs, *COLUMNS, *BUDGET, *flags, f"--output={out}")[0] == 0
            written.append(Path(f"{out}-00000-of-00001.parquet").read_bytes())
        assert written[0] == written[1]

    def test_threads_follow_the_size_of_the_input(self):
        from dpbeam.jobs.engine import MAX_THREADS, PAIRS_FOR_THREADS, local_threads, threads

        assert local_threads([]) == local_threads(["--direct_num_workers=1"]) == 1
        assert local_threads(["--direct_num_workers=3"]) == 3
        assert local_threads(["--direct_num_workers=0"]) == os.cpu_count()
        assert local_threads(["--runner=PrismRunner", "--direct_num_workers=3"]) == 1
        assert threads(0) == threads(PAIRS_FOR_THREADS - 1) == 1
        assert 1 <= threads(PAIRS_FOR_THREADS) <= MAX_THREADS

    def test_same_key_same_bytes_whatever_the_input_layout(self, pairs, tmp_path, capsys):
        rows = pq.read_table(pairs)
        turned = rows.take(np.random.default_rng(9).permutation(rows.num_rows))
        for part in range(3):
            path = tmp_path / f"parts/{part}.parquet"
            path.parent.mkdir(exist_ok=True)
            pq.write_table(turned.slice(part * 600, 600), path, row_group_size=100)
        outs = []
        for number, (folder, shards) in enumerate([(tmp_path, "1"), (tmp_path / "parts", "5")]):
            pattern, out = str(folder / "*.parquet"), str(tmp_path / str(number) / "out")
            flags = [KEY, f"--num_shards={shards}", "--noisy_weights", "--set=rounds=2"]
            assert select(capsys, "--input", pattern, *COLUMNS, *BUDGET, *flags, f"--output={out}")[0] == 0
            outs.append(
                (Path(f"{out}-00000-of-00001.parquet").read_bytes(), without_times(f"{out}.ledger.json"))
            )
        assert outs[0] == outs[1]

    def test_fresh_keys_differ(self, pairs, tmp_path, capsys):
        weights = []
        for number in range(2):
            out = str(tmp_path / f"out{number}")
            select(capsys, "--input", pairs, *COLUMNS, *BUDGET, "--noisy_weights", f"--output={out}")
            weights.append(read(out)["noisy_weight"].to_pylist())
        assert weights[0] != weights[1]

    def test_no_overwriting_unless_asked(self, pairs, tmp_path, capsys):
        """And then not by a run that fails."""
        out = str(tmp_path / "items")
        arguments = ["--input", pairs, *COLUMNS, *BUDGET, f"--output={out}"]
        assert select(capsys, *arguments)[0] == 0
        before = {p: Path(p).read_bytes() for p in glob.glob(f"{out}*")}
        code, _, err = select(capsys, *arguments)
        assert code == 2 and "exists; pass --overwrite to replace it" in err
        assert {p: Path(p).read_bytes() for p in glob.glob(f"{out}*")} == before
        bad = tmp_path / "bad.parquet"
        pq.write_table(pa.table({"user": ["u", None], "item": ["a", "b"]}), bad)
        code, _, err = select(capsys, *arguments, "--input", str(bad), "--overwrite")
        assert code == 2 and "null in column 'user'" in err
        assert {p: Path(p).read_bytes() for p in glob.glob(f"{out}*")} == before
        code, _, err = select(capsys, *arguments, "--overwrite", "--output_format=text")
        assert (code, err) == (0, "")
        assert sorted(os.path.basename(p) for p in glob.glob(f"{out}*")) == [
            "items-00000-of-00001.txt",
            "items.ledger.json",
        ]

    def test_output_shards(self, pairs, tmp_path, capsys):
        out = str(tmp_path / "items")
        flags = [KEY, "--num_output_shards=3"]
        assert select(capsys, "--input", pairs, *COLUMNS, *BUDGET, *flags, f"--output={out}")[0] == 0
        assert len(glob.glob(f"{out}-*-of-00003.parquet")) == 3

    def test_dry_run_reads_and_writes_nothing(self, pairs, tmp_path, capsys):
        out = str(tmp_path / "items")
        code, told, err = select(capsys, "--input", pairs, *COLUMNS, *BUDGET, "--dry_run", f"--output={out}")
        assert (code, err) == (0, "")
        assert "nothing was read or written" in told and "limit of any algorithm" in told
        assert not glob.glob(f"{out}*")


class TestEdges:
    def test_no_data_is_an_empty_valid_output(self, tmp_path, capsys):
        path = tmp_path / "empty.parquet"
        pq.write_table(pa.table({"user": pa.array([], pa.string()), "item": pa.array([], pa.string())}), path)
        out = str(tmp_path / "items")
        flags = ["--input", str(path), *COLUMNS, *BUDGET, f"--output={out}"]
        assert select(capsys, *flags)[0] == 2
        code, told, err = select(capsys, *flags, "--allow_empty")
        assert code == 0
        assert err == (
            "dpbeam select: warning: 0 items released: no item of what was read has passed; at this budget an item "
            "needs about 8 users (1 item each) to be released in half of all runs, and no algorithm gets by with fewer "
            "than 5; where items have more users, other columns were read than was meant, or rows were dropped\n"
        )
        assert read(out).num_rows == 0
        assert Ledger.from_json(Path(f"{out}.ledger.json").read_text()).private
        assert "0 items released" in told

    def test_a_single_user_releases_nothing(self, tmp_path, capsys):
        path = tmp_path / "one.parquet"
        pq.write_table(pa.table({"user": ["u"] * 50, "item": [f"i{n}" for n in range(50)]}), path)
        out = str(tmp_path / "items")
        assert (
            select(capsys, "--input", str(path), *COLUMNS, "--epsilon=1", "--delta=1e-9", f"--output={out}")[
                0
            ]
            == 0
        )
        assert read(out).num_rows == 0

    def test_ledgers_of_neighbours_are_identical(self, tmp_path, capsys):
        """Same key, one user more who changes nothing that is released: times apart the ledgers are equal."""
        ledgers = []
        for number in range(2):
            path = tmp_path / str(number) / "in.parquet"
            path.parent.mkdir()
            rows = TABLE
            if number:
                rows = pa.concat_tables(
                    [rows, pa.table({"user": ["new"] * 900, "item": [f"n{i}" for i in range(900)]})]
                )
            pq.write_table(rows, path)
            out = str(tmp_path / str(number) / "out")
            select(capsys, "--input", str(path), *COLUMNS, *BUDGET, KEY, f"--output={out}")
            ledgers.append(without_times(f"{out}.ledger.json"))
        assert ledgers[0] == ledgers[1]

    def test_text_lines(self, tmp_path, capsys):
        path = tmp_path / "docs.txt.gz"
        with gzip.open(path, "wt") as file:
            file.writelines(f"The cat sat {n}\n" for n in range(300))
        out = str(tmp_path / "words")
        flags = ["--lowercase", "--ngrams=1:2", "--output_format=text"]
        assert select(capsys, "--input", str(path), *flags, *BUDGET, f"--output={out}")[0] == 0
        assert Path(f"{out}-00000-of-00001.txt").read_text().splitlines() == [
            "cat",
            "cat sat",
            "sat",
            "the",
            "the cat",
        ]

    def test_grouped_rows(self, tmp_path, capsys):
        path = tmp_path / "grouped.jsonl"
        path.write_text("".join(json.dumps({"items": ["x", "y", f"own {n}"]}) + "\n" for n in range(300)))
        out = str(tmp_path / "items")
        flags = ["--input_layout=grouped", "--item_column=items"]
        assert select(capsys, "--input", str(path), *flags, *BUDGET, f"--output={out}")[0] == 0
        assert read(out)["item"].to_pylist() == ["x", "y"]
        assert "one row" in Ledger.from_json(Path(f"{out}.ledger.json").read_text()).privacy_unit

    def test_public_items(self, pairs, tmp_path, capsys):
        public = tmp_path / "public.txt"
        public.write_text("i1\nnobody holds this\n")
        out = str(tmp_path / "items")
        flags = [f"--public_items={public}", KEY]
        assert select(capsys, "--input", pairs, *COLUMNS, *BUDGET, *flags, f"--output={out}")[0] == 0
        items = read(out)["item"].to_pylist()
        assert {"i1", "nobody holds this"} <= set(items) and len(items) == len(set(items))
        assert Ledger.from_json(Path(f"{out}.ledger.json").read_text()).public_items
        without = str(tmp_path / "rest")
        rows = pq.read_table(pairs)
        kept = rows.filter(pa.compute.not_equal(rows["item"], "i1"))
        pq.write_table(kept, tmp_path / "kept.parquet")
        path = str(tmp_path / "kept.parquet")
        assert select(capsys, "--input", path, *COLUMNS, *BUDGET, KEY, f"--output={without}")[0] == 0
        assert sorted({*read(without)["item"].to_pylist(), "i1", "nobody holds this"}) == sorted(items)

    def test_public_items_have_no_noisy_weight(self, pairs, tmp_path, capsys):
        public = tmp_path / "public.txt"
        public.write_text("i1\n")
        out = str(tmp_path / "items")
        flags = [f"--public_items={public}", "--noisy_weights"]
        assert select(capsys, "--input", pairs, *COLUMNS, *BUDGET, *flags, f"--output={out}")[0] == 0
        weights = dict(zip(*read(out).to_pydict().values()))
        assert weights.pop("i1") is None
        assert weights and None not in weights.values()

    def test_dropped_rows_are_counted_where_asked_and_nowhere_else(self, tmp_path, capsys):
        path = tmp_path / "holes.parquet"
        holes = pa.table({"user": ["u", None, "v"], "item": ["a", "b", None]})
        pq.write_table(pa.concat_tables([holes, TABLE]), path)
        out, counts = str(tmp_path / "items"), tmp_path / "counts.json"
        flags = ["--on_null=drop", f"--not_private_counts={counts}"]
        code, told, _ = select(capsys, "--input", str(path), *COLUMNS, *BUDGET, *flags, f"--output={out}")
        assert code == 0
        dropped = json.loads(counts.read_text())
        assert dropped["not_private"] is True
        assert sum(dropped["dropped"].values()) == 2
        assert "NOT PRIVATE" in told
        assert "dropped" not in Path(f"{out}.ledger.json").read_text()

    def test_huge_user_and_universal_item(self, tmp_path, capsys):
        path = tmp_path / "skew.parquet"
        many = pa.table({"user": ["huge"] * 20_000, "item": [f"own {n}" for n in range(20_000)]})
        everybody = pa.table({"user": [f"u{n}" for n in range(5_000)], "item": ["all"] * 5_000})
        pq.write_table(pa.concat_tables([many, everybody]), path)
        out = str(tmp_path / "items")
        for method in ("mad2r", "gsu"):
            flags = [f"--method={method}", "--overwrite", f"--output={out}"]
            assert (
                select(capsys, "--input", str(path), *COLUMNS, "--epsilon=1", "--delta=1e-9", *flags)[0] == 0
            )
            assert read(out)["item"].to_pylist() == ["all"]


class TestBadInput:
    def test_null(self, tmp_path, capsys):
        path = tmp_path / "n.parquet"
        pq.write_table(pa.table({"user": ["u", None], "item": ["a", "b"]}), path)
        fails(
            capsys,
            r".*n\.parquet: row 2: null in column 'user'; pass --on_null=drop to drop such rows",
            "--input",
            str(path),
            *COLUMNS,
            *BUDGET,
            output=tmp_path / "x",
        )

    @pytest.mark.parametrize(
        "flags,message",
        [
            (["--epsilon=x", "--delta=1e-5"], r"argument --epsilon: expected a number, got 'x'"),
            (
                [*BUDGET, "--set=budget_split=a,b"],
                r"argument --set: budget_split: expected comma-separated numbers, got 'a,b'",
            ),
            ([*BUDGET, "--num_shards=0"], r"--num_shards must be from 1 to 65536, got 0"),
            (
                [*BUDGET, "--insecure_test_key=xyz"],
                r"--insecure_test_key must be hexadecimal digits, got 'xyz'",
            ),
            ([*BUDGET, "--public_items=/none"], r"--public_items: .*/none.*"),
        ],
    )
    def test_flags(self, flags, message, pairs, tmp_path, capsys):
        """Settings out of range are in tests/selection/test_config.py."""
        fails(capsys, message, "--input", pairs, *COLUMNS, *flags, output=tmp_path / "x")

    @pytest.mark.parametrize("name", ["input", "epsilon", "delta", "output"])
    def test_required(self, name, capsys):
        given = ["--input=x.csv", *COLUMNS, *BUDGET, "--output=x"]
        flags = [flag for flag in given if not flag.startswith(f"--{name}=")]
        code, _, err = select(capsys, *flags)
        assert (code, err) == (2, f"dpbeam select: error: --{name} is required\n")

    @pytest.mark.usefixtures("beams_runner")
    def test_beam_flags_go_to_beam(self, pairs, tmp_path, capsys):
        out = str(tmp_path / "items")
        flags = ["--runner", "FnApiRunner", "--direct_num_workers=1", f"--temp_location={tmp_path / 'temp'}"]
        assert select(capsys, "--input", pairs, *COLUMNS, *BUDGET, *flags, f"--output={out}")[0] == 0


class TestConfig:
    def write(self, tmp_path, text):
        path = tmp_path / "job.yaml"
        path.write_text(text)
        return f"--config={path}"

    def test_file_gives_flags_and_the_command_line_wins(self, pairs, tmp_path, capsys):
        config = self.write(
            tmp_path,
            f"input: ['{pairs}']\nuser_column: user\nitem_column: item\nepsilon: 2\ndelta: 1.0e-3\n"
            "users_at_least: 100\nmethod: basic\nnoisy_weights: true\nmax_items_per_user: 7\ndirect_num_workers: 1\n"
            f"output: {tmp_path / 'from_file'}\n",
        )
        out = str(tmp_path / "items")
        code, _, err = select(
            capsys, config, "--max_items_per_user=9", f"--output={out}", "--no_noisy_weights"
        )
        assert (code, err) == (0, "")
        ledger = json.loads(Path(f"{out}.ledger.json").read_text())
        assert ledger["method"] == "basic" and ledger["parameters"]["max_items_per_user"] == 9
        assert read(out).schema.names == ["item"]
        assert not glob.glob(str(tmp_path / "from_file*"))

    def test_lists_of_numbers(self, pairs, tmp_path, capsys):
        config = self.write(tmp_path, "method: mad2r\nsettings: {budget_split: [0.4, 0.6]}\n")
        out = str(tmp_path / "items")
        assert select(capsys, "--input", pairs, *COLUMNS, *BUDGET, config, f"--output={out}")[0] == 0
        assert json.loads(Path(f"{out}.ledger.json").read_text())["parameters"]["budget_split"] == [0.4, 0.6]

    def test_missing_file(self, pairs, tmp_path, capsys):
        fails(
            capsys,
            r"--config: cannot read '/none\.yaml': No such file or directory",
            "--config=/none.yaml",
            output=tmp_path / "x",
        )

    def test_examples_parse(self):
        from dpbeam.cli.select import make_parser

        for path in sorted((Path(__file__).resolve().parents[2] / "configs").glob("select*.yaml")):
            options, _ = make_parser().parse([f"--config={path}"])
            assert options.epsilon == 1.0 and options.delta == 1e-8


class TestFailure:
    def test_a_failed_run_leaves_nothing(self, pairs, tmp_path, capsys, monkeypatch):
        def crash(*_):
            raise OSError("disk full")

        monkeypatch.setattr("dpbeam.io.sinks.write_shard", crash)
        out = str(tmp_path / "out" / "items")
        code, _, err = select(capsys, "--input", pairs, *COLUMNS, *BUDGET, f"--output={out}")
        assert code == 1
        assert err.startswith("dpbeam select: error: ") and "disk full" in err and err.count("\n") == 1
        assert not glob.glob(f"{out}*")

    def test_interrupt(self, pairs, tmp_path, capsys, monkeypatch):
        def interrupt(*_, **__):
            raise KeyboardInterrupt

        monkeypatch.setattr(
            "apache_beam.runners.portability.fn_api_runner.FnApiRunner.run_pipeline", interrupt
        )
        out = str(tmp_path / "items")
        code, _, err = select(capsys, "--input", pairs, *COLUMNS, *BUDGET, f"--output={out}")
        assert (code, err) == (1, "dpbeam select: error: interrupted\n")
        assert not glob.glob(f"{out}*")

    def test_a_lower_layer_is_not_blamed_on_the_user(self, pairs, tmp_path, capsys, monkeypatch):
        def bug(*_, **__):
            raise ZeroDivisionError("division by zero")

        monkeypatch.setattr("dpbeam.kernels.pairs.partition_pairs", bug)
        monkeypatch.setattr("dpbeam.engine.beam.blocks.partition_pairs", bug)
        code, _, err = select(capsys, "--input", pairs, *COLUMNS, *BUDGET, f"--output={tmp_path / 'x'}")
        assert code == 1 and "division by zero" in err
