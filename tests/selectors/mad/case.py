"""MAD and MAD2R in the tests."""

from __future__ import annotations

from dpbeam.testing.replay import unfloored
from tests.selectors.case import SelectorCase
from tests.selectors.mad import reference
from tests.support.reference import Data, Trace

# Fixed point loses up to one step of 2^-30 a user; the rerouting coefficients of MAD are rounded down to 2^-24,
# a relative loss of at most 2^-24 d d_max / alpha of a weight that stays below the number of users.
TOLERANCE = 4e-4
_MAD = {"max_adaptive_degree": 6, "adaptive_excess": 0.1}
# Users of two items are adaptive in the second round too; the first round finds few, the second has heavy items.
_BIAS = {**_MAD, "min_bias": 0.75, "lower_confidence": 0.5, "budget_split": (0.03, 0.97)}


def mad(data: Data, p) -> Trace:
    p, min_users = unfloored(p)
    return reference.mad(
        data,
        sigma=p.round.sigma,
        rho=p.round.threshold,
        tau=p.round.tables.tau_units / 2**30,
        d_max=p.round.tables.max_degree,
        cap=p.cap,
        min_users=min_users,
    )


def mad2r(data: Data, p) -> Trace:
    p, min_users = unfloored(p)
    rounds = (p.first, p.second)
    return reference.mad2r(
        data,
        sigmas=[r.sigma for r in rounds],
        rhos=[r.threshold for r in rounds],
        taus=[r.tables.tau_units / 2**30 for r in rounds],
        d_max=p.first.tables.max_degree,
        cap=p.cap,
        max_items=p.max_items,
        resample=p.resample,
        b_min=p.b_min,
        b_max=p.b_max,
        c_lb=p.lower_confidence,
        c_ub=p.upper_confidence,
        min_users=min_users,
    )


CASES = [
    SelectorCase(
        "mad", mad, TOLERANCE, {"mad": _MAD, "mad of 2 users": {**_MAD, "min_users": 2}}, tight=("mad",)
    ),
    SelectorCase(
        "mad2r",
        mad2r,
        TOLERANCE,
        {
            "mad2r": {**_BIAS, "resample": False},
            "mad2r resampled": _BIAS,
            "mad2r of 2 users": {**_BIAS, "min_users": 2},
        },
        tight=(),
        epsilon=12.0,  # at which items are heavy in its second round too
    ),
]
