"""Laws of releasing an item by the number of users that hold it: a table of exact probabilities.

An item that n users hold is released with probability p_n, 0 = p_0 <= p_1 <= p_2 <= .... Drawn as integer noise: Z is
theta - N with N the smallest n whose p_n exceeds a uniform number, so n + Z >= theta with probability p_n, for every n
from one draw. p_n are multiples of 2^-128 and the uniform number has 128 bits, so the law is exact.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dpbeam.accounting.noise import NoiseMismatchError, StatedNoise, Words

ONE = 1 << 128
MAX_STEPS = 1 << 20


class NoTableError(ValueError):
    """A budget needs a longer or finer law than there are tables for; the message says which."""


@dataclass(frozen=True, eq=False)
class ReleaseLaw:
    """A table of release probabilities.

    Attributes:
      cumulative: p_0 = 0, p_1, ..., 1 in units of 2^-128, increasing.
    """

    cumulative: tuple[int, ...]

    @functools.cached_property
    def threshold(self) -> int:
        """theta, the smallest n with p_n >= 1/2; so Z has its median at 0."""
        return bisect.bisect_left(self.cumulative, ONE // 2)

    def release_probability(self, count: ArrayLike) -> float | np.ndarray:
        """p_n for every n >= 0 in `count`, float64 of its shape."""
        index = np.minimum(np.asarray(count, np.int64), len(self.cumulative) - 1)
        probability = self._floats[index]
        return float(probability) if np.ndim(count) == 0 else probability

    def users_needed(self, probability: float) -> int:
        """The smallest n with p_n >= probability, for 0 < probability <= 1."""
        if not 0 < probability <= 1:
            raise ValueError(f"probability must lie in (0, 1], got {probability}")
        return int(np.searchsorted(self._floats, probability, side="left"))

    @functools.cached_property
    def deviation(self) -> float:
        """Root of the mean of Z^2."""
        return float(
            np.sqrt(self.masses @ np.square(self.threshold - np.arange(1.0, len(self.masses) + 1.0)))
        )

    @functools.cached_property
    def masses(self) -> np.ndarray:
        """(N,) P(Z = theta - n) of n = 1, ..., N, float64."""
        return np.array([(after - before) / ONE for before, after in itertools.pairwise(self.cumulative)])

    @functools.cached_property
    def _floats(self) -> np.ndarray:
        return np.array([value / ONE for value in self.cumulative])

    @functools.cached_property
    def probabilities(self) -> tuple[np.ndarray, np.ndarray]:
        """p_n and 1 - p_n, each of full relative precision."""
        return self._floats, np.array([(ONE - value) / ONE for value in self.cumulative])

    @functools.cached_property
    def parts(self) -> tuple[np.ndarray, np.ndarray]:
        """p_n and 1 - p_n as (2, n): the nearest float64, and what it leaves."""
        sides = []
        for side, near in zip((self.cumulative, [ONE - v for v in self.cumulative]), self.probabilities):
            rest = [(value - int(math.ldexp(high, 128))) / ONE for value, high in zip(side, near.tolist())]
            sides.append(np.stack([near, np.array(rest)]))
        return sides[0], sides[1]

    @functools.cached_property
    def _words(self) -> tuple[np.ndarray, tuple[int, ...]]:
        below = self.cumulative[:-1]
        return np.array([value >> 64 for value in below], np.uint64), below

    def draw(self, bits: np.ndarray) -> np.ndarray:
        """Z from 128 uniform bits each, exactly of this law. (n, 2) uint64 -> (n,) int64."""
        high, exact = self._words
        first = np.searchsorted(high, bits[:, 0], side="left")
        index = np.searchsorted(high, bits[:, 0], side="right")
        for row in np.flatnonzero(first < index):  # equal high words: the low ones decide
            value = int(bits[row, 0]) << 64 | int(bits[row, 1])
            index[row] = bisect.bisect_right(exact, value)
        return self.threshold - index.astype(np.int64)


class TableNoise(StatedNoise):
    """Integer noise on counts by a table."""

    @property
    def law(self) -> ReleaseLaw:
        """The law by which an item is released."""
        raise self._unsaid("its table")

    @property
    def grid(self) -> int:
        """Steps of the table in a weight of 1, a power of two."""
        return 1

    @property
    def threshold(self) -> float:
        """The weight at which release is as likely as not."""
        return self.law.threshold / self.grid

    @property
    def deviation(self) -> float:
        return self.law.deviation / self.grid

    @property
    def largest(self) -> float:
        return len(self.law.cumulative) / self.grid

    def tail(self, x: ArrayLike) -> float | np.ndarray:
        needed = np.maximum(self.law.threshold - np.ceil(np.asarray(x, np.float64) * self.grid), 0)
        return self.law.release_probability(needed.astype(np.int64)[()])

    def check_sums(self, units: int, sums: np.ndarray, fraction: np.ndarray | None) -> None:
        """Whole steps of the table are protected, and nothing between them."""
        step = units // self.grid
        if (fraction is not None and np.any(fraction)) or np.any(sums & (step - 1)):
            raise NoiseMismatchError(
                f"{self} protects multiples of 1/{self.grid} alone, the sums hold fractions"
            )

    def draw(
        self, words: Words, units: int, fraction: np.ndarray | None = None, fraction_bits: int = 0
    ) -> np.ndarray:
        self.check_sums(units, np.zeros(0, np.int64), fraction)
        return self.law.draw(words.bits()) * (units // self.grid)

    def shown(self, noisy: np.ndarray, units: int) -> np.ndarray:
        """Where bits alone are protected, a weight of 1 for those that reach the threshold, else 0."""
        if not self.bits:
            return noisy
        return np.where(noisy >= self.law.threshold * (units // self.grid), units, 0)
