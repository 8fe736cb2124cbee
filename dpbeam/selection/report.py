"""What a calibrated plan means for an item: how many users it takes, next to what no algorithm can do."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dpbeam.accounting.limits import users_needed_limit
from dpbeam.accounting.search import users_for
from dpbeam.selection.ledger import OTHERS_DEVIATION
from dpbeam.selection.plan import SelectionPlan
from dpbeam.selectors.base import filled_in

PROBABILITIES = (0.05, 0.5, 0.95)


def plan_report(plan: SelectionPlan, degrees: Sequence[int] | None = None) -> dict[str, Any]:
    """Rounds, thresholds and users needed, as JSON values.

    Args:
      degrees: numbers of items per user to tabulate, at most D0; default 1, 10 and D0.
    """
    config = plan.config
    d0 = filled_in(config.max_items_per_user)
    degrees = sorted({d for d in (degrees or (1, min(10, d0), d0)) if 1 <= d <= d0})
    needed = []
    for degree in degrees:
        row: dict[str, Any] = {"items_per_user": degree, "weight": plan.weight(degree)}
        for probability in PROBABILITIES:
            keep = functools.partial(plan.keep_probability, degree=degree)
            row[f"users_{probability:g}"] = users_for(probability, keep)
        needed.append(row)
    limit = {f"users_{p:g}": int(users_needed_limit(p, config.epsilon, config.delta)) for p in PROBABILITIES}
    return {
        "method": config.method,
        "epsilon": config.epsilon,
        "delta": config.delta,
        "parameters": config.stated(),
        "rounds": [_round(plan, index) for index in range(len(plan.rounds))],
        "users_needed": needed,
        "limit_of_any_algorithm": limit,
        **({} if config.min_users is None else {"floor": _floor(plan, needed)}),
        **({} if plan.others_deviation is None else {OTHERS_DEVIATION: plan.others_deviation}),
    }


def even_chance(report: Mapping[str, Any]) -> str:
    """How many users an item needs, by how many items each of them has, from `plan_report`; empty where it has none."""
    needed = [
        ("never released" if row["users_0.5"] is None else row["users_0.5"], row["items_per_user"])
        for row in report["users_needed"]
    ]
    if not needed:
        return ""
    (users, items), *several = needed
    more = [f", {users} with {items}" for users, items in several]
    return f"users for an even chance of release: {users} with {items} item{'s' * (items > 1)} each{''.join(more)}"


def _round(plan: SelectionPlan, index: int) -> dict[str, Any]:
    row = plan.rounds[index]
    tested = math.isfinite(row.threshold)
    return {
        "round": row.number,
        "noise": row.noise.kind,
        "sigma": row.sigma,
        "threshold": row.threshold if tested else None,
        "statistic_sigma": row.statistic_sigma,
        "delta_threshold": row.delta_threshold,
    }


def _floor(plan: SelectionPlan, needed: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What a floor on users takes off, and how many more users an even chance takes for it."""
    rounds = plan.rounds
    bare = replace(plan.calibration, rounds=tuple(replace(row, floor=0.0) for row in rounds))
    more = []
    for row in needed:
        degree, users = row["items_per_user"], row["users_0.5"]
        without = users_for(0.5, functools.partial(plan.selector.keep_probability, bare, degree=degree))
        unknown = users is None or without is None
        more.append({"items_per_user": degree, "users": None if unknown else users - without})
    return {
        "min_users": plan.config.min_users,
        "weight": max(row.floor for row in rounds),
        "more_users_0.5": more,
    }
