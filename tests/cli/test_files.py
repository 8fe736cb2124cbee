"""Input and output files of whole commands: pipes, names, types, formats, and what must never be lost."""

import glob
import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpbeam.cli import main
from tests.support.commands import COLUMNS, run, standard_input
from tests.support.instances import popular_table

pytestmark = pytest.mark.usefixtures("own_temp")

BUDGET = ["--epsilon=2", "--delta=1e-3", "--insecure_test_key=00ff"]
TABLE = popular_table(300, 0)
CSV = "".join(f"{row}\n" for row in ["user,item", *map(",".join, zip(*TABLE.to_pydict().values()))])


@pytest.fixture
def reference(pairs, tmp_path, capsys):
    """Released items of the file, under the tests' key."""
    assert run(capsys, "select", f"--input={pairs}", *COLUMNS, *BUDGET, f"--output={tmp_path}/ref")[0] == 0
    return pq.read_table(f"{tmp_path}/ref-00000-of-00001.parquet")["item"].to_pylist()


def test_inputs_survive(tmp_path, capsys):
    """`--output d/logs --overwrite` over the shards of an earlier run, which are read by another name."""
    for n in range(4):
        pq.write_table(TABLE.slice(n * 100, 100), tmp_path / f"logs-0000{n}-of-00004.parquet")
    before = {path: path.read_bytes() for path in tmp_path.glob("logs-*")}
    os.symlink(tmp_path, tmp_path / "alias")
    flags = [f"--input={tmp_path}/alias/logs-*.parquet", f"--output={tmp_path}/logs", "--overwrite"]
    code, _, err = run(capsys, "select", *flags, *COLUMNS, *BUDGET)
    assert code == 2 and err == (
        f"dpbeam select: error: --output: '{tmp_path}/logs-00000-of-00004.parquet' is an input of this run; choose "
        "another prefix\n"
    )
    assert {path: path.read_bytes() for path in tmp_path.glob("logs*")} == before


def test_lists_and_counts_survive(pairs, reference, tmp_path, capsys):
    """What a run reads besides its input, and what it writes besides its output."""
    base = ["select", f"--input={pairs}", *COLUMNS, *BUDGET, "--overwrite"]
    shard = f"{tmp_path}/ref-00000-of-00001.parquet"
    before = Path(shard).read_bytes()
    for public in (shard, f"{tmp_path}/ref"):
        code, _, err = run(capsys, *base, f"--output={tmp_path}/ref", f"--public_items={public}")
        assert code == 2 and f"--output: '{shard}' is an input of this run" in err
    for path in (pairs, f"{tmp_path}/ref.ledger.json"):
        code, _, err = run(capsys, *base, f"--output={tmp_path}/ref", f"--not_private_counts={path}")
        assert code == 2 and err.startswith("dpbeam select: error: --not_private_counts: ")
    assert Path(shard).read_bytes() == before and pq.read_table(pairs).equals(TABLE)
    assert run(capsys, *base, f"--output={tmp_path}/ref")[0] == 0  # and our own output is replaced


def test_stdin(reference, tmp_path):
    """With a value of two lines, which a flag allows."""
    temp, rows = tmp_path / "private", tmp_path / "rows"
    rows.write_text(CSV + 'somebody,"of two\nlines"\n')
    flags = [*COLUMNS, *BUDGET, f"--output={tmp_path}/out", f"--temp_location={temp}", "--csv_multiline"]
    with standard_input(rows):
        assert main(["select", "--input=-", "--input_format=csv", *flags]) == 0
    assert pq.read_table(f"{tmp_path}/out-00000-of-00001.parquet")["item"].to_pylist() == reference
    assert os.listdir(temp) == []


def test_a_failed_run_on_stdin_leaves_nothing(tmp_path, capsys):
    temp, rows = tmp_path / "private", tmp_path / "rows"
    flags = [*COLUMNS, *BUDGET, f"--output={tmp_path}/out", f"--temp_location={temp}"]
    for text, problem in (
        ('user,item\nu,"i\n', "0-stdin:2: a quoted value does not end on its line"),
        ("", "0-stdin: an empty file, without even a header"),
    ):
        rows.write_text(text)
        with standard_input(rows):
            assert main(["select", "--input=-", "--input_format=csv", *flags]) == 2
        assert problem in capsys.readouterr().err
        assert os.listdir(temp) == [] and not glob.glob(f"{tmp_path}/out*")


def test_process_substitution(tmp_path, reference):
    """`<(cat a.csv)` is the path of a pipe."""
    end, other = os.pipe()
    os.write(other, CSV.encode())
    os.close(other)
    flags = [*COLUMNS, *BUDGET, f"--output={tmp_path}/out", f"--temp_location={tmp_path}/private"]
    assert main(["select", f"--input=/dev/fd/{end}", "--input_format=csv", *flags]) == 0
    os.close(end)
    assert pq.read_table(f"{tmp_path}/out-00000-of-00001.parquet")["item"].to_pylist() == reference


