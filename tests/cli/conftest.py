"""Fixtures of the command line's tests."""

import os

import pytest


@pytest.fixture
def own_temp(tmp_path, monkeypatch):
    """Run folders go below the test's own folder, so that leftovers are seen."""
    temp = tmp_path / "temp"
    temp.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temp))
    yield
    assert os.listdir(temp) == []
