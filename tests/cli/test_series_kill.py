"""kill -9 at every step of every command of a series, then the same command again; and two runs of a night at once.

What stands after the second command is, file by file and byte by byte, what stands after an undisturbed one: the
folder, the nights' output, the ledgers less the time of the run, and one charge to the account.
"""

import functools
import signal

import pytest

from tests.support.commands import steps_of

steps = functools.partial(steps_of, "tests.support.kill_series")


def check(killed: list[dict]) -> None:
    for step in killed:
        where = (step["command"], step["step"], step["appeared"])
        assert step["killed"] == -signal.SIGKILL, where
        assert (step["retry"], step["differs"], step["charged"]) == (0, [], 1), where


def stages(killed: list[dict], night: int) -> list[str]:
    """How far a night was at each step."""
    state = f"f/state-{night:08}"
    seen = []
    for names in (step["appeared"] for step in killed):
        shown = sum(name.startswith("out/") and "staging" not in name for name in names)
        staged = any("staging" in name for name in names)
        seen.append(
            "before the state" if state not in names
            else "part is out" if 0 < shown < 4 and staged
            else "all is out" if shown
            else "staged" if staged
            else "between state and output"
        )  # fmt: skip
    return list(dict.fromkeys(seen))


@pytest.mark.slow
def test_a_night_killed_at_every_step_is_made_once(tmp_path):
    killed = steps(tmp_path, "first")
    check(killed)
    assert stages(killed, 1) == [
        *("before the state", "between state and output", "staged", "part is out", "all is out")
    ]
    assert len(killed) > 20


@pytest.mark.engines  # some two hundred processes
def test_every_command_killed_at_each_kind_of_step_is_done_once(tmp_path):
    """An opening at every step; nights of one process put their output in place as the first, at every step above."""
    commands = ["open", "again", "erase", "second", "close"]
    killed = steps(tmp_path, "kinds", *commands)
    check(killed)
    assert {step["command"] for step in killed} == set(commands)
    assert len(killed) > 50


@pytest.mark.engines  # pipelines in processes of their own
def test_a_night_on_an_engine_killed_at_some_kinds_of_steps_is_made_once(tmp_path):
    """One that goes on from the parts of another; at others the simulator kills. Its output is put in place as that of
    a night in one process."""
    killed = steps(tmp_path, "engine", "some", "third")
    check(killed)
    assert stages(killed, 4)[:2] == ["before the state", "between state and output"]
    assert len(killed) == len({step["step"] for step in killed}) > 10


@pytest.mark.slow
def test_of_two_runs_of_a_night_one_makes_it_wherever_the_other_stands(tmp_path):
    paused = steps(tmp_path, "paused")
    assert {step["first"] for step in paused} == {0}
    assert all(step["differs"] == [] for step in paused)
    codes = [step["other"] for step in paused]
    assert (
        codes == sorted(codes) and codes[0] == 0
    )  # before the first has the lock, the other makes the night
    assert sum(codes) > 20
