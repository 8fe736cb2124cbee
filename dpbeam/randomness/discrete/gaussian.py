"""Discrete Gaussian noise of any width on the integers, exact up to 2^-130 in total variation.

Design. A table of every value would need sigma times 29 entries. Instead the draw is a sum of independent discrete
Gaussians on coarser and coarser lattices Z, 2^a Z, 2^b Z, ..., each from a small table: one on Z + one on c Z is
the Gaussian on Z whose variance is the sum, up to a factor 1 +- 2 exp(-2 pi^2 s^2 / c^2), where s is about the
deviation of the part on Z (Peikert 2010; Micciancio and Walter 2017; the proof is in docs/explanation/noise.md).
Every part but the coarsest has deviation sqrt(39/8) = 2.2 steps of the next lattice, which makes the factor 2^-137,
and comes from one of a few fixed tables that all sigmas share; the coarsest takes what is left of sigma^2, exactly,
in a table of its own of 1,000 to 15,000 entries.

Sigma is a rational number, as every double is, and is realised exactly. Sums that reach below the grid take noise on
a grid finer by `fraction_bits`, and the total is rounded down afterwards: rounding a sum first could move many items
by a unit each when one user is added. Instances hold their parameter alone and
pickle as such; tables are made once per process (about 30 ms for the largest fixed one, 2 to 20 ms for each sigma).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import isqrt
from typing import NamedTuple

import numpy as np

from dpbeam.randomness.discrete.tables import (
    AliasTable,
    add_shifted,
    chunks,
    draw_tables,
    gaussian_masses,
    start_of_fractions,
    uses_of,
    whole_units,
)
from dpbeam.randomness.discrete.words import Bits

LARGEST_SIGMA = 1 << 58  # grid units; 14.4 of it and the finer parts stay below 2^63
LARGEST_FRACTION_BITS = 48
SMOOTHING = Fraction(39, 8)  # variance of a part, in squared steps of the next coarser lattice
_REACH = Fraction(72, 5)  # tables end at 14.4 deviations: 2^-153 lies beyond
_STEP_BITS = 9  # a lattice is at most 2^9 times coarser than the one before
_TOP_BITS = 5  # the coarsest lattice has at least 2^5 steps per sigma,
_TOP_SPARE = 3  # or up to 2^9 where that saves a level
_RARE_BITS = 4  # the finest parts are drawn for all items where more than one in 2^3 would need them


class Part(NamedTuple):
    """One independent summand: 2^shift times a discrete Gaussian on Z of this variance."""

    variance: Fraction
    shift: int


@lru_cache(maxsize=256)
def gaussian_parts(sigma: Fraction) -> tuple[Part, ...]:
    """The summands of a discrete Gaussian on Z, finest first; 4^shift variance sums to sigma^2, exactly."""
    exponent = sigma.__floor__().bit_length() - 1  # 2^exponent <= sigma < 2^(exponent + 1)
    top = max(0, exponent - _TOP_BITS)
    over = top % _STEP_BITS
    if over <= _TOP_SPARE:
        top -= over
    levels = -(-top // _STEP_BITS)
    steps = [top // levels + (i < top % levels) for i in range(levels)] if levels else []
    parts = []
    for i, step in enumerate(steps):
        parts.append(Part(SMOOTHING * 4**step, sum(steps[:i])))
    left = sigma**2 - sum(part.variance * 4**part.shift for part in parts)
    return (*parts, Part(left / 4**top, top))


def half_width(variance: Fraction) -> int:
    """Largest value in the table of a part: 14.4 deviations, rounded up."""
    return isqrt((_REACH**2 * variance).__ceil__()) + 1


@lru_cache(maxsize=64)
def part_table(variance: Fraction) -> AliasTable:
    """The table of a discrete Gaussian on Z; cached in this process."""
    reach = half_width(variance)
    return AliasTable.of(gaussian_masses(variance, reach), -reach)


@dataclass(frozen=True)
class DiscreteGaussian:
    """The law P(x) ~ exp(-x^2 / (2 sigma^2)) on the integers, or on multiples of 2^-fraction_bits.

    Guarantee: given uniform words, the noise has this law with exactly this sigma, up to a total variation of 2^-130
    per item (docs/explanation/noise.md). Noise of different items, and of different labels, is independent.

    Attributes:
      sigma: in grid units, 1 <= sigma <= 2^58; a number, taken at its exact value.
      fraction_bits: 0..48, how much finer than the grid the noise is.
    """

    sigma: Fraction
    fraction_bits: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", exact_scale("sigma", self.sigma, LARGEST_SIGMA))
        check_fraction_bits(self.fraction_bits)

    @property
    def parts(self) -> tuple[Part, ...]:
        """The summands, in units of 2^-fraction_bits."""
        return gaussian_parts(self.sigma * (1 << self.fraction_bits))

    @property
    def uses(self) -> int:
        """`draw` asks for uses 0..uses - 1 of each item's words."""
        return uses_of(len(self.parts))

    def draw(self, bits: Bits, n: int, fraction: np.ndarray | None = None) -> np.ndarray:
        """Noise of n items, plus what their sums hold below the grid, rounded down to the grid.

        Args:
          bits: uniform words by use and rows, `KeyedBits` or the like.
          n: number of items.
          fraction: (n,) int64 in [0, 2^fraction_bits), or None for nothing.

        Returns:
          (n,) int64, grid units; below 2^62 in size.
        """
        parts, below = self.parts, self.fraction_bits
        tables = [part_table(part.variance) for part in parts]
        high, low = np.zeros(n, np.int64), start_of_fractions(fraction, below, n)
        fine, reach = self._fine_parts
        for rows in chunks(n):
            for part, values in zip(parts[fine:], draw_tables(tables, bits, rows, range(fine, len(parts)))):
                add_shifted(values, part.shift, high[rows], low[rows], below)
            if fine:  # the others need none of their finest parts: nothing that these hold would carry
                rest = low[rows] & ((1 << below) - 1)
                near = np.flatnonzero((rest < reach) | (rest >= (1 << below) - reach)) + rows.start
                for part, values in zip(parts, draw_tables(tables, bits, near, range(fine))):
                    low[near] += values.astype(np.int64) << part.shift
        return whole_units(high, low, below)

    @property
    def _fine_parts(self) -> tuple[int, int]:
        """How many of the finest parts seldom move a sum over a whole unit, and the size that they stay within."""
        count = reach = 0
        for part in self.parts[:-1]:
            further = reach + (half_width(part.variance) << part.shift)
            if further >= 1 << max(self.fraction_bits - _RARE_BITS, 0):
                break
            count, reach = count + 1, further
        return count, reach


def exact_scale(name: str, value: float | Fraction, largest: int) -> Fraction:
    """A scale in grid units as a fraction of its exact value.

    Raises: ValueError unless 1 <= value <= largest, a power of two.
    """
    if not 1 <= value <= largest:  # also false for NaN
        raise ValueError(
            f"{name} must lie between 1 and 2^{largest.bit_length() - 1} grid units, got {value}"
        )
    return Fraction(value)


def check_fraction_bits(value: int) -> None:
    """ValueError unless 0 <= value <= 48."""
    if not 0 <= value <= LARGEST_FRACTION_BITS:
        raise ValueError(f"fraction_bits must lie between 0 and {LARGEST_FRACTION_BITS}, got {value}")
