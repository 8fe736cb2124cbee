"""A run that is killed between two of its jobs goes on from its checkpoint, on a cluster."""

import glob
import os
import signal
import sys

import pytest

from tests.engine.beam.test_hub import resumed_result
from tests.support import resumable_job

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["flink-cluster"])
def test_a_killed_launcher_is_resumed_by_another(name, engine, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.getcwd())
    argv = [sys.executable, resumable_job.__file__, str(tmp_path)]
    killed = engine(name).run([*argv, "--die"], tmp_path / "log")
    assert killed.code == -signal.SIGKILL, killed.log[-4000:]
    (folder,) = glob.glob(str(tmp_path / "dpbeam-run-*"))
    assert os.path.exists(f"{folder}/checkpoint-{resumable_job.TRIPS_PER_JOB}")
    assert not os.path.exists(tmp_path / "out")
    again = engine(name).run(argv, tmp_path / "again")
    assert again.code == 0, again.log[-4000:]
    assert eval((tmp_path / "out").read_text()) == resumed_result()
    assert glob.glob(str(tmp_path / "dpbeam-run-*")) == []
