"""gsu in the tests."""

from __future__ import annotations

from dpbeam.testing.replay import unfloored
from tests.selectors.case import SelectorCase
from tests.selectors.gsu.reference import gsu
from tests.support.reference import Data, Trace


def reference(data: Data, p) -> Trace:
    p, min_users = unfloored(p)
    return gsu(
        data,
        sigma=p.sigma,
        f=p.fractions,
        a=p.coefficients,
        G=p.drifts,
        V=p.variances,
        thresholds=p.thresholds,
        caps=p.caps,
        cap=p.cap,
        constants=p.score,
        min_users=min_users,
    )


CASES = [
    SelectorCase(
        "gsu",
        reference,
        2e-4,
        {
            "gsu2": {"rounds": 2},
            "gsu4": {"rounds": 4},
            "gsu4 no score": {"rounds": 4, "gsu_score": False},
            "gsu2 of 3 users": {"rounds": 2, "min_users": 3},
        },
        tight=("gsu2", "gsu8"),
        statistic="z",
        grid_sigma=lambda program: unfloored(program)[0].sigma,
    )
]
