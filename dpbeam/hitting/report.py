"""The ledger of a hitting-set job, and what its plan means."""

from __future__ import annotations

import math
from typing import Any

from dpbeam.accounting.ledger import Ledger, key_source
from dpbeam.accounting.versions import code_revision, versions
from dpbeam.hitting.config import HARD_COUNT, HittingSetPlan, spread
from dpbeam.selection.report import plan_report

METHOD = "hitting-set"
#: Items of the domain in the examples of `lost_users`.
DOMAIN_SIZES = (100, 1_000, 10_000)


def hitting_set_ledger(
    plan: HittingSetPlan,
    *,
    input_parameters: dict[str, Any] | None,
    fixed_key: bool,
    privacy_unit: str,
) -> Ledger:
    """What a run of `plan` costs and how; arguments as of `selection_ledger`."""
    config, selection = plan.config, plan.selection
    return Ledger(
        method=METHOD,
        epsilon=config.epsilon,
        delta=config.delta,
        accounting=plan.composition,
        events=plan.event,
        privacy_unit=privacy_unit,
        parameters={
            "k": config.k,
            "choice_range": plan.ranges,
            "rate": plan.rate,
            "selector_share": config.selector_share,
            "public_domain": config.public_domain,
            "selection": None if selection is None else selection.config.public_parameters(),
            "selector": None if selection is None else selection.config.method,
            "input": input_parameters,
        },
        key_source=key_source(fixed=fixed_key),
        versions=versions(),
        code_revision=code_revision(),
    )


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
