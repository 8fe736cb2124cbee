"""Ledgers under test were made by another revision, unless a test says otherwise."""

import pytest

from dpbeam.review import verification


@pytest.fixture(autouse=True)
def revision(monkeypatch) -> str:
    """The revision that verifies."""
    revision = "c0ffee"
    monkeypatch.setattr(verification, "code_revision", lambda: revision)
    return revision
