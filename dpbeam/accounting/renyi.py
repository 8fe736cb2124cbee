"""Renyi divergences of a public grid of orders, and what they cost.

A composition whose loss X has E[exp((alpha - 1) X)] <= exp((alpha - 1) D) costs, at epsilon,

    delta = exp((alpha - 1)(D - epsilon)) (1 - 1/alpha)^(alpha - 1) / alpha,

since (1 - exp(epsilon - x))^+ is nowhere above that multiple of exp((alpha - 1) x) (Canonne, Kamath and Steinke 2020,
Proposition 7). X need not have all mass on finite values: what it has at infinity is added to delta.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

#: alpha - 1 from 1/4 to 4096 in quarters of an octave. A composition takes the best that it finds among these.
ORDERS = 1.0 + 2.0 ** (np.arange(-8, 49) / 4.0)
ORDERS.setflags(write=False)
_UNIT = 2.0**-52


def renyi_delta(divergence: ArrayLike, order: ArrayLike, epsilon: float) -> np.ndarray:
    """The delta at `epsilon` of a divergence of this order, rounded up; arrays of one shape."""
    log = _log_delta(np.asarray(divergence), np.asarray(order), epsilon)
    size = (np.asarray(order) - 1) * (np.abs(divergence) + epsilon + 1) + 1
    return np.minimum(np.exp(np.minimum(log, 0.0)) * (1 + 16 * _UNIT * (1 + size)), 1.0)


def _log_delta(divergence: Any, order: Any, epsilon: float) -> Any:
    return (order - 1) * (divergence - epsilon + np.log1p(-1 / order)) - np.log(order)


def best_renyi_delta(divergence: Callable[[float], float], epsilon: float, about: float) -> float:
    """The smallest delta at `epsilon` over the orders, or one that is no smaller: every order's is a bound.

    Its logarithm is convex in the order, so the best one is found by walking downhill.

    Args:
      divergence: by order.
      about: a delta of a size like the one sought, for where to start.
    """

    @functools.cache
    def bound(at: int) -> float:
        return _log_delta(divergence(float(ORDERS[at])), float(ORDERS[at]), epsilon)

    at = lowest(bound, epsilon, min(max(about, 1e-300), 0.5))
    return float(renyi_delta(divergence(float(ORDERS[at])), ORDERS[at], epsilon))


def likely_order(epsilon: float, delta: float) -> float:
    """alpha - 1 near which the best order is found."""
    return 1.2 * math.log(1 / delta) / epsilon


def lowest(value: Callable[[int], float], epsilon: float, delta: float) -> int:
    """The place among ORDERS where what falls and then rises is lowest, by walking from the likely order."""
    at = int(np.argmin(np.abs(ORDERS - 1 - likely_order(epsilon, delta))))
    while at < len(ORDERS) - 1 and value(at) == math.inf:
        at += 1
    for step in (1, -1):
        while 0 <= at + step < len(ORDERS) and value(at + step) < value(at):
            at += step
    return at


def renyi_budget(order: float, epsilon: float, delta: float) -> float:
    """The divergence of this order that costs (epsilon, delta); negative where none does."""
    return epsilon - math.log1p(-1 / order) + (math.log(delta) + math.log(order)) / (order - 1)
