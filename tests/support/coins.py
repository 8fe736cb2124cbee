"""Sequences of coins as earlier versions released by, which their ledgers hold."""

from __future__ import annotations

import math

import numpy as np

from dpbeam.accounting.coins import CoinCurve, bit_divergence
from dpbeam.accounting.gaussian import check_positive

_BISECTIONS = 60


def refined(curve: CoinCurve, grid: int) -> CoinCurve:
    """The same curve with `grid` steps in a weight of 1, whose probabilities grow geometrically from 1 to 2."""
    low, high = curve.corners[0]
    start = (low * (high / low) ** (j / grid) for j in range(1, grid))
    return CoinCurve(curve.corners, tuple(math.ldexp(math.floor(math.ldexp(p, 128)), -128) for p in start))


def renyi_curve(order: float, divergence: float, novel: float, corners: int = 64) -> CoinCurve:
    """The fastest sequence whose steps have at most this Renyi divergence of this order, in both directions.

    Corners are on it, and what is between them is below.

    Args:
      order: alpha > 1.
      divergence: per item that moves by one.
      novel: p_1.
      corners: up to the middle, where x + C(x) = 1.
    """
    check_positive("divergence", divergence)
    middle = _middle(order, divergence)
    if middle <= novel:
        return CoinCurve.through([(novel, 1 - novel * (1 + 2.0**-40))])
    # Evenly in the logarithm where items are rare, in the arcsine where they are not.
    often = min(max(0.05, novel), middle)
    rare = np.exp(np.linspace(math.log(novel), math.log(often), corners // 2, endpoint=False))
    angles = np.linspace(math.asin(math.sqrt(often)), math.asin(math.sqrt(middle)), corners // 2)
    x = np.concatenate((rare, np.sin(angles) ** 2))
    y = np.append(_largest(x[:-1], order, divergence), 1 - middle)
    return CoinCurve.through(zip(x.tolist(), y.tolist()))


def _largest(x: np.ndarray, order: float, divergence: float) -> np.ndarray:
    """The largest y with both divergences between B(x) and B(y) at most `divergence`, by bisection."""
    start = np.log(x) - np.log1p(-x)
    low, high = np.zeros_like(x), np.full_like(x, 100.0)
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        fits = bit_divergence(start, start + middle, order) <= divergence
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    return 1.0 / (1.0 + np.exp(-(start + low)))


def _middle(order: float, divergence: float) -> float:
    """x with C(x) = 1 - x."""
    low, high = 0.0, 100.0
    for _ in range(_BISECTIONS):
        logit = 0.5 * (low + high)
        fits = bool(bit_divergence(np.array(-logit), np.array(logit), order) <= divergence)
        low, high = (logit, high) if fits else (low, logit)
    return 1.0 / (1.0 + math.exp(low))
