"""bits in the tests."""

from __future__ import annotations

from tests.selectors.bits.reference import bits
from tests.selectors.case import SelectorCase

CASES = [
    SelectorCase(
        "bits",
        bits,
        1e-9,  # bits
        {
            "bits": {},
            "bits one round": {"budget_split": (1.0,)},
            "bits two full items": {"bits_full_items": 2},
            "bits of 3 users": {"min_users": 3},
            "bits sizes of rounds": {"budget_split": (0.2, 0.3, 0.5), "round_items": (3, 8, 4)},
        },
        tight=(),  # the accountant's bound is a few times what the worst level reaches; lab/docs/explanation/limits.md
        grid_sigma=lambda program: 1024.0,  # bits
    )
]
