"""Norm that a user saves for later rounds, in exact integers.

Of the squared norm of all that a user ever gives, round r counts with a public share f_r, and sum_r f_r |x_r|^2 is at
most 1 over the whole window (docs/explanation/series.md). A user begins with an energy of 1, in units of 2^-60, and
every round takes f_r |x_r|^2 of it, rounded up, before anything is decided by that round. It never falls below 0 and
never rises: not by an erasure, not where the item of a weight is released.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from dpbeam.kernels.csr import Csr, integer_row_sums
from dpbeam.kernels.grid import NORM_UNITS, UNIT_BITS, UNITS
from dpbeam.selectors.gsu.kernels import level_weights

#: Energy of a user that comes.
FULL = NORM_UNITS
#: Energy where a state does not say it.
UNKNOWN = -1
#: Largest l2 norm of what a user gives in one round.
LARGEST_NORM = 2.0
_LARGEST_SQUARES = int(LARGEST_NORM**2) * NORM_UNITS
_LOW = UNITS - 1
_BELOW = 1 - 1e-12  # what is computed in floating point leaves room for its rounding


class Saving:
    """The public numbers of the rule.

    Args:
      fractions: (R,) f_r; nights: (R,) the night of each round.
      bonus: b: who has come just now may spend up to 1 + b times what would last evenly until the end.
    """

    def __init__(self, fractions: Sequence[float], nights: Sequence[int], bonus: float):
        self.fractions, self.nights, self.bonus = tuple(fractions), tuple(nights), bonus
        #: f_r in units of 2^-60, rounded up.
        self.shares = tuple(math.ceil(Fraction(fraction) * FULL) for fraction in fractions)
        self._rest = [math.fsum(fractions[trip:]) for trip in range(len(fractions))]

    def room(self, trip: int, energy: np.ndarray, first: np.ndarray) -> np.ndarray:
        """The largest |x|^2 of each user in a round, (users,) float64: a function of its own energy and public numbers.

        Args:
          energy: (users,) int64; first: (users,) the night on which each came first.
        """
        left, age = energy / FULL, self.nights[trip] - first
        evenly = left / self._rest[trip] * (1 + self.bonus / (1 + age))
        room = np.minimum(np.minimum(left / self.fractions[trip], evenly), LARGEST_NORM**2)
        return room * _BELOW

    def spend(
        self, trip: int, rows: Csr, score: np.ndarray, bar: np.ndarray, energy: np.ndarray, first: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """What users give in a round, and the energy that is left to them.

        Args:
          rows: users, none without items.
          score, bar: (pairs,) float64 above 0, `level_weights`; energy: (users,) int64;
            first: (users,) the night on which each came first.

        Returns:
          (pairs,) int64 units of weight, and (users,) int64.
        """
        weight = level_weights(rows, score, bar, self.room(trip, energy, first))
        units = np.floor(weight * UNITS).astype(np.int64)
        step = 1
        while True:
            squares = integer_row_sums(units * units, rows.offsets)
            cost = charge(squares, self.shares[trip])
            over = (squares > _LARGEST_SQUARES) | (cost > energy)
            if not over.any():
                return units, energy - cost
            units = np.maximum(units - rows.per_pair(over * step), 0)
            step *= 2


def charge(squares: np.ndarray, share: int) -> np.ndarray:
    """ceil(share squares / 2^60), exact, (n,) int64.

    Args:
      squares: (n,) int64 from 0 to 2^62; share: from 0 to 2^60.
    """
    high, low = squares >> UNIT_BITS, squares & _LOW
    high_share, low_share = share >> UNIT_BITS, share & _LOW
    lowest = low * low_share
    middle = high * low_share + low * high_share + (lowest >> UNIT_BITS)
    rest = ((middle & _LOW) != 0) | ((lowest & _LOW) != 0)
    return high * high_share + (middle >> UNIT_BITS) + rest
