"""Fixtures of the tests of calls in memory."""

import pytest


@pytest.fixture(autouse=True)
def quick(quick_commands):
    """The commands with which they are compared."""
