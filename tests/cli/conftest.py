"""Fixtures of the command line's tests."""

import os

import pyarrow.parquet as pq
import pytest
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner

from tests.support import quick_runner
from tests.support.instances import popular_table
from tests.support.plans import PLANS


@pytest.fixture
def beams_runner():
    """A test that asks for it runs commands on Beam's in-process runner, as they are."""


@pytest.fixture(autouse=True)
def quick_commands(request, monkeypatch):
    """Commands calibrate each plan once, and run pipelines on the simulator's runner: a third of the CPU of Beam's."""
    for family, plan in PLANS.items():
        monkeypatch.setattr(family, "plan", plan)
    if "beams_runner" not in request.fixturenames:
        monkeypatch.setattr(FnApiRunner, "run_pipeline", lambda _, pipeline, __: quick_runner.run(pipeline))


@pytest.fixture
def own_temp(tmp_path, monkeypatch):
    """Run folders go below the test's own folder, so that leftovers are seen."""
    temp = tmp_path / "temp"
    temp.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temp))
    yield
    assert os.listdir(temp) == []


@pytest.fixture
def pairs(tmp_path) -> str:
    """A file of the pairs of 300 users, in columns `user` and `item`."""
    pq.write_table(popular_table(300), tmp_path / "pairs.parquet")
    return str(tmp_path / "pairs.parquet")
