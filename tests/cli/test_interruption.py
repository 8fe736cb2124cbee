"""Jobs that are stopped or run out of disk: no half output, no private files, and a second run works."""

import glob
import os
import pathlib
import signal
import subprocess
import time

import pytest

from tests.support.commands import select_command, without_progress
from tests.support.disks import fill, small_disk

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
    until = time.monotonic() + 60
    while not glob.glob(f"{temp}/dpbeam-run-*/block-*") and time.monotonic() < until:
        time.sleep(0.02)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err.strip().splitlines()[-1] == "dpbeam select: error: interrupted"
    assert os.listdir(temp) == []
    assert not (tmp_path / "out").exists() or os.listdir(tmp_path / "out") == []
    again = subprocess.run(
        select_command(large_pairs, tmp_path / "out" / "x", temp), cwd=ROOT, capture_output=True, text=True
    )
    assert again.returncode == 0, again.stderr
    assert len(os.listdir(tmp_path / "out")) == 2
    assert os.listdir(temp) == []


@pytest.fixture
def full_soon(tmp_path):
    """A filesystem of 64 kB; needs the right to mount one."""
    with small_disk(tmp_path / "small") as folder:
        yield folder


@pytest.mark.parametrize("place", ["output", "temp"])
def test_full_disk(place, large_pairs, full_soon, tmp_path):
    temp = full_soon if place == "temp" else tmp_path / "temp"
    output = tmp_path / "out" / "x" if place == "temp" else full_soon / "x"
    if place == "output":
        temp.mkdir()
        fill(full_soon)
    done = subprocess.run(select_command(large_pairs, output, temp), cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert without_progress(done.stderr) == (
        "dpbeam select: error: No space left on device; make room, or give another --temp_location or --output\n"
    )
    assert not glob.glob(f"{output}*")
    assert glob.glob(f"{temp}/dpbeam-run-*") == []
