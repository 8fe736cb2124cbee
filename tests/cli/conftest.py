"""Fixtures of the command line's tests."""

import os

import pyarrow.parquet as pq
import pytest

from tests.support.instances import popular_table


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
