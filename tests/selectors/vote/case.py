"""vote in the tests."""

from __future__ import annotations

from tests.selectors.case import SelectorCase
from tests.selectors.vote.reference import vote

CASES = [
    SelectorCase(
        "vote",
        vote,
        1e-9,  # votes are integers
        {
            "vote": {},
            "vote of two trips": {"vote_trips": 2},
            "vote quota 2": {"vote_quota": 2, "vote_trips": 7},
            "vote of 3 users": {"min_users": 3},
        },
        tight=(),  # it spends delta to the last unit: half of all estimates lie above; see test_audit.py
        grid_sigma=lambda program: 1024.0,  # counts
    )
]
