"""Discrete Laplace (two-sided geometric) noise of any scale on the integers, exact up to 2^-130.

Design. With q = exp(-1/b) and G geometric, P(G = g) = (1 - q) q^g, the law P(x) ~ q^|x| is that of G with
probability 1/(1 + q) and of -1 - G otherwise: no minus zero arises. The binary digits of G are independent, digit j
being one with probability 1/(1 + exp(2^j / b)), so groups of digits are independent too: G = D_0 + 2^a D_1 + ... with
P(D_i = d) ~ q^(2^shift d) on 0..2^size - 1, and the topmost group unbounded. Each group is drawn from a small table,
the topmost one together with the sign. Nothing is approximated but the probabilities, to 2^-160, and a tail of
2^-150.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

import numpy as np

from dpbeam.randomness.discrete.gaussian import check_fraction_bits, exact_scale
from dpbeam.randomness.discrete.tables import (
    AliasTable,
    add_shifted,
    chunks,
    draw_tables,
    geometric_weights,
    normalise,
    start_of_fractions,
    uses_of,
    whole_units,
)
from dpbeam.randomness.discrete.words import Bits

LARGEST_SCALE = 1 << 56  # 104 of it stay below 2^63
_GROUP_BITS = 9
_TOP_BITS = 3  # the topmost group counts in steps of b/8 to b/64
_TOP_SPARE = 2
_REACH = 104  # in units of b: exp(-104) = 2^-150


@lru_cache(maxsize=256)
def digit_groups(scale: Fraction) -> tuple[int, ...]:
    """Shift of every group of digits, lowest first; each but the last ends where the next begins."""
    top = max(0, scale.__floor__().bit_length() - 1 - _TOP_BITS)
    over = top % _GROUP_BITS
    if over <= _TOP_SPARE:
        top -= over
    groups = -(-top // _GROUP_BITS)
    sizes = [top // groups + (i < top % groups) for i in range(groups)] if groups else []
    return tuple(sum(sizes[:i]) for i in range(groups + 1))


@lru_cache(maxsize=32)
def group_tables(scale: Fraction) -> tuple[AliasTable, ...]:
    """Tables of the groups; the last is two-sided, -1 - d standing for digit d of a negative number."""
    shifts = digit_groups(scale)
    tables = []
    for shift, end in pairwise(shifts):
        tables.append(AliasTable.of(normalise(geometric_weights(2**shift / scale, 1 << (end - shift)), 0), 0))
    reach = (_REACH * scale / 2 ** shifts[-1]).__ceil__()
    above = geometric_weights(2 ** shifts[-1] / scale, reach)
    one = geometric_weights(1 / scale, 2)  # 1 and q in the same fixed point
    below = [(weight * one[1]) // one[0] for weight in above]
    tables.append(AliasTable.of(normalise(below[::-1] + above, reach), -reach))
    return tuple(tables)


@dataclass(frozen=True)
class DiscreteLaplace:
    """The law P(x) ~ exp(-|x| / scale) on the integers, or on multiples of 2^-fraction_bits.

    Guarantee: given uniform words, the noise has this law with exactly this scale, up to a total variation of 2^-130
    per item (docs/explanation/noise.md).

    Attributes:
      scale: b in grid units, 1 <= b <= 2^56; a number, taken at its exact value.
      fraction_bits: 0..48, how much finer than the grid the noise is.
    """

    scale: Fraction
    fraction_bits: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", exact_scale("scale", self.scale, LARGEST_SCALE))
        check_fraction_bits(self.fraction_bits)

    @property
    def fine_scale(self) -> Fraction:
        """The scale in units of 2^-fraction_bits."""
        return self.scale * (1 << self.fraction_bits)

    @property
    def uses(self) -> int:
        """`draw` asks for uses 0..uses - 1 of each item's words."""
        return uses_of(len(digit_groups(self.fine_scale)))

    def draw(self, bits: Bits, n: int, fraction: np.ndarray | None = None) -> np.ndarray:
        """Noise of n items plus `fraction`, rounded down: (n,) int64 grid units, below 2^63 in size.

        Args and returns are those of `DiscreteGaussian.draw`.
        """
        shifts, tables = digit_groups(self.fine_scale), group_tables(self.fine_scale)
        before = start_of_fractions(fraction, self.fraction_bits, n)
        out = np.empty(n, np.int64)
        for rows in chunks(n):
            high, low = np.zeros((2, rows.stop - rows.start), np.int64)
            *lower, top = draw_tables(tables, bits, rows)
            negative = top >> np.int32(31)  # all ones below zero: -1 - g is the complement of g
            for shift, digits in zip(shifts, (*lower, top ^ negative)):
                add_shifted(digits, shift, high, low, self.fraction_bits)
            sign = negative.astype(np.int64)
            high, low = (high ^ sign) - sign, low ^ sign  # -1 - g = -high 2^f + (-1 - low)
            out[rows] = whole_units(high, low + before[rows], self.fraction_bits)
        return out
