"""A run that is killed between two of its jobs goes on from its checkpoint, on a cluster."""

import glob
import os
import signal
import sys

import pyarrow.parquet as pq
import pytest

from dpbeam.cli import main
from tests.support import resumable_job
from tests.support.instances import popular_table
from tests.support.running import key, release
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow


def test_a_killed_launcher_is_resumed_by_another(engine, tmp_path, monkeypatch):
    on = engine("pyspark-cluster")
    monkeypatch.setenv("PYTHONPATH", os.getcwd())
    argv = [sys.executable, resumable_job.__file__, str(tmp_path)]
    killed = on.run([*argv, "--die"], tmp_path / "log")
    assert killed.code == -signal.SIGKILL, killed.log[-4000:]
    (folder,) = glob.glob(str(tmp_path / "dpbeam-run-*"))
    assert os.path.exists(f"{folder}/checkpoint-{resumable_job.TRIPS_PER_JOB}")
    assert not os.path.exists(tmp_path / "out")
    again = on.run(argv, tmp_path / "again")
    assert again.code == 0, again.log[-4000:]
    uninterrupted = release(resumable_job.program(), resumable_job.PAIRS, key(resumable_job.KEY))
    assert eval((tmp_path / "out").read_text()) == sorted(uninterrupted.items.to_pylist())
    assert glob.glob(str(tmp_path / "dpbeam-run-*")) == []


def test_a_killed_hitting_set_goes_on(engine, tmp_path):
    """The rounds run between blocks and hub in several jobs; the launcher is killed once there is a checkpoint."""
    pairs, kept, out = tmp_path / "pairs.parquet", tmp_path / "kept", tmp_path / "out" / "set"
    pq.write_table(popular_table(500), pairs)
    flags = [f"--input={pairs}", "--user_column=user", "--item_column=item", "--epsilon=2", "--delta=1e-3"]
    flags += ["--selector=basic", "--k=5", "--num_shards=2", "--insecure_test_key=ab", "--quiet"]
    (tmp_path / "temp").mkdir()
    argv = [sys.executable, "-m", "pipelines.hitting_set", *flags, f"--output={out}", f"--checkpoint={kept}"]
    argv += ["--passes_per_job=2", f"--temp_location={tmp_path / 'temp'}"]
    process = engine("flink-cluster").start(argv, tmp_path / "log")
    wait_until(lambda: glob.glob(f"{kept}/*/checkpoint-*"), 180, "a checkpoint")
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, (tmp_path / "log").read_text()[-4000:]
    assert not glob.glob(f"{out}-*.parquet")
    again = engine("flink-cluster").run(argv, tmp_path / "again")
    assert again.code == 0, again.log[-4000:]
    assert main(["hitting-set", *flags, f"--output={tmp_path / 'whole'}"]) == 0
    rankings, expected = (pq.read_table(glob.glob(f"{p}-*.parquet")[0]) for p in (out, tmp_path / "whole"))
    assert rankings.to_pydict() == expected.to_pydict()
    assert os.listdir(kept) == []
