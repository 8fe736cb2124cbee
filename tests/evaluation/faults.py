"""Planted faults: builds of the selectors with one mistake each, which the audit must refute.

Each is a subclass of a program or of the keys, or other public numbers; none is a switch of the product.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from dpbeam.accounting.threshold import novel_threshold
from dpbeam.engine.program import Keys, Program
from dpbeam.evaluation.audit import Subject
from dpbeam.evaluation.neighbours import Neighbours, numbers_of, unseen
from dpbeam.evaluation.neighbours import all_novel as novel
from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.plan import SelectionPlan, make_plan
from dpbeam.selectors.gsu.calibration import calibrate_gsu, spending
from dpbeam.selectors.gsu.program import GsuProgram
from tests.support.faults import CurrentDegreeCap, KeepAbsent, MovingSample, recast

EPSILON, DELTA, D0 = 1.0, 0.05, 8
# Almost all of delta goes to the thresholds, and items are given up early: where caps matter most.
EARLY = {
    "gsu_delta_share": 0.05,
    "gsu_cap": 0.1,
    "gsu_score_constants": (0.6, 0.0, 0.3, 0.0, -0.57, 2.4, 1.1),
}


class QuietKeys(Keys):
    """Noise of 0.8 sigma."""

    def noise(self, spec, fp):
        return 0.8 * super().noise(spec, fp)


class OneLabelKeys(Keys):
    """The noise's label lacks the round: every round draws the same variates."""

    def noise(self, spec, fp):
        return super().noise(replace(spec, round=1), fp)


def short_identity(users: np.ndarray) -> np.ndarray:
    """Users are equal when the low 32 bits of their numbers are."""
    return users & 0xFFFFFFFF


class GlobalMaximum(GsuProgram):
    """Scores relative to the largest statistic among the items present (of the same copy)."""

    items_per_copy = 1

    def _scores(self, trip, shard):
        own = super()._scores(trip, shard).astype(np.float64)
        z, number = shard.state["z"], numbers_of(shard.items) // self.items_per_copy
        order = np.argsort(number, kind="stable")
        starts = np.flatnonzero(np.diff(number[order], prepend=-1))
        top = np.repeat(np.maximum.reduceat(z[order], starts), np.diff(np.append(starts, len(order))))
        behind = np.empty(len(z))
        behind[order] = top - z[order]
        return np.rint(own * (behind < self.sigma * math.sqrt(self.variances[trip]))).astype(np.uint16)


class NoCap(GsuProgram):
    """No cap on the weight of an item."""

    def __init__(self, honest: GsuProgram):
        self.__dict__ = dict(vars(honest), caps=np.ones_like(honest.caps))


def with_thresholds(program: Program, thresholds: list[float]) -> Program:
    """A copy of a uniform or gsu program with other thresholds."""
    other = copy.copy(program)
    other.thresholds = tuple(thresholds)
    return other


def plan_of(method: str, *, epsilon: float = EPSILON, max_items: int = D0, **options) -> SelectionPlan:
    """A calibrated plan at the budget of the audit."""
    if method in ("mad", "mad2r"):
        options = {"max_adaptive_degree": 4, **options}
    return make_plan(SelectionConfig(epsilon, DELTA, method, max_items_per_user=max_items, **options))


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


def _keyed(keys: type[Keys], method: str, **options) -> Fault:
    plan = plan_of(method, **options)
    return Fault(plan, Subject(plan.program, keys=keys), (novel(D0),))


def _whole_delta(method: str) -> Fault:
    plan = plan_of(method, max_items=32)
    rhos = [novel_threshold(r.sigma, DELTA, 32, lambda t: 1 / np.sqrt(t)) for r in plan.rounds]
    return Fault(plan, Subject(with_thresholds(plan.program, rhos)), (novel(32),))


