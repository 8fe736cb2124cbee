"""Fixtures of the tests of kinds of release."""

from tests.cli.conftest import beams_runner, quick_commands  # noqa: F401
