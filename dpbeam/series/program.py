"""The program of a series: gsu whose rounds are spread over nights.

What differs from gsu: a pair's cap follows from the rank in which the item came to its user (`rank` of the block's
pairs), not from a degree that nobody knows yet; weights are expected to grow from night to night; and an item is scored
towards several ends, the largest score counts, since what can still cross soon should not wait for the last night.
The score stays a function of the item's own noisy history alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from dpbeam.engine.program import Keys, Reply, Touches, Weighed
from dpbeam.kernels.csr import Csr
from dpbeam.kernels.pairs import Block
from dpbeam.kernels.shards import Shard
from dpbeam.selectors.gsu.kernels import RELEASED, SCORE_ONE, Checkpoint, fill_to, in_units, outlook_score
from dpbeam.selectors.gsu.program import GsuProgram

if TYPE_CHECKING:
    from dpbeam.selectors.gsu.presets import ScoreConstants
    from dpbeam.series.calibration import SeriesCalibration
    from dpbeam.series.schedule import Schedule

RANK = "rank"


class SeriesProgram(GsuProgram):
    """R trips over T nights.

    Args:
      calibration: of the window; `caps` are by rank.
      schedule: which round belongs to which night.
      aims: (factor, summand, weight) of each aim of the score (`schedule.AIMS`).
      growth: the weight on night t is expected to be (t/T)^growth of that on night T.
    """

    def __init__(
        self,
        calibration: SeriesCalibration,
        schedule: Schedule,
        score: ScoreConstants,
        aims: Sequence[tuple[float | None, float, float]],
        growth: float,
    ):
        super().__init__(
            sigma=calibration.sigma,
            fractions=calibration.fractions.tolist(),
            round_sigmas=calibration.round_sigmas.tolist(),
            coefficients=calibration.a.tolist(),
            drifts=calibration.G.tolist(),
            variances=calibration.V.tolist(),
            thresholds=calibration.thresholds.tolist(),
            caps=calibration.caps,
            max_items=len(calibration.caps) - 1,
            score=score,
        )
        self.schedule = schedule
        last = schedule.last_night
        self.expected = [(night / last) ** growth for night in schedule.nights]
        self.expected_drifts = np.cumsum(calibration.a * calibration.fractions * self.expected).tolist()
        self.aims = tuple(
            tuple(
                (schedule.end_of(_aim(night, factor, summand, last)), weight)
                for factor, summand, weight in aims
            )
            for night in schedule.nights
        )

    def expected_weight(self, trip: int) -> float:
        return self.expected[trip]

    def touches(self, trip: int) -> Touches:
        """To each of D0 items up to what the first may get; the ranks' own caps are the plan's to check."""
        return Touches.of((self.cap, float(self.caps[1])))

    def weigh(self, trip: int, block: Block, reply: Reply, keys: Keys) -> Weighed:
        rows, ranks = Csr(block.offsets, block.links), np.asarray(block.pair_values[RANK])
        if trip == 0:
            score = np.ones(len(rows.links))
        else:
            units = reply["score"].take(rows.links)
            open_pairs = units > RELEASED
            rows, ranks = rows.restrict(open_pairs), np.compress(open_pairs, ranks)
            score = np.compress(open_pairs, units) * (1.0 / SCORE_ONE)
        return {"weight": rows.item_sums(fill_to(rows, score, self.caps[ranks]), block.num_items)}, None

    def _scores(self, trip: int, shard: Shard) -> np.ndarray:
        """For the next round: the largest of the weighted scores towards that round's aims."""
        if trip + 1 == self.trips:
            return np.zeros(len(shard), np.uint16)
        assert self.score is not None
        best = np.zeros(len(shard))
        for end, weight in self.aims[trip + 1]:
            at = Checkpoint(
                drift=self.expected_drifts[trip],
                variance=self.variances[trip],
                final_drift=self.expected_drifts[end],
                final_threshold=self.thresholds[end],
                sigma=self.sigma,
                final_variance=self.variances[end],
            )
            state = shard.state
            best = np.maximum(
                best, weight * outlook_score(state["z"], state["y"], state["a"], at, self.score)
            )
        return in_units(best)


def _aim(night: int, factor: float | None, summand: float, last: int) -> int:
    """The night at whose end an item should cross."""
    return last if factor is None else int(min(last, factor * night + summand))
