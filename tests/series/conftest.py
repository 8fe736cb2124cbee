"""Fixtures of the tests of series."""

from tests.cli.conftest import beams_runner, quick_commands  # noqa: F401
