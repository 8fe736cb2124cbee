"""The neighbouring inputs on which the audit runs a plan."""

from __future__ import annotations

import math

from dpbeam.selection.plan import SelectionPlan
from dpbeam_lab.audit.methods import study
from dpbeam_lab.audit.neighbours import Neighbours, all_novel, d0_of


def worst_cases(plan: SelectionPlan) -> tuple[Neighbours, ...]:
    """Hard neighbouring inputs for a plan; D0 and thresholds small, or the inputs get large.

    All-novel users, a half-novel one, a user that tips items at the threshold from below and above, a heavy user
    beyond D0; one that lifts D0 items over a floor on users; and those that are hard for its method.
    """
    d0 = d0_of(plan)
    cases = [all_novel(t) for t in sorted({1, math.ceil(d0 / 2), d0})]
    cases.append(_half_novel(d0))
    cases += _tipping(plan)
    cases.append(_heavy(d0))
    if plan.config.min_users is not None:
        cases.append(_at_the_floor(d0, plan.config.min_users))
    return (*cases, *study(plan.selector.name).hard_cases(plan))


def _half_novel(d0: int) -> Neighbours:
    known = max(1, d0 // 2)
    others = tuple((i,) for i in range(known) for _ in range(2))
    return Neighbours("half novel", others, tuple(range(max(d0, 2))))


def _tipping(plan: SelectionPlan) -> list[Neighbours]:
    """Items at the weights where the newcomer's unit moves the odds of release by e^eps, and both at once."""
    last = plan.rounds[-1]
    spread = plan.config.epsilon * last.statistic_sigma**2
    low, high = (
        max(1, round((last.threshold + side * spread) / last.weight_factor + last.floor - 0.5))
        for side in (-1, 1)
    )
    d0 = d0_of(plan)
    return [
        Neighbours("tips one item from below", ((0,),) * low, (0,)),
        Neighbours("tips one item from above", ((0,),) * high, (0,)),
        Neighbours("tips D0 items", tuple((i,) for i in range(d0) for _ in range(low)), tuple(range(d0))),
    ]


def _at_the_floor(d0: int, min_users: int) -> Neighbours:
    """D0 items of as many users as may not be released, each of which gives all it has; the newcomer makes one more."""
    others = tuple((i,) for i in range(d0) for _ in range(min_users - 1))
    return Neighbours("lifts D0 items over the floor", others, tuple(range(d0)))


def _heavy(d0: int) -> Neighbours:
    """A newcomer with three times D0 items, half of them its own, among users that hold two known items each."""
    known = max(2, 3 * d0 // 2)
    others = tuple((i, (i + 1) % known) for i in range(known))
    return Neighbours("heavy user beyond D0", others, tuple(range(3 * d0)))
