"""Fixtures of the tests of selections."""

from tests.cli.conftest import beams_runner, quick_commands  # noqa: F401
