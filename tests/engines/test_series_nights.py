"""Nights of a series on engines: the same bytes as in one process, also mixed, killed, and on a store."""

import glob
import os
import pathlib
import signal
import sys

import pytest

from dpbeam.cli import main
from tests.engines.test_stores_series import expected, inputs, night, opening, output  # noqa: F401
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow
#: Those on which a launcher is killed are below.
ENGINES = ("spark-cluster-kept", "flink-embedded", "prism", "direct-2")


def command(place: str, number: int, folder: pathlib.Path) -> list[str]:
    """The night of that number with three shards, from wherever it is started; the engine's flags follow."""
    more = ("--num_shards=3", "--runner=FnApiRunner")
    argv = [word.replace("=n", f"={folder}/n") for word in night(place, number, *more)]
    return [sys.executable, "-m", "dpbeam.cli", *argv]


@pytest.mark.parametrize("name", ENGINES)
def test_the_same_bytes_on_every_engine(name, engine, inputs, expected, tmp_path, monkeypatch):  # noqa: F811
    """The second night, between two of one process: it reads the state of one, and leaves one to the other."""
    monkeypatch.chdir(inputs)
    here = str(tmp_path)
    assert main(opening(here)) == 0
    assert main(night(here, 1)) == 0
    run = engine(name).run(command(here, 2, inputs), tmp_path / "log")
    assert run.code == 0, run.log[-4000:]
    assert main(night(here, 3)) == 0
    assert output(here) == expected


@pytest.mark.parametrize("name", ["flink-cluster", "pyspark-local"])
def test_a_night_whose_launcher_was_killed_is_made_by_the_next(
    name,
    engine,
    inputs,  # noqa: F811
    expected,  # noqa: F811
    tmp_path,
    monkeypatch,
):
    monkeypatch.chdir(inputs)
    here, on = str(tmp_path), engine(name)
    assert main(opening(here)) == 0
    assert main(night(here, 1)) == 0
    running = on.start(command(here, 2, inputs), tmp_path / "killed")
    wait_until(
        lambda: running.poll() is not None or glob.glob(f"{here}/f/part-*"), 300, "a part of the night"
    )
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    for number in (2, 3):
        run = on.run(command(here, number, inputs), tmp_path / "log")
        assert run.code == 0, run.log[-4000:]
    assert output(here) == expected
    assert not any(name.startswith("work-") for name in os.listdir(f"{here}/f"))
