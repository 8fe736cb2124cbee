"""The program of a series: gsu whose rounds are spread over nights.

What differs from gsu: norm that a user does not use may be saved for later rounds (`dpbeam.series.saved`); a pair's cap
follows from the rank in which the item came to its user (`rank` of the block's pairs), not from a degree that nobody
knows yet; weights are expected to grow from night to night; and an item is scored towards several ends, the largest
score counts, since what can still cross soon should not wait for the last night. The score stays a function of the
item's own noisy history alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from dpbeam.accounting.noise import NoiseSpec, SavedNoise
from dpbeam.engine.program import Keys, Reply, Touches, Weighed
from dpbeam.errors import StoreError
from dpbeam.kernels.csr import Csr
from dpbeam.kernels.pairs import Block
from dpbeam.kernels.shards import Shard
from dpbeam.selectors.gsu.kernels import RELEASED, SCORE_ONE, Checkpoint, fill_to, in_units, outlook_score
from dpbeam.selectors.gsu.program import GsuProgram
from dpbeam.series.saved import LARGEST_NORM, Saving

if TYPE_CHECKING:
    from dpbeam.selectors.gsu.presets import ScoreConstants
    from dpbeam.series.calibration import SeriesCalibration
    from dpbeam.series.schedule import Schedule

RANK = "rank"
#: What a block knows of each user: its energy, and the night on which it came first.
ENERGY, FIRST = "energy", "first"


class SeriesProgram(GsuProgram):
    """R trips over T nights.

    Args:
      calibration: of the window; `caps` are by rank.
      schedule: which round belongs to which night.
      aims: (factor, summand, weight) of each aim of the score (`schedule.AIMS`).
      growth: the weight on night t is expected to be (t/T)^growth of that on night T.
      saved_norm: bonus of `Saving`; None: nothing is saved, and a user's norm is at most 1 in every round.
    """

    def __init__(
        self,
        calibration: SeriesCalibration,
        schedule: Schedule,
        score: ScoreConstants,
        aims: Sequence[tuple[float | None, float, float]],
        growth: float,
        saved_norm: float | None = None,
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
        fractions = calibration.fractions.tolist()
        self.saving = None if saved_norm is None else Saving(fractions, schedule.nights, saved_norm)
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

    def noise(self, trip: int) -> NoiseSpec:
        noise = super().noise(trip)
        return (
            noise if self.saving is None else SavedNoise(noise.kind, noise.scale, noise.round, LARGEST_NORM)
        )

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
        bar = self.caps[ranks]
        if self.saving is None:
            return {"weight": rows.item_sums(fill_to(rows, score, bar), block.num_items)}, None
        energy, first = energy_of(block), np.asarray(block.user_values[FIRST])
        there, left = np.flatnonzero(rows.degrees), energy.copy()
        units, left[there] = self.saving.spend(
            trip, rows.filled(), score, bar, energy.take(there), first.take(there)
        )
        return {"weight": rows.item_sums(units, block.num_items)}, {ENERGY: left}

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


def energy_of(block: Block) -> np.ndarray:
    """(users,) int64 after the rounds so far: of the block's state, and before the night's first round as it came.

    Raises:
      InputError: it is not known of a user. It is never taken as full.
    """
    energy = np.asarray(block.state[ENERGY] if ENERGY in block.state else block.user_values[ENERGY])
    if (energy < 0).any():
        raise StoreError("the state of the series does not say what its users have left to spend")
    return energy


def _aim(night: int, factor: float | None, summand: float, last: int) -> int:
    """The night at whose end an item should cross."""
    return last if factor is None else int(min(last, factor * night + summand))
