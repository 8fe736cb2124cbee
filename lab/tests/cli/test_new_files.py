"""No command of the lab changes a file that it was not told to replace."""

import importlib
from pathlib import Path

import pytest

from dpbeam.cli import main
from dpbeam.jobs.options import WRITTEN, WRITTEN_PREFIX
from dpbeam_lab.cli import evaluate_run
from dpbeam_lab.commands import COMMANDS
from lab.tests.experiment_files import experiment
from tests.cli.test_new_files import (  # fixtures too
    BUDGET,
    check_file,
    check_prefix,
    check_roles,
    everything,
    flags_of,
    made,  # noqa: F401
    place,  # noqa: F401
)

PARSERS = {
    **{name: importlib.import_module(module).make_parser() for name, (module, _) in COMMANDS.items()},
    "evaluate run": evaluate_run.make_parser(),
}
#: A command line of each command that writes, all in order but for the flag under test.
GOOD = {
    "tune": ["--users=100", "--mean_items_per_user=3", "--repetitions=1", "--method=basic", *BUDGET],
    "synth": ["--users=5", "--items=5"],
    "evaluate run": ["experiment.py"],
}
#: How names of files of a prefix end.
ENDS = {"synth": ("-00000-of-00001.parquet",), "evaluate run": (".parquet", ".md", ".cells.jsonl")}


@pytest.fixture(autouse=True)
def written(place):  # noqa: F811
    (place / "experiment.py").write_text(experiment(datasets="{'small': synth(users=20, items=5)}"))


@pytest.mark.parametrize("command", PARSERS)
def test_every_flag_that_names_files_says_what_becomes_of_them(command):
    check_roles(PARSERS[command])


@pytest.mark.parametrize("command,flag", flags_of(WRITTEN, PARSERS))
def test_no_foreign_file_is_touched(command, flag, capsys):
    check_file(command, GOOD[command], flag, capsys)


@pytest.mark.parametrize("command,flag", flags_of(WRITTEN_PREFIX, PARSERS))
def test_no_foreign_file_of_a_prefix_is_touched(command, flag, capsys):
    check_prefix(command, GOOD[command], flag, ENDS[command], capsys)


def test_a_release_is_no_synthetic_data(capsys):
    before = everything()
    assert main(["synth", *GOOD["synth"], "--output=out", "--overwrite"]) == 2
    err = capsys.readouterr().err
    assert "--output" in err and err.count("\n") == 1 and everything() == before


def test_a_market_leaves_foreign_supplies(capsys):
    Path("m.supplies.yaml").write_text("mine")
    assert main(["synth", "--agents=3", "--resources=1", "--output=m"]) == 2
    assert "--output: 'm.supplies.yaml' exists" in capsys.readouterr().err
    assert Path("m.supplies.yaml").read_text() == "mine" and not list(Path().glob("m-*"))


def test_a_foreign_journal_without_line_end_stays(capsys):
    Path("e.cells.jsonl").write_text("mine")
    assert main(["evaluate", "run", "experiment.py", "--output=e"]) == 2
    assert "does not hold cells of an experiment" in capsys.readouterr().err
    assert Path("e.cells.jsonl").read_text() == "mine"
