"""A run that is killed between two of its jobs goes on from its checkpoint, on a cluster."""

import glob
import os
import signal
import sys

import pyarrow.parquet as pq
import pytest

from dpbeam.cli import main
from tests.support.instances import popular_table
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow


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