def test_a_file_with_two_names(pairs, reference, tmp_path, capsys):
    os.symlink(pairs, tmp_path / "again.parquet")
    flags = [*COLUMNS, *BUDGET, f"--output={tmp_path}/out"]
    code, out, _ = run(capsys, "select", "--input", pairs, f"{tmp_path}/again.parquet", *flags)
    assert code == 0
    assert f"input: '{pairs}' and '{tmp_path}/again.parquet' are one file, which is read once" in out
    assert pq.read_table(f"{tmp_path}/out-00000-of-00001.parquet")["item"].to_pylist() == reference


@pytest.mark.parametrize("item_type, kind, listed", [(None, pa.string(), "7"), ("int", pa.int64(), 7)])
def test_the_type_of_the_output_is_what_the_flag_says(item_type, kind, listed, tmp_path, capsys):
    """Never what a row says: not where one user alone has an item, nor where nobody has."""
    rows = [{"items": []}] * 50
    for number, last in enumerate(([], [{"items": [5]}, {"items": ["a"]}])):
        (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows + last))
        (tmp_path / "public.txt").write_text("7\n")
        flags = ["--input_layout=grouped", "--item_column=items", *BUDGET, "--on_bad_row=skip"]
        flags += [] if item_type is None else [f"--item_type={item_type}"]
        flags += [f"--public_items={tmp_path}/public.txt", f"--output={tmp_path}/out{number}"]
        assert run(capsys, "select", f"--input={tmp_path}/a.jsonl", *flags)[0] == 0
        table = pq.read_table(f"{tmp_path}/out{number}-00000-of-00001.parquet")
        assert table.schema.field("item").type == kind
        assert table["item"].to_pylist() == [listed]


def test_our_own_output_reads_back(pairs, reference, tmp_path, capsys):
    """As the public items of the next run."""
    out = f"{tmp_path}/out"
    base = ["select", f"--input={pairs}", *COLUMNS, *BUDGET]
    flags = ["--output_format=text", "--noisy_weights", f"--output={out}"]
    code, told, _ = run(capsys, *base, *flags)
    assert code == 0 and f"{len(reference)} items" in told and f"{out}-00000-of-00001.txt" in told
    assert run(capsys, *base, f"--public_items={out}", f"--output={tmp_path}/next")[0] == 0
    assert set(pq.read_table(f"{tmp_path}/next-00000-of-00001.parquet")["item"].to_pylist()) >= set(reference)


#: A name that the files of any system on which it is allowed may have: Latin-1.
LATIN = os.fsdecode(b"caf\xe9")


@pytest.mark.parametrize(
    "command, flag",
    [
        (["select", *COLUMNS, *BUDGET, "--output=out"], "--input"),
        (["check"], "--input"),
        (["pack", "--supplies=s.yaml", "--num_agents=5", *BUDGET, "--output=out"], "--agents"),
    ],
)
@pytest.mark.parametrize("pattern", ["*.csv", "*/*.csv", f"{LATIN}.csv"])
def test_a_name_that_is_no_utf_8(command, flag, pattern, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")  # of the table
    for folder in (tmp_path, tmp_path / LATIN):
        folder.mkdir(exist_ok=True)
        (folder / ("a.csv" if "*/" in pattern else f"{LATIN}.csv")).write_text("user,item\nu,i\n")
    (tmp_path / "s.yaml").write_text("r: 100\n")
    code, out, err = run(capsys, *command, f"{flag}={pattern}")
    shown = "caf\\xe9/a.csv" if "*/" in pattern else "caf\\xe9.csv"
    message = f"{flag}: '{shown}' is not valid UTF-8; rename it"
    if command == ["check"]:
        assert code == 1 and message in out
    else:
        assert (code, err) == (2, f"dpbeam {command[0]}: error: {message}\n")
    assert not list(tmp_path.glob("out*"))


@pytest.mark.parametrize(
    "flags", [["--tokenizer=regex", f"--token_pattern={LATIN}"], [f"--partition=day!={LATIN}"]]
)
def test_a_flag_that_is_no_utf_8(flags, tmp_path, capsys):
    (tmp_path / "day=1").mkdir()
    (tmp_path / "day=1" / "a.csv").write_text("user,item\nu,i\n")
    argv = ["select", f"--input={tmp_path}/*/a.csv", *COLUMNS, *BUDGET, f"--output={tmp_path}/out"]
    name, _, value = flags[-1].partition("=")
    value = value.replace(LATIN, "caf\\xe9")
    assert run(capsys, *argv, *flags) == (
        *(2, ""),
        f"dpbeam select: error: {name}: '{value}' is not valid UTF-8\n",
    )


@pytest.mark.parametrize("flag", ["--output", "--temp_location", "--checkpoint", "--result_file", "--input"])
def test_a_path_of_more_folders_than_python_can_make(flag, tmp_path, capsys):
    deep = f"{tmp_path}{'/a' * 1500}/x"
    job = ["select", "--input=a.csv", "--output=out", "--epsilon=1", "--delta=1e-5", f"{flag}={deep}"]
    assert main(job) == 2
    told = capsys.readouterr().err
    assert told == (
        f"dpbeam select: error: argument {flag}: a path has at most 500 folders one within the other\n"
    )
    assert not list(tmp_path.rglob("a"))
