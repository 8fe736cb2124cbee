"""The ledger of a hitting-set job, and what its plan means."""

from __future__ import annotations

import math
from typing import Any

from dpbeam.accounting.ledger import Ledger, run_ledger
from dpbeam.hitting.config import FIRST_HIT, HARD_COUNT, HittingSetPlan, spread
from dpbeam.selection.ledger import selection_parameters, unreviewed_of
from dpbeam.selection.report import plan_report

METHOD = "hitting-set"
#: Items of the domain in the examples of `lost_users`.
DOMAIN_SIZES = (100, 1_000, 10_000)


def hitting_set_ledger(plan: HittingSetPlan, **run: Any) -> Ledger:
    """What a run of `plan` costs and how; `run`: as of `run_ledger`."""
    parameters = {
        "k": plan.config.k,
        "choice_range": plan.ranges,
        "rate": plan.rate,
        "selector_share": plan.config.selector_share,
        "public_domain": plan.config.public_domain,
        **selection_parameters(plan.selection),
    }
    first_hit = ["the composition first-hit"] if plan.composition == FIRST_HIT else []
    unreviewed = [*unreviewed_of(plan.selection), *first_hit]
    return run_ledger(METHOD, plan, plan.composition, parameters, unreviewed=unreviewed, **run)


def hitting_set_report(plan: HittingSetPlan) -> dict[str, Any]:
    """Settings, budget and noise of a plan, as JSON values; needs no data."""
    config = plan.config
    return {
        "job": METHOD,
        "k": config.k,
        "epsilon": config.epsilon,
        "delta": config.delta,
        "composition": plan.composition,
        "choice_range": plan.ranges,
        "rate": plan.rate,
        "public_domain": config.public_domain,
        "selector_share": config.selector_share,
        "selection": None if plan.selection is None else plan_report(plan.selection),
        "hard_count": HARD_COUNT,
        "deviation": math.sqrt(spread(plan.epsilon0, plan.rate)),
        "lost_users": [
            {"domain": d, "users": lost_users(plan.epsilon0, d) / plan.rate} for d in DOMAIN_SIZES
        ],
    }


def lost_users(epsilon0: float, domain: int) -> float:
    """How many users a choice hits fewer than the best one, at most on average.

    The largest of d counts plus Gumbel(1/epsilon0) noise is behind the largest count by ln(d)/epsilon0 in the mean
    at most: E[max(c + Z)] >= max c + E[Z], and E[c chosen] >= E[max(c + Z)] - E[max Z] with E[max Z] = E[Z] +
    ln(d)/epsilon0.
    """
    return math.log(domain) / epsilon0
