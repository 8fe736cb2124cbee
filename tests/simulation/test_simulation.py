"""The simulator itself: some seeds hold, a seed is one schedule, and a fault that is put back is seen."""

import os
import pathlib
import subprocess
import sys

import pytest

from tests.simulation.mutations import MUTATIONS
from tests.simulation.stories import COMMANDS

ROOT = pathlib.Path(__file__).resolve().parents[2]


def simulate(*arguments: str) -> subprocess.CompletedProcess:
    path = os.pathsep.join([str(ROOT), str(ROOT / "lab")])
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": path}
    argv = [sys.executable, "-m", "tests.simulation", "--processes=1", *arguments]
    return subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True)


@pytest.mark.slow
def test_seeds_hold_and_are_one_schedule_each():
    """`.ci/run` runs two hundred."""
    first, second = (simulate("--seeds=6", "--lines") for _ in range(2))
    assert first.returncode == second.returncode == 0, first.stdout
    schedules = [done.stdout.splitlines()[:-1] for done in (first, second)]  # the last line tells the time
    assert schedules[0] == schedules[1] and len(schedules[0]) > 500


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["ledger first", "open to others"])
def test_a_fault_that_is_put_back_is_seen(fault):
    done = simulate("--faults", fault, "--seeds=60")
    assert done.returncode == 0 and MUTATIONS[fault][0] in done.stdout, done.stdout


def test_every_kind_of_release_is_simulated():
    assert {command.flags[0] for command in COMMANDS.values()} == {
        "select",
        "top-k",
        "hitting-set",
        "count",
        "series",
        "pack",
    }
