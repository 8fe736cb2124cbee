"""Jobs that are stopped or run out of disk: no half output, no private files, and a second run works."""

import glob
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from dpbeam.cli import main
from tests.support.commands import select_command, select_flags, small_pairs, without_progress
from tests.support.disks import fill, small_disk
from tests.support.waiting import wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, *(pytest.param(n, marks=pytest.mark.engines) for n in (signal.SIGTERM, signal.SIGHUP))],
)
def test_stopped_and_run_again(number, large_pairs, tmp_path):
    temp = tmp_path / "temp"
    temp.mkdir()
    process = subprocess.Popen(
        select_command(large_pairs, tmp_path / "out" / "x", temp), cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    wait_until(lambda: glob.glob(f"{temp}/dpbeam-run-*/key"), 60, "the run's folder")  # nothing is read yet
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err.strip().splitlines()[-1] == "dpbeam select: error: interrupted"
    assert os.listdir(temp) == []
    assert not (tmp_path / "out").exists() or os.listdir(tmp_path / "out") == []
    assert main(["select", *select_flags(small_pairs(tmp_path), tmp_path / "out" / "x", temp)]) == 0
    assert len(os.listdir(tmp_path / "out")) == 2
    assert os.listdir(temp) == []


def test_an_interrupt_in_a_text_that_is_run_ends_with_the_exit_code(tmp_path):
    """Python itself would end `python -m` by SIGINT."""
    text = "raise KeyboardInterrupt"
    (tmp_path / "stopped.py").write_text(
        f"from dpbeam.jobs.console import run_command\nraise SystemExit(run_command('x', lambda: exec('{text}')))\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "stopped"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{tmp_path}"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (1, "dpbeam x: error: interrupted\n")


@pytest.fixture
def full_soon(tmp_path):
    """A filesystem of 64 kB; needs the right to mount one."""
    with small_disk(tmp_path / "small") as folder:
        yield folder


@pytest.mark.parametrize("place", ["output", "temp"])
def test_full_disk(place, full_soon, tmp_path, capsys):
    temp = full_soon if place == "temp" else tmp_path / "temp"
    output = tmp_path / "out" / "x" if place == "temp" else full_soon / "x"
    if place == "output":
        temp.mkdir()
        fill(full_soon)
    flags = select_flags(small_pairs(tmp_path, users=3_000), output, temp)
    flags += ["--num_shards=2"]  # whose messages lie in files
    assert main(["select", *flags]) == 1
    assert without_progress(capsys.readouterr().err) == (
        "dpbeam select: error: No space left on device; make room, or give another --temp_location or --output\n"
    )
    assert not glob.glob(f"{output}*")
    assert glob.glob(f"{temp}/dpbeam-run-*") == []
