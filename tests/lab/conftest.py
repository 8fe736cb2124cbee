"""Fixtures of the tests of the lab."""

from tests.io.conftest import read  # noqa: F401
