"""Jobs that are stopped or run out of disk: no half output, no private files, and a second run works."""

import glob
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from dpbeam.io.synth import write_synthetic
from tests.support.disks import fill, small_disk
from tests.support.messages import without_progress

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("pairs")
    write_synthetic(str(folder / "p"), users=100_000, items=50_000, mean_items_per_user=15, shards=4)
    return str(folder / "p-*.parquet")


def command(pairs: str, output, temp) -> list[str]:
    return [
        *(sys.executable, "-m", "pipelines.select_items", "--input", pairs, "--epsilon=1", "--delta=1e-6"),
        *("--user_column=user", "--item_column=item", f"--output={output}", f"--temp_location={temp}"),
    ]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_stopped_and_run_again(number, pairs, tmp_path):
    temp = tmp_path / "temp"
    temp.mkdir()
    process = subprocess.Popen(
        command(pairs, tmp_path / "out" / "x", temp), cwd=ROOT, stderr=subprocess.PIPE, text=True
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
        command(pairs, tmp_path / "out" / "x", temp), cwd=ROOT, capture_output=True, text=True
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
def test_full_disk(place, pairs, full_soon, tmp_path):
    temp = full_soon if place == "temp" else tmp_path / "temp"
    output = tmp_path / "out" / "x" if place == "temp" else full_soon / "x"
    if place == "output":
        temp.mkdir()
        fill(full_soon)
    done = subprocess.run(command(pairs, output, temp), cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert without_progress(done.stderr) == (
        "dpbeam select: error: No space left on device; make room, or give another --temp_location or --output\n"
    )
    assert not glob.glob(f"{output}*")
    assert glob.glob(f"{temp}/dpbeam-run-*") == []
