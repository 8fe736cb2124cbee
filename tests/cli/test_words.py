"""What a command says of a wrong word or file, and the code that it ends with."""

import os
import subprocess
import sys

import pytest

import dpbeam
from dpbeam.cli import main
from dpbeam.errors import InputError
from tests.support.instances import popular_table

BUDGET = ["--epsilon=2", "--delta=1e-3"]
JOB = ["--input=pairs.csv", "--user_column=user", "--item_column=item", *BUDGET, "--output=out"]


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{row['user']},{row['item']}\n" for row in popular_table(60, 0).to_pylist())
    (tmp_path / "pairs.csv").write_text("user,item\n" + rows)
    return tmp_path


def refused(capsys, *argv) -> str:
    assert main(list(argv)) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    return err.partition(": error: ")[2].rstrip("\n")


@pytest.mark.parametrize(
    "argv,message",
    [
        (["select", *JOB, "--overwrite=maybe"], "--overwrite takes no value, got 'maybe'"),
        (["select", *JOB, "--delta", "-1e-5"], "--delta must lie strictly between 0 and 1, got -1e-05"),
        (["select", *JOB, "--epsilon", "-.5"], "--epsilon must be a finite number above 0, got -0.5"),
        (["select", *JOB, "--epsilon=1_0"], "argument --epsilon: expected a number, got '1_0'"),
        (
            ["plan", *BUDGET, "--degrees=1,1_0"],
            "argument --degrees: expected comma-separated integers, got '1,1_0'",
        ),
        (["top-k", *JOB, "--k=٣"], "argument --k: expected an integer, got '٣'"),
        (["top-k", *JOB, "--k=" + "9" * 5000], f"argument --k: expected an integer, got '{'9' * 50}...'"),
        (["plan", *BUDGET, "--k=2", "--selector=foo"], "--selector must be one of"),
        (["select", *JOB[:-1], "--output=-"], "--output: '-' is no prefix of file names"),
        (["select", *JOB[:-1], "--output=/dev/null"], "--output: '/dev/null' is no prefix of file names"),
        (["select", *JOB, "--method=\x1b[31mred"], "got '\\x1b[31mred'"),
        (["select", *JOB, "--input=\x1b[31mred.csv"], "'\\x1b[31mred.csv'"),
        (
            ["select", *JOB, "--budget=x\udce9", "--dataset=d", "--release_id=r"],
            "--budget: the name of the store is not",
        ),
    ],
)
def test_words(argv, message, place, capsys):
    assert message in refused(capsys, *argv)


def test_the_environment_reaches_no_terminal(place, capsys):
    """Escapes in a path that a message of success repeats."""
    assert main(["select", *JOB[:-1], "--output=\x1b[31mred"]) == 0
    out, err = capsys.readouterr()
    assert "\x1b" not in out + err and r"\x1b[31mred" in out


@pytest.mark.parametrize("made", ["text", "folder", "fifo"])
def test_a_store_that_is_none(made, place, capsys):
    """Wrong usage, which no retry fixes; and no names of classes."""
    if made == "text":
        (place / "b.db").write_text("no database " * 100)
    elif made == "folder":
        os.mkdir("b.db")
    else:
        os.mkfifo("b.db")
    account = ["--budget=b.db", "--dataset=d", "--release_id=r"]
    assert refused(capsys, "select", *JOB, *account).startswith("--budget: ")
    assert refused(capsys, "budget", "show", "--budget=b.db").startswith("--budget: ")


def test_no_name_of_a_class_of_ours(monkeypatch, capsys):
    from dpbeam.budget.account import StillRunningError
    from dpbeam.jobs.console import run_command

    def fails() -> int:
        raise StillRunningError("--release_id: 'x' still runs")

    assert run_command("select", fails) == 1
    assert capsys.readouterr().err == "dpbeam select: error: --release_id: 'x' still runs\n"


class TestCheck:
    """Ready means that the command would take it."""

    def test_what_the_command_refuses(self, place, capsys):
        (place / "out-00000-of-00001.parquet").write_text("mine")
        assert "is in the way" in refused(capsys, "select", *JOB)
        assert main(["check", "--input=pairs.csv", "--output=out"]) == 1
        said = " ".join(capsys.readouterr().out.split())
        assert "NO files of --output" in said and "not ready" in said

    def test_other_output(self, place, capsys):
        assert main(["select", *JOB, "--quiet"]) == 0
        for output, more, code in (
            ("out", [], 1),
            ("out", ["--overwrite"], 0),
            ("new", [], 0),
            ("pairs.csv/x", [], 1),
        ):
            assert main(["check", "--input=pairs.csv", f"--output={output}", *more]) == code, output
        assert main(["check", "--input=none-*.csv"]) == 1
        said = " ".join(capsys.readouterr().out.split())
        assert "NO files of --input" in said and "'none-*.csv'" in said

    def test_columns(self, place, capsys):
        """With a flag that says how the input is read, it is read so; a pipe is left to the job."""
        (place / "other.csv").write_text("who;what\nu;i\n")
        os.mkfifo(place / "pipe.csv")
        columns = ["--user_column=who", "--item_column=what"]
        for argv, message in (
            (["--input=other.csv"], ""),
            (["--input=other.csv", *columns, "--csv_delimiter=;"], ""),
            (["--input=other.csv", *columns], "pass --csv_delimiter=';'"),
            (["--input=other.csv", "--csv_delimiter=;"], "has no columns 'user', 'item'"),
            (["--input=pairs.csv", "--on_null=drop"], ""),
            (["--input=pairs.csv", "--partition=day>1"], "in no partition day=..."),
            (["--input=pairs.csv", "--user_column=user", "--item_column=user"], "is also --user_column"),
            (["--input=pipe.csv", *columns], ""),
        ):
            assert main(["check", *argv]) == (1 if message else 0), argv
            said = " ".join(capsys.readouterr().out.split())
            assert ("NO files of --input" in said) == bool(message), argv
            assert all(word in said for word in message.split()), (
                argv
            )  # lines of a cell stand between others' cells


def test_counts_in_memory_are_a_dictionary():
    with pytest.raises(InputError, match="not_private_counts must be a dictionary, got list"):
        dpbeam.select(popular_table(20, 0), epsilon=1, delta=1e-5, not_private_counts=[])


def test_a_lazy_frame_is_to_be_collected():
    class LazyFrame:
        def collect(self):
            """As of polars."""

    with pytest.raises(InputError, match=r"got LazyFrame as data; call collect\(\) first"):
        dpbeam.select(LazyFrame(), epsilon=1, delta=1e-5)


def test_a_library_warns_nobody(place):
    """numpy's word about a number of a ledger is no message of the command."""
    assert main(["select", *JOB, "--quiet"]) == 0
    text = (place / "out.ledger.json").read_text()
    import re

    (place / "out.ledger.json").write_text(re.sub(r'"sigma": [0-9.e+-]+', '"sigma": 1e308', text))
    argv = [sys.executable, "-m", "dpbeam.cli", "verify", "out.ledger.json"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    assert done.returncode in (1, 2) and "Warning" not in done.stderr


def test_elapsed_counts_the_imports(place, capsys, monkeypatch):
    from dpbeam.jobs import console

    assert main(["select", *JOB]) == 0
    monkeypatch.setattr(console._State, "began", console._State.began - 3600)
    assert console.elapsed() > 3600
    assert "elapsed: " in capsys.readouterr().out
