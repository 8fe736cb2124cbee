"""Fixtures of the tests of counts."""

from tests.cli.conftest import beams_runner, quick_commands  # noqa: F401
from tests.topk.conftest import tools  # noqa: F401
