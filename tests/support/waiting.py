"""Waiting for something that another process does."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pytest

#: So many times the seconds of a test are waited (scripts/test).
PATIENCE = int(os.environ.get("PATIENCE", "1"))


def wait_until(condition: Callable[[], object], seconds: float, what: str):
    """The first true value of `condition`; fails the test after `seconds`, times PATIENCE."""
    seconds *= PATIENCE
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    pytest.fail(f"{what}: not within {seconds} s")
