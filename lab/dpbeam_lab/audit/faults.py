"""Planted faults: builds of the selectors with one mistake each, which the audit must refute.

Those here fit every selector of the registry; those of one method are in `dpbeam_lab.audit.methods`. None is a switch
of the product: each is other keys, a copy of a program, or another idea of who a user is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from dpbeam.accounting.noise import L1, LINF, NOISE_KINDS, NoiseSpec
from dpbeam.engine.program import Keys
from dpbeam.kernels.grid import UNITS
from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.plan import SelectionPlan, make_plan
from dpbeam.selectors.registry import selectors
from dpbeam_lab.audit.audit import Subject
from dpbeam_lab.audit.methods import study
from dpbeam_lab.audit.neighbours import Neighbours, all_novel
from dpbeam_lab.audit.planted import PlantedFault

EPSILON, DELTA, MAX_ITEMS = 1.0, 0.05, 8


def quiet(factor: float) -> type[Keys]:
    """Keys whose noise has this share of its scale; where the law has steps, a whole step less or more at least."""

    class Quiet(Keys):
        def noise(self, spec: Any, fp: np.ndarray, place: str = "noise", **below: Any) -> np.ndarray:
            step = UNITS // getattr(spec, "grid", UNITS)
            drawn = super().noise(spec, fp, place, **below)
            steps = np.abs(factor * (drawn / step))
            steps = np.floor(steps) if factor < 1 else np.ceil(steps)
            return (np.sign(drawn) * steps).astype(np.int64) * step

    return Quiet


QuietKeys = quiet(0.8)


class OneLabelKeys(Keys):
    """The noise's label lacks the round: every round draws the same variates."""

    def noise(self, spec: Any, fp: np.ndarray, place: str = "noise", **below: Any) -> np.ndarray:
        return super().noise(replace(spec, round=1), fp, place, **below)


class OtherKindKeys(Keys):
    """Noise of another kind than stated, of the same standard deviation."""

    def noise(self, spec: Any, fp: np.ndarray, place: str = "noise", **below: Any) -> np.ndarray:
        kind = next(name for name in NOISE_KINDS if name != spec.kind)
        scale = spec.deviation / NoiseSpec(kind, 1.0).deviation
        return super().noise(NoiseSpec(kind, scale, spec.round), fp)


def short_identity(users: np.ndarray) -> np.ndarray:
    """Users are equal when the low 32 bits of their numbers are."""
    return users & 0xFFFFFFFF


def plan_of(
    method: str, *, epsilon: float = EPSILON, max_items_per_user: int = MAX_ITEMS, **options: Any
) -> SelectionPlan:
    """A calibrated plan at the budget of the audit."""
    return make_plan(
        SelectionConfig(epsilon, DELTA, method, max_items_per_user=max_items_per_user, **options)
    )


@dataclass(frozen=True)
class Fault:
    """A faulty build: the plan whose claim it makes, what runs, and inputs that show it.

    Attributes:
      trials: how many show it at the audit's confidence.
    """

    plan: SelectionPlan
    subject: Subject
    cases: tuple[Neighbours, ...]
    trials: int = 4_000


def _keyed(keys: type[Keys], method: str, **options: Any) -> Fault:
    plan = plan_of(method, **options)
    # Many small changes show most of a Gaussian's loss, one large change most of a Laplace's.
    cases = tuple(all_novel(count) for count in (1, MAX_ITEMS))
    return Fault(plan, Subject(plan.program, keys=keys), cases)


def _short_hash(method: str) -> Fault:
    plan = plan_of(method, epsilon=4.0)
    held = MAX_ITEMS
    if plan.program.norm == L1:  # the merged user's sample moves from one item to another
        plan, held = plan_of(method, epsilon=4.0, max_items_per_user=1), 1
    case = Neighbours("namesake with items of its own", (tuple(range(held)),), tuple(range(held, 10 * held)))
    return Fault(plan, Subject(plan.program, identity=short_identity), (case,))


def faults() -> dict[str, Callable[[], Fault]]:
    """All planted faults of all selectors, made when they are called."""
    by_name: dict[str, Callable[[], Fault]] = {}
    for method in selectors():
        by_name[f"{method}, noise x 0.8"] = partial(_keyed, QuietKeys, method, epsilon=4.0)
        by_name[f"{method}, noise of another kind"] = partial(_keyed, OtherKindKeys, method)
        plan = plan_of(method)
        if (
            plan.program.norm != LINF
        ):  # coins of twice D0 items stay below delta at so large a delta: replay tells
            by_name[f"{method}, users merged by 32 bits"] = partial(_short_hash, method)
        if len(plan.rounds) > 1:
            by_name[f"{method}, noise label without the round"] = partial(_keyed, OneLabelKeys, method)
        for planted in study(method).faults:
            by_name[planted.name] = partial(_planted, method, planted)
    return by_name


def _planted(method: str, planted: PlantedFault) -> Fault:
    plan = plan_of(method, **planted.settings)
    program = planted.build(plan.calibration, planted.case)
    return Fault(plan, Subject(program), (planted.case,), planted.trials)
