"""Fixed point: weights are integers in units of 2^-30.

Integer sums do not depend on order, so adding a user never changes how anybody else's weights round, and a
retried or re-bundled step gives the same sums. A user's contributions are rounded *down*, hence norms never
exceed their bound; thresholds are rounded *up*. 64-bit sums hold 2^33 users of weight one.
"""

from __future__ import annotations

import math

import numpy as np

from dpbeam.kernels.csr import integer_row_sums, running_sums, segment_rows

UNIT_BITS = 30
UNITS = 1 << UNIT_BITS  # units in a weight of one
NORM_UNITS = 1 << (2 * UNIT_BITS)  # squared l2 norm of one, in squared units
_TOO_LARGE = "a row's l2 norm is above one"


def uniform_l2_units(max_degree: int) -> np.ndarray:
    """Largest integer x_d with d x_d^2 <= 2^60, for d = 0..max_degree (entry 0 is 0). int64, exact."""
    table = l2_units(np.maximum(np.arange(max_degree + 1, dtype=np.int64), 1))
    table[0] = 0
    return table


def l2_units(degrees: np.ndarray) -> np.ndarray:
    """Largest integer x with d x^2 <= 2^60 for each d of `degrees`, int64 >= 1. int64, exact."""
    bound = NORM_UNITS // degrees
    root = np.floor(np.sqrt(bound.astype(np.float64))).astype(np.int64)
    root -= root * root > bound  # a root of at most 2^30 is off by one at most
    root += (root + 1) * (root + 1) <= bound
    return root


def uniform_l1_units(max_degree: int) -> np.ndarray:
    """Largest integer x_d with d x_d <= 2^30, for d = 0..max_degree (entry 0 is 0). int64, exact."""
    table = UNITS // np.maximum(np.arange(max_degree + 1, dtype=np.int64), 1)
    table[0] = 0
    return table


def threshold_units(threshold: float) -> int:
    """A threshold that was calibrated for continuous noise, on the grid: rounded up, and one unit more.

    Integer noise is at most one unit above its continuous counterpart (`dpbeam.accounting.discrete`).
    """
    if not math.isfinite(threshold):
        raise ValueError(f"threshold must be finite, got {threshold}")
    return math.ceil(threshold * UNITS) + 1


def public_grid(sigma: float) -> float:
    """Spacing for released noisy weights: a power of two near sigma / 1024 (Mironov 2012)."""
    return 2.0 ** round(math.log2(sigma / 1024))


def floor_to_unit_norm(weights: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Round rows of weights down to the grid so that no row's exact integer l2 norm exceeds one.

    Floating-point rows may exceed norm one by a few parts in 2^50; rounding down almost always absorbs that,
    and the rows where it does not lose one step per entry until it does.

    Args:
      weights: (n,) float64 in [0, 1]; row r is weights[offsets[r]:offsets[r + 1]], of l2 norm at most 1 + 1e-9.
      offsets: (rows + 1,) int64, no row empty.

    Returns:
      (n,) int64 units with sum of squares at most 2^60 in every row.

    Raises:
      ValueError: a weight is not a number in [0, 1 + 1e-9], or a row's norm is far above one.
    """
    if not len(weights):
        return np.zeros(0, np.int64)
    if not (weights.min() >= 0.0 and weights.max() <= 1.0 + 1e-9):  # also false for NaN
        raise ValueError("weights must be numbers in [0, 1]")
    whole = np.floor(weights * UNITS)
    units = whole.astype(np.int64)
    sums = np.add.reduceat(np.square(whole), offsets[:-1])
    if sums.max() > NORM_UNITS * (1.0 + 1e-8):
        raise ValueError(_TOO_LARGE)
    # A sum of n squares is off by n parts in 2^53 at most: exact sums, which do not wrap around here, decide the rest.
    lengths = np.diff(offsets)
    near = np.flatnonzero(sums > NORM_UNITS * (1.0 - (lengths - 1) * 2.0**-51))
    if len(near):
        lengths = lengths.take(near)
        pairs = segment_rows(offsets.take(near), lengths)
        values, places = units.take(pairs), running_sums(lengths)
        while (inside := integer_row_sums(values * values, places) > NORM_UNITS).any():
            values = np.maximum(values - np.repeat(inside, lengths), 0)
        units[pairs] = values
    return units
