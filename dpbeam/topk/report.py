"""What a calibrated top-k plan means: noise, composition, and the errors to expect at example counts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpbeam.accounting.ledger import Ledger, run_ledger
from dpbeam.randomness import RunKey
from dpbeam.selection.ledger import selection_parameters, unreviewed_of
from dpbeam.selection.report import plan_report
from dpbeam.topk.config import TopKPlan
from dpbeam.topk.measures import topk_errors
from dpbeam.topk.mechanisms import LimitedDomain

#: Counts of the most popular item in the examples; the item of rank r then has 1/r of it, as words and pages do.
TOP_COUNTS = (1_000, 10_000, 100_000, 1_000_000)
_DRAWS = 30
_MOST_SIMULATED = 1_000


def topk_ledger(plan: TopKPlan, **run: Any) -> Ledger:
    """What a run of `plan` costs and how; `run`: as of `run_ledger`."""
    config, selection = plan.config, plan.selection
    bound = {} if config.max_items_per_user is None else {"max_items_per_user": config.max_items_per_user}
    parameters = {
        "k": config.k,
        "mechanism": config.mechanism,
        "choice_budget": plan.choice_budgets,
        "selector_share": config.selector_share,
        "noisy_count_share": config.noisy_count_share,
        "noisy_count_deviation": None if plan.counts is None else plan.counts.deviation,
        "kbar": config.kbar,
        **bound,
        "public_domain": config.public_domain,
        **selection_parameters(selection),
    }
    unreviewed = [*unreviewed_of(selection), *([config.mechanism] if plan.ranks_users else [])]
    return run_ledger("top-k", plan, plan.composition, parameters, unreviewed=unreviewed, **run)


def topk_report(plan: TopKPlan) -> dict[str, Any]:
    """Settings, budget, noise and expected errors of a plan, as JSON values; needs no data.

    `distance_needed`, of limited-domain alone: users that the k-th count must be above the (kbar+1)-th, or above 0 with
    kbar = 0, for an answer of k items in 99 of 100 runs.
    """
    config = plan.config
    mechanism, distance = plan.mechanism, {}
    if isinstance(mechanism, LimitedDomain):
        distance = {"distance_needed": math.ceil(mechanism.distance())}
    return {
        "job": "top-k",
        "k": config.k,
        "epsilon": config.epsilon,
        "delta": config.delta,
        "mechanism": config.mechanism,
        "composition": plan.composition,
        "choice_budget": plan.choice_budgets,
        "public_domain": config.public_domain,
        **distance,
        "selector_share": config.selector_share,
        "selection": None if plan.selection is None else plan_report(plan.selection),
        "noisy_count_noise": None if plan.counts is None else plan.counts.noise,
        "noisy_count_deviation": None if plan.counts is None else plan.counts.deviation,
        "expected_errors": expected_errors(plan),
    }


def expected_errors(plan: TopKPlan) -> list[dict[str, Any]]:
    """Mean errors of the choice on examples, by simulation with fixed keys; empty for k above 1,000.

    Each row: `top_count` of the example; `found`, the share of the k most frequent items that are chosen; `rank_error`,
    the mean distance of a chosen item's true rank from its rank in the answer; `count_error`, the mean over the draws
    of the largest difference between the true count at a rank and that of the item chosen for it.
    """
    k = plan.config.k
    if k > _MOST_SIMULATED:
        return []
    ranks = np.arange(1, max(1_000, 5 * k) + 1)
    fp = np.stack([ranks, ranks], axis=1).astype(np.uint64)
    return [_errors(plan, top, np.maximum(1, top // ranks), fp) for top in TOP_COUNTS]


def _errors(plan: TopKPlan, top: int, counts: np.ndarray, fp: np.ndarray) -> dict[str, Any]:
    k = plan.config.k
    share, rank_error, count_error = [], [], []
    for draw in range(_DRAWS):
        answer = plan.mechanism.select(counts, fp, RunKey.insecure_fixed(f"{draw:04x}"))
        share.append(np.count_nonzero(answer < k) / k)
        rank_error.append(np.abs(answer - np.arange(len(answer))).mean() if len(answer) else float(k))
        count_error.append(topk_errors(counts, answer, k).linf)
    return {
        "top_count": top,
        "found": float(np.mean(share)),
        "rank_error": float(np.mean(rank_error)),
        "count_error": float(np.mean(count_error)),
    }
