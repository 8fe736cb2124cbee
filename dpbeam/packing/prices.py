"""Prices from log-weights, the same on every machine.

Multiplicative weights over the resources and a dummy whose weight stays one: prices are p_max exp(theta_j) over the
sum. Log-weights are integers, exponentials are correctly rounded decimals, and prices are rounded down to a power of
two, so that a replay, a retry and another platform post the same prices.
"""

from __future__ import annotations

import decimal
from fractions import Fraction

import numpy as np

from dpbeam.packing.market import PRICE_BITS

THETA_BITS = 40  # log-weights are multiples of 2^-40
_CONTEXT = decimal.Context(prec=34, rounding=decimal.ROUND_HALF_EVEN, Emin=-999_999, Emax=999_999)
_FLOOR = -200  # e^-200 of the largest price is below any grid


def price_bits(largest: Fraction) -> int:
    """Bits b such that prices of sum `largest` are at most 2^31 units of 2^-b.

    Raises: ValueError if there are none.
    """
    for bits in range(PRICE_BITS, -1, -1):
        if largest * (1 << bits) <= 1 << PRICE_BITS:
            return bits
    raise ValueError(f"prices up to {float(largest):g} leave the fixed point")


def prices_of(theta: np.ndarray, largest: Fraction, bits: int) -> np.ndarray:
    """Prices of sum at most `largest`, the dummy's included: (m,) int64 units of 2^-bits.

    Args:
      theta: (m,) int64 log-weights, units of 2^-40; the dummy's is 0.
    """
    top = max(0, int(theta.max(initial=0)))
    with decimal.localcontext(_CONTEXT):
        unit = decimal.Decimal(1 << THETA_BITS)
        powers = [(decimal.Decimal(max(int(t) - top, _FLOOR << THETA_BITS)) / unit).exp() for t in theta]
        dummy = (decimal.Decimal(max(-top, _FLOOR << THETA_BITS)) / unit).exp()
        scale = decimal.Decimal((largest.numerator << bits) // largest.denominator) / (sum(powers) + dummy)
        prices = [int(power * scale) for power in powers]
    return np.array(prices, np.int64)


def step(theta: np.ndarray, gradient: np.ndarray, size: Fraction) -> np.ndarray:
    """Log-weights after a step of this size against the gradient, in exact arithmetic, rounded down.

    Args:
      gradient: (m,) int64 in any unit; size: per that unit.
    """
    numerator, denominator = size.numerator << THETA_BITS, size.denominator
    moved = [int(t) - (int(g) * numerator) // denominator for t, g in zip(theta, gradient)]
    limit = 1 << 60
    return np.array([max(-limit, min(limit, t)) for t in moved], np.int64)
