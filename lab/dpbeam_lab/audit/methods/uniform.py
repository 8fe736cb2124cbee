"""Planted faults of Basic and DP-SIPS: thresholds and floors that are too low."""

from __future__ import annotations

from functools import partial

import numpy as np

from dpbeam.accounting.threshold import NovelWeight, novel_threshold
from dpbeam.engine.program import Exact, Program
from dpbeam.kernels.shards import Shard
from dpbeam.selectors.base import Calibration, filled_in
from dpbeam.selectors.floor import Floored
from dpbeam.selectors.uniform.program import UniformProgram
from dpbeam_lab.audit.neighbours import Neighbours, all_novel, unseen_when_resampled
from dpbeam_lab.audit.planted import PlantedFault, Study, recast


def _with_thresholds(calibration: Calibration, delta: float, max_items: int) -> Program:
    program = recast(calibration.program, UniformProgram)
    program.thresholds = tuple(
        novel_threshold(row.noise, delta, max_items, NovelWeight.of(row.noise)) for row in calibration.rounds
    )
    return program


def _whole_delta(calibration: Calibration, case: Neighbours) -> Program:
    """Twice the thresholds' delta of all rounds, for each of them: the noise's half as well."""
    honest = calibration.program
    assert isinstance(honest, UniformProgram)
    total = 2 * sum(filled_in(row.delta_threshold) for row in calibration.rounds)
    return _with_thresholds(calibration, total, honest.max_items)


def _one_novel_item(calibration: Calibration, case: Neighbours) -> Program:
    return _with_thresholds(calibration, filled_in(calibration.rounds[0].delta_threshold), 1)


def whole_delta(method: str) -> PlantedFault:
    """Thresholds from delta instead of its share."""
    name = f"{method}, threshold from delta instead of its share"
    return PlantedFault(name, {"max_items_per_user": 32}, _whole_delta, all_novel(32), 10_000)


def one_novel_item(method: str) -> PlantedFault:
    """A threshold that forgets that a user may hold D0 novel items."""
    name = f"{method}, threshold for one novel item instead of D0"
    return PlantedFault(name, {"max_items_per_user": 64}, _one_novel_item, all_novel(64))


class HalfFloor(Floored):
    """One user is taken to give half of what it may."""

    def floor_units(self, trip: int) -> int:
        return super().floor_units(trip) // 2


class FloorAfterNoise(Floored):
    """The floor is taken off the noisy sums: who is above it, noise decides."""

    def exact(self, trip: int, shard: Shard) -> Exact:
        return self.inner.exact(trip, shard)

    def observe(self, trip: int, shard: Shard, noisy: np.ndarray, present: np.ndarray) -> Shard:
        return super().observe(trip, shard, noisy - self.floor_units(trip), present)


class EverybodyIsCandidate(Floored):
    """What keeps nothing above the floor may still be released by its noise."""

    def candidates(self, trip: int, shard: Shard, present: np.ndarray) -> np.ndarray:
        return np.ones(len(shard), bool)


class FloorByUsersAlone(Floored):
    """Items of too few users are left out, and nothing is taken off: one user more brings all of an item's weight."""

    def exact(self, trip: int, shard: Shard) -> Exact:
        return self.inner.exact(trip, shard)

    def candidates(self, trip: int, shard: Shard, present: np.ndarray) -> np.ndarray:
        return shard.sums["weight"] > self.floor_units(trip)


def _with_floor(kind: type[Floored], calibration: Calibration, case: Neighbours) -> Program:
    return kind(calibration.program, _FLOOR)


_FLOOR = 4
_AT_THE_FLOOR = Neighbours("at the floor", tuple((i,) for i in range(4) for _ in range(_FLOOR - 1)), (0, 1))


def floor_faults(method: str) -> list[PlantedFault]:
    """Floors on users that let items of fewer users pass, or tell who is one of them."""
    kinds = {
        "half of what a user gives": HalfFloor,
        "taken off after noise": FloorAfterNoise,
        "items below it are candidates": EverybodyIsCandidate,
        "by users alone": FloorByUsersAlone,
    }
    settings = {"max_items_per_user": 8, "min_users": _FLOOR}
    return [
        PlantedFault(
            f"{method}, floor on users: {name}",
            settings,
            partial(_with_floor, kind),
            _AT_THE_FLOOR,
        )
        for name, kind in kinds.items()
    ]


BASIC = Study((whole_delta("basic"), one_novel_item("basic"), *floor_faults("basic")))
DP_SIPS = Study((whole_delta("dp-sips"),), unseen_when_resampled)
