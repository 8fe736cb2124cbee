"""GSU, the group-sequential union: R rounds that spend the noise gradually and test a cumulative statistic.

Round r draws noise of variance sigma^2/f_r; the statistic Z of an item combines all rounds so far, with the
one-shot noise sigma^2 at the end. Users aim their weight at the items that can still be decided. Definition and
guarantee: docs/explanation/gsu.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from dpbeam.accounting.discrete import threshold_surcharge
from dpbeam.accounting.noise import L2, NoiseSpec
from dpbeam.accounting.threshold import ReleaseTest
from dpbeam.engine.program import (
    Keys,
    Program,
    Reply,
    ReplyColumn,
    Touches,
    Weighed,
    mark_released,
    with_state,
)
from dpbeam.kernels.csr import Csr
from dpbeam.kernels.grid import UNITS, public_grid
from dpbeam.kernels.pairs import Block
from dpbeam.kernels.shards import Shard
from dpbeam.selectors.gsu.kernels import (
    RELEASED,
    SCORE_ONE,
    Checkpoint,
    OpenRows,
    first_weights,
    item_weights,
    score_units,
)

if TYPE_CHECKING:
    from dpbeam.selectors.gsu.presets import ScoreConstants


class GsuProgram(Program):
    """R trips; after each but the last, every item's score returns to the blocks.

    The sample and the degree of a user are fixed when blocks are built and never change afterwards: fresh samples
    or caps by the current degree would break the guarantee.

    Args:
      sigma: noise of the whole.
      fractions: f_r; round_sigmas: noise of each round, sigma/sqrt(f_r) or more.
      coefficients: a_r; drifts: G_k; variances: V_k; thresholds: rho_k (inf: nothing is tested).
      caps: (D0 + 1,) weight cap by degree.
      max_items: D0.
      score: constants of the score; None: every item still open counts fully.
    """

    norm = L2

    def __init__(
        self,
        *,
        sigma: float,
        fractions: Sequence[float] | np.ndarray,
        round_sigmas: Sequence[float] | np.ndarray,
        coefficients: Sequence[float] | np.ndarray,
        drifts: Sequence[float] | np.ndarray,
        variances: Sequence[float] | np.ndarray,
        thresholds: Sequence[float] | np.ndarray,
        caps: np.ndarray,
        max_items: int,
        score: ScoreConstants | None,
    ):
        self.sigma = sigma
        self.fractions = tuple(map(float, fractions))
        self.round_sigmas = tuple(map(float, round_sigmas))
        self.coefficients = tuple(map(float, coefficients))
        self.drifts = tuple(map(float, drifts))
        self.variances = tuple(map(float, variances))
        self.thresholds = tuple(map(float, thresholds))
        self.caps = np.array(caps, np.float64)
        self.score = score
        self.cap = max_items
        self.trips = len(self.fractions)
        self.weight_grid = public_grid(sigma)
        column = {"score": ReplyColumn(np.uint16, 0)}
        self.reply_columns = dict.fromkeys(range(self.trips - 1), column)

    def sum_names(self, trip: int) -> tuple[str, ...]:
        return ("weight",)

    def noise(self, trip: int) -> NoiseSpec:
        return NoiseSpec("gaussian", self.round_sigmas[trip], trip + 1)

    def release_test(self, trip: int) -> ReleaseTest:
        threshold = self.thresholds[trip]
        tested = threshold if threshold < math.inf else None
        return ReleaseTest(tested, self.coefficients[trip] * self.fractions[trip])

    def touches(self, trip: int) -> Touches:
        return Touches(np.arange(1, self.cap + 1), self.caps[1:])

    def weigh(self, trip: int, block: Block, reply: Reply, keys: Keys) -> Weighed:
        rows = Csr(block.offsets, block.links)
        if not trip:
            block.scratch = OpenRows.of(rows, self.caps)  # what stays in memory loses what is released
            return {"weight": first_weights(rows, self.caps, block.num_items)}, None
        if block.scratch is None:
            left = OpenRows.of(rows, self.caps)
        else:
            left = block.scratch = block.scratch.without_released(reply["score"])
        return {"weight": item_weights(left, reply["score"], block.num_items)}, None

    def observe(self, trip: int, shard: Shard, noisy: np.ndarray, present: np.ndarray) -> Shard:
        """Every item's state moves on every round, also where nobody sent weight: its noise accumulates."""
        weight = noisy / UNITS
        fraction, coefficient = self.fractions[trip], self.coefficients[trip]
        if trip == 0:
            score = np.full(len(shard), self.expected_weight(trip))
            z = y = a = np.zeros(len(shard))
        else:
            score = shard.state["score"] * (1.0 / SCORE_ONE) * self.expected_weight(trip)
            z, y, a = shard.state["z"], shard.state["y"], shard.state["a"]
        return with_state(
            shard,
            z=z + coefficient * fraction * weight,
            y=y + fraction * score * weight,
            a=a + fraction * np.square(score),
        )

    def expected_weight(self, trip: int) -> float:
        """The weight of an item at full score in this round, as a public share of that in the last one."""
        return 1.0

    def threshold(self, trip: int, shard: Shard) -> Shard:
        z = shard.state["z"]
        return mark_released(shard, np.rint(z * UNITS).astype(np.int64), z >= self._integer_threshold(trip))

    def _integer_threshold(self, trip: int) -> float:
        """rho_k for integer noise: each round's may exceed continuous noise by a unit; one more for rounding of z."""
        used = zip(self.coefficients[: trip + 1], self.fractions)
        return self.thresholds[trip] + (threshold_surcharge(a * f for a, f in used) + 1) / UNITS

    def reply(self, trip: int, shard: Shard) -> tuple[Shard, dict[str, np.ndarray]]:
        released = shard.state["released"]
        score = self._scores(trip, shard)
        travels = np.where(released, np.uint16(RELEASED), score)
        return with_state(shard, score=np.where(released, np.uint16(0), score)), {"score": travels}

    def _scores(self, trip: int, shard: Shard) -> np.ndarray:
        if self.score is None:
            return np.full(len(shard), SCORE_ONE, np.uint16)
        at = Checkpoint(
            drift=self.drifts[trip],
            variance=self.variances[trip],
            final_drift=self.drifts[-1],
            final_threshold=self.thresholds[-1],
            sigma=self.sigma,
        )
        return score_units(shard.state["z"], shard.state["y"], shard.state["a"], at, self.score)
