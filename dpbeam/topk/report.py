"""What a calibrated top-k plan means: noise, composition, and the errors to expect at example counts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpbeam.randomness import RunKey
from dpbeam.topk.config import TopKPlan
from dpbeam.topk.measures import topk_errors
from dpbeam.topk.mechanisms import LimitedDomain

#: Counts of the most popular item in the examples; the item of rank r then has 1/r of it, as words and pages do.
TOP_COUNTS = (1_000, 10_000, 100_000, 1_000_000)
_DRAWS = 30
_MOST_SIMULATED = 1_000


def choice_report(plan: TopKPlan) -> dict[str, Any]:
    """Noise and expected errors of a plan, beside its settings, as JSON values; needs no data.

    `distance_needed`, of limited-domain alone: users that the k-th count must be above the (kbar+1)-th, or above 0 with
    kbar = 0, for an answer of k items in 99 of 100 runs.
    """
    mechanism, distance = plan.mechanism, {}
    if isinstance(mechanism, LimitedDomain):
        distance = {"distance_needed": math.ceil(mechanism.distance())}
    return {
        **distance,
        "noisy_count_noise": None if plan.counts is None else plan.counts.noise,
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
