"""The table of exit codes: the document has it, and every command ends as it says."""

import importlib

import pytest

from dpbeam.budget.account import OverLimitError, ReservationLostError, StillRunningError
from dpbeam.budget.store import BudgetStoreError
from dpbeam.cli import COMMANDS, main
from dpbeam.cli.flags import FlagParser
from dpbeam.errors import InputError, UnavailableError
from dpbeam.jobs.console import NothingToDo, OutputLostError, run_command
from dpbeam.jobs.exit_codes import ExitCode
from tests.test_documents import rows

ENDS = {
    NothingToDo(): 0,
    SystemExit(): 0,
    RuntimeError("x"): 1,
    OSError(28, "No space left on device"): 1,
    KeyboardInterrupt(): 1,
    OutputLostError("x"): 1,
    BudgetStoreError("x"): 1,
    StillRunningError("x"): 1,
    UnavailableError("x"): 1,
    ReservationLostError("x"): 1,
    InputError("x"): 2,
    OverLimitError("x"): 2,
}


def test_the_documents_table():
    listed = [
        [cell.replace("`", "") for cell in row] for row in rows("docs/reference/cli.md", "| code | meaning |")
    ]
    assert listed == [[str(int(code)), code.meaning, code.again] for code in ExitCode]


def check_ends(command: str, monkeypatch, capsys) -> None:
    """A command ends as the table says."""
    assert main([command, "--version"]) == main([command, "--help"]) == ExitCode.DONE
    assert main([command, "--no_such_flag=1"]) == ExitCode.REFUSED

    def fails(*_, **__):
        raise error

    monkeypatch.setattr(FlagParser, "parse", fails)
    capsys.readouterr()
    for error, code in ENDS.items():
        assert main([command]) == code, error
        said = capsys.readouterr().err.strip().splitlines()
        assert len(said) == (code != 0), error


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_ends_as_the_table_says(command, monkeypatch, capsys):
    check_ends(command, monkeypatch, capsys)


def test_what_does_not_answer_a_worker_is_said_in_its_words(capsys):
    """As of a bad row: its line of the trace that a runner passes on, without class and step."""

    def fails():
        raise RuntimeError(
            f"Traceback:\n{UnavailableError.__module__}.UnavailableError: a: busy [while running 'R']"
        )

    assert run_command("select", fails) == ExitCode.FAILED
    assert capsys.readouterr().err == "dpbeam select: error: a: busy\n"


def test_without_a_command_and_with_an_unknown_one(capsys):
    assert main(["--version"]) == main(["--help"]) == 0
    assert main([]) == main(["selekt"]) == 2


def test_modules_end_as_their_commands(capsys):
    for module in ("select_items", "top_k", "hitting_set", "pack"):
        job = importlib.import_module(f"pipelines.{module}")
        assert (job.main(["--version"]), job.main(["--epsilon=1"])) == (0, 2)
