"""Uniform bits by item and use, and coins that compare 128 of them with an exact probability.

A keyed uniform number is a 128-bit word (first column high, second low), read as an integer u in [0, 2^128). The
coin `u < t` shows true with probability t 2^-128 exactly: no floating-point number takes part. Where more uniform
digits are wanted, a draw takes a further *use* of the same item: an independent word under a key of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np

from dpbeam.randomness.prf import RunKey, prf_bits

WORD_BITS = 128
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


def coins(bits: np.ndarray, probability: float | Fraction) -> np.ndarray:
    """Coins of one probability, which is taken at its exact value and rounded down to a multiple of 2^-128.

    Args:
      bits: (n, 2) uint64, a word for each coin.
      probability: between 0 and 1; a coin is certain for 1 alone.

    Returns:
      (n,) bool, each true with probability floor(probability 2^128) 2^-128 exactly.

    Raises: ValueError if the probability is not in [0, 1].
    """
    if not 0 <= probability <= 1:  # also false for NaN
        raise ValueError(f"a probability must lie in [0, 1], got {probability}")
    threshold = math.floor(Fraction(probability) * (1 << WORD_BITS))
    if threshold == 1 << WORD_BITS:  # above every word
        return np.ones(len(bits), bool)
    return below(bits, np.array([[threshold >> 64, threshold & _LOW]], np.uint64))


def exp_fixed(x: Fraction, bits: int) -> int:
    """floor(exp(-x) 2^bits) or its neighbour below or above, for 0 <= x: correctly rounded decimals, ample digits."""
    with localcontext() as context:
        context.prec = bits * 31 // 100 + 30
        context.Emin, context.Emax = -(10**9), 10**9
        value = (-(Decimal(x.numerator) / Decimal(x.denominator))).exp()
        return int(value * Decimal(1 << bits))
