"""Basic and DP-SIPS in the tests."""

from __future__ import annotations

from dpbeam.testing.replay import unfloored
from tests.selectors.case import SelectorCase
from tests.selectors.uniform.reference import uniform_rounds
from tests.support.reference import Data, Trace

TOLERANCE = 2e-7  # fixed point loses up to one step of 2^-30 a user


def reference(data: Data, p, power: float = 0.5) -> Trace:
    p, min_users = unfloored(p)
    return uniform_rounds(
        data,
        power=power,
        noises=p.noises(),
        thresholds=p.thresholds,
        cap=p.cap,
        max_items=p.max_items,
        resample=p.resample,
        min_users=min_users,
    )


_SIPS = {"dp-sips": {"resample": False}, "dp-sips resampled": {}, "dp-sips of 3 users": {"min_users": 3}}
CASES = [
    SelectorCase(
        "basic", reference, TOLERANCE, {"basic": {}, "basic of 3 users": {"min_users": 3}}, tight=("basic",)
    ),
    SelectorCase("dp-sips", reference, TOLERANCE, _SIPS, tight=("dp-sips one sample",)),
]
