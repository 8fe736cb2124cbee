"""Fixtures of the tests of counts."""

from tests.topk.conftest import tools  # noqa: F401