def _whole_delta_gsu() -> Fault:
    plan = plan_of("gsu", rounds=8)
    c = plan.config
    # The thresholds of a calibration that gives the tests the whole delta, at the noise of the right one.
    share = c.gsu_delta_share
    wide = calibrate_gsu(
        EPSILON,
        DELTA / (1 - share),
        c.gsu_fractions,
        spending(8, c.gsu_final_spending),
        share,
        D0,
        c.gsu_cap,
        c.gsu_growth,
    )
    honest = plan.program
    deviations = np.sqrt(honest.variances)
    quantiles = (wide.thresholds - c.gsu_cap * wide.G) / (wide.sigma * deviations)
    rhos = c.gsu_cap * np.array(honest.drifts) + honest.sigma * deviations * quantiles
    return Fault(plan, Subject(with_thresholds(honest, rhos.tolist())), (novel(8),), 10_000)


def _one_novel_item() -> Fault:
    plan = plan_of("basic", max_items=64)
    row = plan.rounds[0]
    rho = novel_threshold(row.sigma, DELTA / 2, 1, lambda t: 1 / np.sqrt(t))
    return Fault(plan, Subject(with_thresholds(plan.program, [rho])), (novel(64),))


def _global_maximum() -> Fault:
    plan = plan_of("gsu", rounds=4, max_items=8)
    case = Neighbours("crowd on two items", ((0, 1),) * 10, tuple(range(2, 10)))
    program = recast(plan.program, GlobalMaximum)
    program.items_per_copy = case.num_items
    return Fault(plan, Subject(program), (case,))


def _moving_sample() -> Fault:
    plan = plan_of("gsu", rounds=8, max_items=4)
    program = recast(plan.program, MovingSample)
    program.cap *= 20
    return Fault(plan, Subject(program), (novel(80),))


def _current_degree() -> Fault:
    plan = plan_of(
        "gsu",
        rounds=16,
        max_items=64,
        **EARLY,
    )
    return Fault(plan, Subject(recast(plan.program, CurrentDegreeCap)), (novel(64),), 10_000)


def _no_cap() -> Fault:
    plan = plan_of("gsu", rounds=16, max_items=32, **EARLY)
    return Fault(plan, Subject(NoCap(plan.program)), (novel(32),), 10_000)


def _keep_absent() -> Fault:
    plan = plan_of("mad2r", max_items=4, upper_confidence=0.0)
    return Fault(plan, Subject(recast(plan.program, KeepAbsent)), (unseen(4),))


def _short_hash(method: str, **options) -> Fault:
    plan = plan_of(method, **options)
    case = Neighbours("namesake with items of its own", (tuple(range(D0)),), tuple(range(D0, 10 * D0)))
    return Fault(plan, Subject(plan.program, identity=short_identity), (case,))


FAULTS: dict[str, Callable[[], Fault]] = {
    "basic, sigma x 0.8": lambda: _keyed(QuietKeys, "basic", epsilon=4.0),
    "dp-sips, sigma x 0.8": lambda: _keyed(QuietKeys, "dp-sips", epsilon=4.0),
    "mad, sigma x 0.8": lambda: _keyed(QuietKeys, "mad", epsilon=4.0),
    "mad2r, sigma x 0.8": lambda: _keyed(QuietKeys, "mad2r", epsilon=4.0),
    "gsu8, sigma x 0.8": lambda: _keyed(QuietKeys, "gsu", rounds=8, epsilon=4.0),
    "basic, threshold from delta instead of its share": lambda: _whole_delta("basic"),
    "dp-sips, threshold from delta instead of its share": lambda: _whole_delta("dp-sips"),
    "gsu8, threshold from delta instead of its share": _whole_delta_gsu,
    "basic, threshold for one novel item instead of D0": _one_novel_item,
    "gsu8, score by the global maximum": _global_maximum,
    "gsu8, fresh sample in every round": _moving_sample,
    "gsu16, cap by the current degree": _current_degree,
    "gsu16, no cap": _no_cap,
    "mad2r resampled, absent item kept": _keep_absent,
    "basic, users merged by 32 bits": lambda: _short_hash("basic", epsilon=4.0),
    "gsu8, users merged by 32 bits": lambda: _short_hash("gsu", rounds=8, epsilon=4.0),
    "gsu8, noise label without the round": lambda: _keyed(OneLabelKeys, "gsu", rounds=8),
    "mad2r, noise label without the round": lambda: _keyed(OneLabelKeys, "mad2r"),
    "dp-sips, noise label without the round": lambda: _keyed(OneLabelKeys, "dp-sips"),
}
