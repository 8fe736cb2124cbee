"""Planted faults of gsu, which the replay test and the audit must see."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np

from dpbeam.engine.program import Keys, Program, Reply, Weighed
from dpbeam.kernels.csr import Csr
from dpbeam.kernels.pairs import Block
from dpbeam.kernels.shards import Shard
from dpbeam.selectors.base import Calibration
from dpbeam.selectors.gsu.calibration import calibrate_gsu
from dpbeam.selectors.gsu.kernels import RELEASED
from dpbeam.selectors.gsu.presets import GSU_PRESETS
from dpbeam.selectors.gsu.program import GsuProgram
from dpbeam.selectors.uniform.program import sample_rows
from dpbeam_lab.audit.neighbours import Neighbours, all_novel
from dpbeam_lab.audit.planted import PlantedFault, Study, recast

if TYPE_CHECKING:
    import pyarrow as pa

# Almost all of delta goes to the thresholds, and items are given up early: where caps matter most.
_EARLY = {
    "rounds": 16,
    "gsu_delta_share": 0.05,
    "gsu_cap": 0.1,
    "gsu_score_constants": (0.6, 0.0, 0.3, 0.0, -0.57, 2.4, 1.1),
}


class MovingSample(GsuProgram):
    """A fresh sample of a larger set in every round."""

    def weigh(self, trip: int, block: Block, reply: Reply, keys: Keys) -> Weighed:
        rows = sample_rows(Csr(block.offsets, block.links), block, keys.sample(trip + 1), len(self.caps) - 1)
        return super().weigh(trip, replace(block, offsets=rows.offsets, links=rows.links), reply, keys)


class CurrentDegreeCap(GsuProgram):
    """The cap of the items that are left instead of the degree of the sample."""

    def weigh(self, trip: int, block: Block, reply: Reply, keys: Keys) -> Weighed:
        if not trip:
            return super().weigh(trip, block, reply, keys)
        rows = Csr(block.offsets, block.links)
        kept = rows.restrict(reply["score"][rows.links] > RELEASED)
        return super().weigh(trip, replace(block, offsets=kept.offsets, links=kept.links), reply, keys)


class GlobalMaximum(GsuProgram):
    """Scores relative to the largest statistic among the items present (of the same copy)."""

    items_per_copy = 1

    def _scores(self, trip: int, shard: Shard) -> np.ndarray:
        own = super()._scores(trip, shard).astype(np.float64)
        numbers = np.array(
            [int.from_bytes(name, "big") for name in cast("pa.Array", shard.items).to_pylist()]
        )
        z, number = shard.state["z"], numbers // self.items_per_copy
        order = np.argsort(number, kind="stable")
        starts = np.flatnonzero(np.diff(number[order], prepend=-1))
        top = np.repeat(np.maximum.reduceat(z[order], starts), np.diff(np.append(starts, len(order))))
        behind = np.empty(len(z))
        behind[order] = top - z[order]
        return np.rint(own * (behind < self.sigma * math.sqrt(self.variances[trip]))).astype(np.uint16)


def _global_maximum(calibration: Calibration, case: Neighbours) -> Program:
    program = recast(calibration.program, GlobalMaximum)
    program.items_per_copy = case.num_items
    return program


def _moving_sample(calibration: Calibration, case: Neighbours) -> Program:
    program = recast(calibration.program, MovingSample)
    program.cap *= 20
    return program


def _no_cap(calibration: Calibration, case: Neighbours) -> Program:
    program = recast(calibration.program, GsuProgram)
    program.caps = np.ones_like(program.caps)
    return program


def _whole_delta(calibration: Calibration, case: Neighbours) -> Program:
    """Thresholds of a calibration that gives the tests the whole delta, at the noise of the right one."""
    honest, event = calibration.program, calibration.event.parts[-1]
    assert isinstance(honest, GsuProgram)
    preset = GSU_PRESETS["gsu8"]
    share = preset.delta_gauss_share
    # The noise of any budget will do: thresholds are compared in units of it.
    wide = calibrate_gsu(
        1.0,
        event.delta / (1 - share) ** 2,
        honest.fractions,
        preset.spending,
        share,
        event.max_items,
        event.weight_cap,
        preset.eta,
    )
    deviations = np.sqrt(honest.variances)
    quantiles = (wide.thresholds - event.weight_cap * wide.G) / (wide.sigma * deviations)
    rhos = event.weight_cap * np.array(honest.drifts) + honest.sigma * deviations * quantiles
    program = recast(honest, GsuProgram)
    program.thresholds = tuple(rhos.tolist())
    return program


GSU = Study(
    (
        PlantedFault(
            "gsu8, threshold from delta instead of its share",
            {"rounds": 8, "max_items_per_user": 8},
            _whole_delta,
            all_novel(8),
            10_000,
        ),
        PlantedFault(
            "gsu4, score by the global maximum",
            {"rounds": 4, "max_items_per_user": 8},
            _global_maximum,
            Neighbours("crowd on two items", ((0, 1),) * 10, tuple(range(2, 10))),
        ),
        PlantedFault(
            "gsu8, fresh sample in every round",
            {"rounds": 8, "max_items_per_user": 4},
            _moving_sample,
            all_novel(80),
        ),
        PlantedFault(
            "gsu16, cap by the current degree",
            {"max_items_per_user": 64, **_EARLY},
            lambda calibration, case: recast(calibration.program, CurrentDegreeCap),
            all_novel(64),
            20_000,
        ),
        PlantedFault("gsu16, no cap", {"max_items_per_user": 32, **_EARLY}, _no_cap, all_novel(32), 10_000),
    )
)
