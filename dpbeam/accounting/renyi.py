"""Renyi divergences of a public grid of orders, and what they cost.

A composition whose loss X has E[exp((alpha - 1) X)] <= exp((alpha - 1) D) costs, at epsilon,

    delta = exp((alpha - 1)(D - epsilon)) (1 - 1/alpha)^(alpha - 1) / alpha,

since (1 - exp(epsilon - x))^+ is nowhere above that multiple of exp((alpha - 1) x) (Canonne, Kamath and Steinke 2020,
Proposition 7). X need not have all mass on finite values: what it has at infinity is added to delta.
"""

from __future__ import annotations

import math

import numpy as np

#: alpha - 1 from 1/4 to 4096 in quarters of an octave. Every composition takes the best of these.
ORDERS = 1.0 + 2.0 ** (np.arange(-8, 49) / 4.0)
ORDERS.setflags(write=False)
_UNIT = 2.0**-52


def renyi_delta(divergence: float | np.ndarray, order: float | np.ndarray, epsilon: float) -> np.ndarray:
    """The delta at `epsilon` of a divergence of this order, rounded up; arrays of one shape."""
    order = np.asarray(order, np.float64)
    log = (order - 1) * (divergence - epsilon + np.log1p(-1 / order)) - np.log(order)
    size = (order - 1) * (np.abs(divergence) + epsilon + 1) + 1
    return np.minimum(np.exp(np.minimum(log, 0.0)) * (1 + 16 * _UNIT * (1 + size)), 1.0)


def renyi_budget(order: float, epsilon: float, delta: float) -> float:
    """The divergence of this order that costs (epsilon, delta); negative where none does."""
    return epsilon - math.log1p(-1 / order) + (math.log(delta) + math.log(order)) / (order - 1)
