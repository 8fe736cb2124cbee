"""Hard neighbouring inputs of MAD and MAD2R, and planted faults that the replay test and the audit must see."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import numpy as np

from dpbeam.accounting.threshold import NovelWeight, novel_threshold
from dpbeam.engine.program import Program
from dpbeam.kernels.shards import Shard
from dpbeam.selection.plan import SelectionPlan
from dpbeam.selectors.base import Calibration
from dpbeam.selectors.mad.program import BIAS_ONE, Mad2rProgram, MadProgram, MadRound
from dpbeam_lab.audit.neighbours import Neighbours, all_novel, unseen, unseen_when_resampled
from dpbeam_lab.audit.planted import PlantedFault, Study, recast


class KeepAbsent(Mad2rProgram):
    """An item that nobody gave weight to in the first round is kept with bias one."""

    def _biases(self, shard: Shard) -> np.ndarray:
        return np.where(shard.state["present"], super()._biases(shard), np.uint16(BIAS_ONE))


def _over_tau(spec: MadRound) -> list[Neighbours]:
    """Adaptive users that share three items whose initial weight is just below, or well above, tau.

    The newcomer holds the shared items, so it changes the excess that all others reroute.
    """
    tau = spec.tables.tau_units / 2**30
    shared, degree = 3, 4
    below = max(1, math.ceil(tau * degree) - 1)
    cases = []
    for name, count in (("pushes items over tau", below), ("heavier than tau already", 2 * below)):
        others = tuple((*range(shared), shared + u) for u in range(count))
        newcomer = (*range(shared), shared + count)
        cases.append(Neighbours(name, others, newcomer))
    return cases


def _of_mad(plan: SelectionPlan) -> list[Neighbours]:
    assert isinstance(plan.calibration.program, MadProgram)
    return _over_tau(plan.calibration.program.round)


def _of_mad2r(plan: SelectionPlan) -> list[Neighbours]:
    assert isinstance(plan.calibration.program, Mad2rProgram)
    return [*_over_tau(plan.calibration.program.second), *unseen_when_resampled(plan)]


def _one_novel_item(calibration: Calibration, case: Neighbours) -> Program:
    """A threshold that forgets that a user may hold D0 novel items."""
    [row], honest = calibration.rounds, calibration.program
    assert isinstance(honest, MadProgram) and row.delta_threshold is not None
    threshold = novel_threshold(row.noise, row.delta_threshold, 1, NovelWeight.of(row.noise))
    program = copy.copy(honest)
    program.round = replace(honest.round, threshold=threshold)
    return program


_LOW = PlantedFault(
    "mad, threshold for one novel item instead of D0",
    {"max_items_per_user": 64},
    _one_novel_item,
    all_novel(64),
)
_ABSENT = PlantedFault(
    "mad2r, fresh samples, absent item kept",
    {"max_items_per_user": 4, "upper_confidence": 0.0},
    lambda calibration, case: recast(calibration.program, KeepAbsent),
    unseen(4),
)
MAD = Study((_LOW,), _of_mad)
MAD2R = Study((_ABSENT,), _of_mad2r)
