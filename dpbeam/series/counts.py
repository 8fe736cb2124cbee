"""Noisy counts of a series: with every item that goes out, how many users held it on that night.

A user gives 1/sqrt(D0) to each item that it holds when the item is released. An item is released once, and a user
holds at most D0 distinct items in the whole window: so all that a user ever gives has l2 norm at most 1, on whatever
nights the items go out. Noise N(0, sigma^2) on each sum makes counts of standard deviation sqrt(D0) sigma, all nights
together at the cost of one Gaussian mechanism (docs/explanation/series.md#noisy-counts).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dpbeam.accounting.events import GaussianEvent
from dpbeam.accounting.noise import NoiseSpec
from dpbeam.counts import DEVIATION, NOISY_COUNT
from dpbeam.engine.program import Keys
from dpbeam.kernels.grid import UNITS


@dataclass(frozen=True)
class SeriesCounts:
    """Calibrated counts of a window.

    Attributes:
      sigma: of the noise on sums to which one user adds a vector of norm at most 1.
      items: D0; round: number of their noise, behind those of all rounds.
    """

    sigma: float
    items: int
    round: int

    @property
    def noise(self) -> NoiseSpec:
        """The noise of one count."""
        return NoiseSpec("gaussian", self.sigma, self.round)

    @property
    def event(self) -> GaussianEvent:
        """What the counts of all nights cost together."""
        return GaussianEvent(self.sigma, round=self.round, label="noisy counts")

    @property
    def unit(self) -> int:
        """What a user gives to an item, in units of 2^-30, rounded down: D0 of them have norm at most 1."""
        unit = math.isqrt(UNITS * UNITS // self.items)
        assert self.items * unit * unit <= UNITS * UNITS
        return unit

    @property
    def deviation(self) -> float:
        """Standard deviation of a count, without its rounding (at most 0.3)."""
        return self.sigma * UNITS / self.unit

    def release(self, users: np.ndarray, fp: np.ndarray, keys: Keys) -> np.ndarray:
        """(items,) int64 noisy counts, possibly negative.

        Args:
          users: (items,) exact numbers of users; fp: (items, 2) of items that are released now, and never before.
        """
        sums = users.astype(np.int64) * self.unit + keys.noise(self.noise, fp)
        return np.rint(sums / self.unit).astype(np.int64)


def with_counts(table: pa.Table, noisy: np.ndarray, counts: SeriesCounts | None) -> pa.Table:
    """A table of released items with their noisy counts, if the series has any."""
    if counts is None:
        return table
    table = table.append_column(NOISY_COUNT, pa.array(noisy, pa.int64()))
    return table.append_column(DEVIATION, pa.array(np.full(len(noisy), counts.deviation)))
