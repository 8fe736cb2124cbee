"""Fixtures of the tests of the lab's commands."""

import pytest

from tests.cli.conftest import own_temp, pairs  # noqa: F401


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty folder, in which the commands run."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
