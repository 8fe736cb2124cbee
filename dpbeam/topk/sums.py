"""Running sums whose error does not grow with their length."""

from __future__ import annotations

import math

import numpy as np


def running_sums(values: np.ndarray) -> np.ndarray:
    """Cumulative sums along the last axis, (..., n) float64 of the shape of `values`; -inf stays -inf.

    Plain summation errs by up to n units in the last place, and does where many terms are equal. Here all that
    rounding loses is added up too (Knuth's two-sum), in sqrt(n) lanes at once: two units in the last place remain.
    """
    n = values.shape[-1]
    steps = max(1, math.isqrt(n))
    lanes = -(-n // steps)
    gone = np.isneginf(values)
    out = np.zeros((*values.shape[:-1], lanes * steps))
    out[..., :n] = np.where(gone, 0.0, values)
    sums = out.reshape(*values.shape[:-1], lanes, steps)
    high, low = np.zeros(sums.shape[:-1]), np.zeros(sums.shape[:-1])
    for step in range(steps):
        high, rest = _two_sum(high, sums[..., step])
        low += rest
        sums[..., step] = high + low
    before, lost = np.zeros(sums.shape[:-2]), np.zeros(sums.shape[:-2])
    for lane in range(lanes):
        sums[..., lane, :] = before[..., None] + (lost[..., None] + sums[..., lane, :])
        before, rest = _two_sum(before, high[..., lane])
        lost = lost + (rest + low[..., lane])
    out = out[..., :n]
    out[np.logical_or.accumulate(gone, axis=-1)] = -np.inf
    return out


def _two_sum(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """a + b rounded, and what the rounding lost, exactly."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)
