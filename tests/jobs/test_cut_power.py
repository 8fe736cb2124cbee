"""Power cut at writes of a command: nothing that was said to be done is lost, charged twice or drawn twice.

`python -m tests.support.cut_power FOLDER COMMAND` tries every write, in minutes each; the simulator cuts at others.
"""

import pathlib

import pytest

from tests.support.cut_power import cut
from tests.support.kill_at import from_child


def steps_of(folder: pathlib.Path, command: str, most: int) -> list[dict]:
    """In a fork of this process, which has imported what the commands need."""
    steps = from_child(lambda: cut(str(folder), command, most))
    assert any(step["done"] for step in steps)
    return steps


def check_release(step: dict) -> None:
    """What somebody may have seen before the cut is what the command releases, byte by byte."""
    assert step["codes"] == [0, 0, 0], step
    assert (step["state"], step["charged"]) == ("committed", 1), step
    assert step["seen"].items() <= step["shards"].items(), step
    assert set(step["readable"]) <= {line for text in step["shards"].values() for line in text.split()}, step
    assert (step["staged"], step["left"]) == ([], []), step
    assert step.get("kept", 0) == 0 and step.get("resolve", 0) in (0, 2), step
    assert step["result"] == step["ledger"] and not step["tells of before"], step
    assert not step["done"] or step["seen"] == step["shards"], step


def check_series(step: dict) -> None:
    assert set(step["codes"]) == {0} and step["items"] and step["charged"] == 1, step
    assert step.get("differs", []) == [] and step.get("lost", []) == [], step


@pytest.mark.slow
@pytest.mark.parametrize(("command", "sample"), [("overwrite", 8), ("checkpoint", 2)])
def test_some_cuts_of_a_release(command, sample, tmp_path):
    for step in steps_of(tmp_path, command, sample):
        check_release(step)


@pytest.mark.parametrize(
    ("command", "sample"),
    [
        pytest.param("first", 4, marks=pytest.mark.slow),
        *(pytest.param(command, 4, marks=pytest.mark.engines) for command in ("open", "erase", "close")),
    ],
)
def test_some_cuts_of_a_series(command, sample, tmp_path):
    for step in steps_of(tmp_path, command, sample):
        check_series(step)
