"""Uniform bits by item and use, and coins that compare 128 of them with an exact probability.

A keyed uniform number is a 128-bit word (first column high, second low), read as an integer u in [0, 2^128). The
coin `u < t` shows true with probability t 2^-128 exactly: no floating-point number takes part. Where more uniform
digits are wanted, a draw takes a further *use* of the same item: an independent word under a key of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np

from dpbeam.randomness.prf import RunKey, prf_bits

WORD_BITS = 128
CERTAIN = 1 << WORD_BITS  # the threshold of a coin that always shows true
_LOW = (1 << 64) - 1

# bits(use, rows): 128 uniform bits, (len(rows), 2) uint64, of the items `rows` (a slice or an array of indices).
Bits = Callable[[int, "slice | np.ndarray"], np.ndarray]


class KeyedBits:
    """Words of the items of one noise label: a pseudo-random function of (label, use, fingerprint).

    Args:
      run_key: the run's key.
      label: names stage and round; never one label for two laws of noise on different data.
      fingerprint: (n, 2) uint64.
    """

    def __init__(self, run_key: RunKey, label: str, fingerprint: np.ndarray):
        self._run_key = run_key
        self._label = label
        self._fingerprint = fingerprint
        self._keys: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self._fingerprint)

    def __call__(self, use: int, rows: slice | np.ndarray) -> np.ndarray:
        """128 bits of the given items for this use, (rows, 2) uint64."""
        if use not in self._keys:
            self._keys[use] = self._run_key.derive(f"{self._label}/use {use}")
        return prf_bits(self._keys[use], self._fingerprint[rows])


def below(bits: np.ndarray, limit: np.ndarray) -> np.ndarray:
    """u < limit for each row of two (n, 2) uint64 arrays of 128-bit numbers, (n,) bool."""
    high, low = bits[:, 0], bits[:, 1]
    return (high < limit[:, 0]) | ((high == limit[:, 0]) & (low < limit[:, 1]))


@dataclass(frozen=True)
class Coins:
    """Thresholds of coins: coin i shows true with probability t_i 2^-128.

    Attributes:
      limit: (n, 2) uint64, t_i modulo 2^128.
      certain: (n,) bool, true where t_i = 2^128.
    """

    limit: np.ndarray
    certain: np.ndarray

    @classmethod
    def of(cls, thresholds: Iterable[int]) -> Coins:
        """From integers in [0, 2^128].

        Raises: ValueError if one is out of range.
        """
        values = [int(t) for t in thresholds]
        if any(not 0 <= t <= CERTAIN for t in values):
            raise ValueError("a coin's threshold must lie in [0, 2^128]")
        limit = np.array([[(t >> 64) & _LOW, t & _LOW] for t in values], np.uint64).reshape(-1, 2)
        return cls(limit, np.array([t == CERTAIN for t in values], bool))

    def take(self, index: np.ndarray) -> Coins:
        """One coin per entry of `index`, for items that share a public sequence of probabilities."""
        return Coins(self.limit[index], self.certain[index])


def bernoulli(bits: np.ndarray, coins: Coins) -> np.ndarray:
    """Exact coins, (n,) bool: row i of the (n, 2) uint64 bits, read as u, shows u < t_i."""
    if len(bits) != len(coins.certain):
        raise ValueError(f"{len(bits)} words for {len(coins.certain)} coins")
    return below(bits, coins.limit) | coins.certain


def threshold_128(probability: float | int | Fraction, rounding: str) -> int:
    """A probability as a threshold in [0, 2^128], rounded "down" or "up" to a multiple of 2^-128.

    Floats are taken at their exact value.

    Raises: ValueError if it is not in [0, 1], or the direction is unknown.
    """
    _check_rounding(rounding)
    if not 0 <= probability <= 1:  # also false for NaN
        raise ValueError(f"a probability must lie in [0, 1], got {probability}")
    exact = Fraction(probability) * CERTAIN
    return exact.__floor__() if rounding == "down" else exact.__ceil__()


def exponential_threshold(x: float | int | Fraction, rounding: str) -> int:
    """The threshold of a coin of probability exp(-x), x >= 0, rounded "down" or "up" by at most two steps.

    Raises: ValueError if x is negative or NaN, or the direction is unknown.
    """
    _check_rounding(rounding)
    if not x >= 0:
        raise ValueError(f"exp(-x) is a probability for x >= 0 only, got {x}")
    if x == 0:
        return CERTAIN
    if x > 128:  # below 2^-128
        return 0 if rounding == "down" else 1
    nearest = exp_fixed(Fraction(x), WORD_BITS)  # within one step, whichever side
    return max(0, nearest - 1) if rounding == "down" else min(CERTAIN, nearest + 1)


def exp_fixed(x: Fraction, bits: int) -> int:
    """floor(exp(-x) 2^bits) or its neighbour below or above, for 0 <= x: correctly rounded decimals, ample digits."""
    with localcontext() as context:
        context.prec = bits * 31 // 100 + 30
        context.Emin, context.Emax = -(10**9), 10**9
        value = (-(Decimal(x.numerator) / Decimal(x.denominator))).exp()
        return int(value * Decimal(1 << bits))


def _check_rounding(rounding: str) -> None:
    if rounding not in ("down", "up"):
        raise ValueError(f"rounding must be 'down' or 'up', got {rounding!r}")
