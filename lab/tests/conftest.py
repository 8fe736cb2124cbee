"""Fixtures of the tests of the lab."""

from tests.hitting.conftest import tools  # noqa: F401
from tests.io.conftest import read  # noqa: F401
