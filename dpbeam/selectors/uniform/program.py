"""Rounds of uniform weights: Basic, DP-SIPS, which repeats it on what was not released, and weighted Laplace.

Basic: Korolova et al. 2009, Gopi et al. 2020. DP-SIPS: Swanberg et al. 2023.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpbeam.accounting.noise import L1, NoiseSpec
from dpbeam.accounting.threshold import ReleaseTest
from dpbeam.engine.program import Keys, Program, Reply, ReplyColumn, Touches, Weighed, mark_released
from dpbeam.kernels.csr import Csr, uniform_weights
from dpbeam.kernels.grid import public_grid, threshold_units, uniform_l1_units, uniform_l2_units
from dpbeam.kernels.pairs import Block, bottom_sample
from dpbeam.kernels.shards import Shard


class UniformProgram(Program):
    """R rounds of uniform weights; items released in a round leave every user's set. R = 1 is Basic.

    Args:
      noises, thresholds: one per round; users' units of weight are of the norm that the noise protects.
      max_items: D0, the items that a user gives weight to in one round.
      pool: items kept per user if every round samples `max_items` afresh from them; None: one sample for all.
    """

    def __init__(
        self,
        *,
        noises: Sequence[NoiseSpec],
        thresholds: Sequence[float],
        max_items: int,
        pool: int | None = None,
    ):
        self._noises = tuple(noises)
        self.norm = self._noises[0].norm
        self.thresholds = tuple(thresholds)
        self.max_items = max_items
        self.resample = pool is not None and len(self._noises) > 1
        self.cap = max_items if pool is None or not self.resample else max(pool, max_items)
        self.trips = len(self._noises)
        reply = {"released": ReplyColumn(np.uint8, 0)}
        self.reply_columns = dict.fromkeys(range(self.trips - 1), reply)
        self.weight_grid = public_grid(max(noise.deviation for noise in self._noises))
        units = uniform_l1_units if self.norm == L1 else uniform_l2_units
        self._table = units(max_items)

    def sum_names(self, trip: int) -> tuple[str, ...]:
        return ("weight",)

    def noise(self, trip: int) -> NoiseSpec:
        return self._noises[trip]

    def release_test(self, trip: int) -> ReleaseTest:
        return ReleaseTest(self.thresholds[trip])

    def touches(self, trip: int) -> Touches:
        return Touches.of((self.max_items, 1.0))

    def weigh(self, trip: int, block: Block, reply: Reply, keys: Keys) -> Weighed:
        rows = Csr(block.offsets, block.links)
        if trip:
            rows = rows.restrict(reply["released"].take(rows.links) == 0)
        if self.resample:
            rows = sample_rows(rows, block, keys.sample(trip + 1), self.max_items)
        return {"weight": rows.item_sums(uniform_weights(rows, self._table), block.num_items)}, None

    def threshold(self, trip: int, shard: Shard) -> Shard:
        return cross(shard, self.thresholds[trip])

    def reply(self, trip: int, shard: Shard) -> tuple[Shard, dict[str, np.ndarray]]:
        return shard, {"released": shard.state["released"].astype(np.uint8)}


def sample_rows(rows: Csr, block: Block, sample_key: bytes, max_items: int) -> Csr:
    """A fresh uniform sample of at most `max_items` of each user's present items."""
    return rows.restrict(sample_mask(rows, block, sample_key, max_items))


def sample_mask(rows: Csr, block: Block, sample_key: bytes, max_items: int) -> np.ndarray:
    """(pairs,) bool: the pairs of `sample_rows`."""
    return bottom_sample(rows.offsets, block.user_fp, block.item_fp, rows.links, sample_key, max_items)


def cross(shard: Shard, threshold: float) -> Shard:
    """Release the items of this round's samples whose noisy weight reaches the threshold."""
    noisy = shard.state["noisy"]
    return mark_released(shard, noisy, shard.state["present"] & (noisy >= threshold_units(threshold)))
