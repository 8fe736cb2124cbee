"""Weighted Laplace in the tests."""

from __future__ import annotations

from functools import partial

from tests.selectors.case import SelectorCase
from tests.selectors.uniform.case import TOLERANCE, reference

CASES = [
    SelectorCase(
        "laplace",
        partial(reference, power=1.0),
        TOLERANCE,
        {"laplace": {}, "laplace of 2 users": {"min_users": 2}},
        tight=("laplace",),
    ),
]
