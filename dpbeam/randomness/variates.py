"""Random variates from 128 pseudo-random bits each, accurate far into the tails.

Every function takes (n, 2) uint64 bits and returns n float64. The smallest tail probability that can occur is
2^-128, so no variate is infinite and no tail is cut where a threshold could be.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

_TWO_64 = 2.0**-64


def gaussian(bits: np.ndarray) -> np.ndarray:
    """Standard normal variates.

    One sign bit; the two-sided tail probability p = (k + f) 2^-63 comes from the 63 other bits of the first
    word, with the fraction f from the second word, which matters only where k is small.
    """
    k = (bits[:, 0] & np.uint64(2**63 - 1)).astype(np.float64)
    tail = (k + (bits[:, 1].astype(np.float64) + 0.5) * _TWO_64) * 2.0**-63
    magnitude = -ndtri(np.minimum(tail, 1.0) * 0.5)
    return np.where(bits[:, 0] >> np.uint64(63), -magnitude, magnitude)


def exponential(bits: np.ndarray) -> np.ndarray:
    """Standard exponential variates -ln(U), with full relative accuracy at both ends."""
    upper = (bits[:, 0] >> np.uint64(63)).astype(bool)  # U >= 1/2: work with V = 1 - U instead
    word = np.where(upper, ~bits[:, 0], bits[:, 0])
    low = np.where(upper, ~bits[:, 1], bits[:, 1]).astype(np.float64)
    v = (word.astype(np.float64) + (low + 0.5) * _TWO_64) * _TWO_64
    v = np.minimum(v, 0.5)
    return np.where(upper, -np.log1p(-v), -np.log(v))


def gumbel(bits: np.ndarray) -> np.ndarray:
    """Standard Gumbel variates -ln(-ln(U))."""
    return -np.log(exponential(bits))
