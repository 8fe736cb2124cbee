"""Planted faults of Basic and DP-SIPS: thresholds that are too low."""

from __future__ import annotations

from dpbeam.accounting.threshold import NovelWeight, novel_threshold
from dpbeam.engine.program import Program
from dpbeam.selectors.base import Calibration, HardCase, PlantedFault, all_novel
from dpbeam.selectors.recast import recast


def _with_thresholds(calibration: Calibration, delta: float, max_items: int) -> Program:
    program = recast(calibration.program, type(calibration.program))
    program.thresholds = tuple(
        novel_threshold(row.noise, delta, max_items, NovelWeight.of(row.noise)) for row in calibration.rounds
    )
    return program


def _whole_delta(calibration: Calibration, case: HardCase) -> Program:
    """Twice the thresholds' delta of all rounds, for each of them: the noise's half as well."""
    total = 2 * sum(row.delta_threshold for row in calibration.rounds)
    return _with_thresholds(calibration, total, calibration.program.max_items)


def _one_novel_item(calibration: Calibration, case: HardCase) -> Program:
    return _with_thresholds(calibration, calibration.rounds[0].delta_threshold, 1)


def whole_delta(method: str) -> PlantedFault:
    """Thresholds from delta instead of its share."""
    name = f"{method}, threshold from delta instead of its share"
    return PlantedFault(name, {"max_items_per_user": 32}, _whole_delta, all_novel(32), 10_000)


def one_novel_item(method: str) -> PlantedFault:
    """A threshold that forgets that a user may hold D0 novel items."""
    name = f"{method}, threshold for one novel item instead of D0"
    return PlantedFault(name, {"max_items_per_user": 64}, _one_novel_item, all_novel(64))
