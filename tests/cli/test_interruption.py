"""Jobs that are stopped or run out of disk: no half output, no private files, and a second run works."""

import glob
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile

import apache_beam as beam
import pyarrow.parquet as pq
import pytest

from dpbeam.cli import main
from dpbeam.jobs import running
from tests.support.commands import select_command, select_flags, small_pairs, without_progress
from tests.support.disks import fill, small_disk
from tests.support.instances import power_law_table
from tests.support.kill_at import in_child
from tests.support.waiting import wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def large_pairs(tmp_path_factory) -> str:
    """A glob of 1.5 million pairs, each four times: a run long enough to be stopped."""
    folder = tmp_path_factory.mktemp("pairs")
    pq.write_table(power_law_table(100_000, 50_000, 375_000, 0), folder / "p-0.parquet")
    for shard in range(1, 4):
        os.link(folder / "p-0.parquet", folder / f"p-{shard}.parquet")
    return str(folder / "p-*.parquet")


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
        f"dpbeam select: error: No space left on device, in '{full_soon}'; make room, or give another "
        "--temp_location or --output\n"
    )
    assert not glob.glob(f"{output}*")
    assert glob.glob(f"{temp}/dpbeam-run-*") == []


@pytest.mark.parametrize("place", ["output", "messages"])
def test_files_that_may_not_grow(place, tmp_path, monkeypatch, capfd):
    """Under `ulimit -f`: of 4 kB, which the ledger passes, or of 8 kB, which messages do."""
    temp, limit = tmp_path / "temp", 4096 if place == "output" else 8192
    temp.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temp))
    flags = select_flags(small_pairs(tmp_path, users=3_000), tmp_path / "out" / "x", temp)
    flags += ["--quiet", "--method=gsu", *(["--num_shards=3"] if place == "messages" else [])]

    def limited() -> int:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        return main(["select", *flags])

    assert in_child(limited) == 2
    where = temp if place == "messages" else tmp_path / "out"
    assert capfd.readouterr() == (
        "",
        f"dpbeam select: error: File too large, in '{where}'; raise the limit on the size of a file (ulimit -f)\n",
    )
    assert os.listdir(temp) == [] and os.listdir(tmp_path / "out") == []


class TestBeamsFolder:
    """Beam makes a temporary folder for each pipeline, and removes it at the end of a run."""

    @pytest.fixture
    def temp(self, tmp_path, monkeypatch):
        (tmp_path / "temp").mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temp"))
        return tmp_path / "temp"

    def run(self, tmp_path, temp) -> int:
        return main(["select", *select_flags(small_pairs(tmp_path), tmp_path / "out", temp), "--quiet"])

    def test_goes_where_a_pipeline_does_not_come_to_run(self, temp, tmp_path, monkeypatch, capsys):
        monkeypatch.setattr(running, "run_and_wait", lambda *_: 1 / 0)
        assert self.run(tmp_path, temp) == 1
        assert os.listdir(temp) == []

    def test_goes_where_a_signal_comes_when_it_is_made(self, temp, tmp_path, monkeypatch, capsys):
        class Stopped(beam.Pipeline):
            def __init__(self, **options):
                monkeypatch.setattr(tempfile, "mkdtemp", self.made)
                super().__init__(**options)

            def made(self, **options):
                monkeypatch.undo()
                folder = tempfile.mkdtemp(dir=temp, **options)
                os.kill(os.getpid(), signal.SIGTERM)
                return folder

        monkeypatch.setattr(beam, "Pipeline", Stopped)
        assert self.run(tmp_path, temp) == 1
        assert capsys.readouterr().err == "dpbeam select: error: interrupted\n"
        assert os.listdir(temp) == []
