"""The simulator itself: a seed is one schedule, and a fault that is put back is seen and told with what it needs.

That seeds hold is shown by `.ci/run`, which plays two hundred.
"""

import os
import pathlib
import subprocess
import sys
from dataclasses import replace

from tests.simulation import __main__
from tests.simulation.mutations import mutated
from tests.simulation.stories import COMMANDS, Story, play
from tests.simulation.world import Fault

ROOT = pathlib.Path(__file__).resolve().parents[2]


def play_some() -> None:
    """In a process of its own, which has no threads."""
    story = Story.drawn(0, ["jobs"])
    (wrong, first), (_, second) = play(story), play(story)
    assert wrong is None
    assert first.lines == second.lines != []
    for fault in ("open to others", "out before it is paid"):
        with mutated(fault):
            assert any(play(Story.drawn(seed, ["jobs"]))[0] for seed in range(3)), fault


def test_a_seed_is_one_schedule_and_faults_that_are_put_back_are_seen():
    path = os.pathsep.join([str(ROOT), str(ROOT / "lab")])
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": path}
    argv = [sys.executable, "-c", "import tests.simulation.test_simulation as here; here.play_some()"]
    done = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_what_is_told_of_a_failure_are_the_faults_that_it_needs(monkeypatch):
    faults = tuple(Fault(0, at, "kill") for at in range(4))
    needed = {faults[1], faults[3]}
    wrong = lambda story: "lost" if needed <= set(story.faults) else None  # noqa: E731
    monkeypatch.setattr(__main__, "play", lambda story: (wrong(story), None))
    story = Story(0, "basic", False, (2, 2, ""), faults, "clean")
    assert __main__.shrunk(story) == replace(story, faults=(faults[1], faults[3]), between="")


def test_every_kind_of_release_is_simulated():
    assert {command.flags[0] for command in COMMANDS.values()} == {
        "select",
        "top-k",
        "hitting-set",
        "count",
        "series",
        "pack",
    }
