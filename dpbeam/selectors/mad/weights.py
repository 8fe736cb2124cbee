"""What one user adds to its items, biased by an earlier noisy round.

All results are integers in units of 2^-30 with an exact l2 norm of at most one per user.
"""

from __future__ import annotations

import numpy as np

from dpbeam.kernels.csr import Csr
from dpbeam.kernels.grid import floor_to_unit_norm

# Relative slack below which a user's norm counts as one; spends no privacy, only ends the scaling.
_NORM_DONE = 1e-12


def user_weights(rows: Csr, bias: np.ndarray, b_min: float, b_max: float) -> np.ndarray:
    """UserWeights of MAD with biases (Chen et al. 2025, Algorithm 4), for all users at once.

    A user with d items gives an item of bias b < 1 weight max(b_min, b)/sqrt(d) and shares what is left of its
    unit of squared weight evenly among the others, up to b_max/sqrt(d) each; slack that remains is spread over
    the items below 1/sqrt(d) by scaling them up.

    Args:
      rows: users' items.
      bias: (pairs,) float64 in [0, 1].
      b_min, b_max: bounds on the bias of a weight, in [0.5, 1] and [1, inf).

    Returns:
      (pairs,) int64 units; each weight is within [b_min, b_max]/sqrt(d) up to two grid steps below.

    Raises:
      ValueError: a bias is not a number in [0, 1].
    """
    if len(bias) and not (bias.min() >= 0.0 and bias.max() <= 1.0):  # also false for NaN
        raise ValueError("biases must be numbers in [0, 1]")
    rows = rows.filled()
    degrees = rows.degrees.astype(np.float64)
    # In units of 1/sqrt(d): values in [b_min, b_max], sum of squares of a user at most d.
    value = np.where(bias < 1.0, np.maximum(b_min, bias), 0.0)
    unbiased = bias >= 1.0
    left = degrees - rows.row_sums(np.square(value))
    sharers = rows.row_sums(unbiased.astype(np.float64))
    share = np.minimum(b_max, np.sqrt(np.maximum(left, 0.0) / np.maximum(sharers, 1.0)))
    value[unbiased] = rows.per_pair(share)[unbiased]
    _scale_up_small(rows, value, b_max)
    weight = value / np.sqrt(rows.per_pair(degrees))
    return floor_to_unit_norm(np.minimum(weight, 1.0), rows.offsets)


def _scale_up_small(rows: Csr, value: np.ndarray, b_max: float) -> None:
    """Scale the items below 1 of users whose sum of squares is below d, in place, until none is left.

    Each step either brings a user's norm to its bound or lifts at least its largest small item to 1 or above, so a
    user with d items needs at most d steps.
    """
    degrees = rows.degrees.astype(np.float64)
    open_rows = rows.row_sums(np.square(value)) < degrees * (1.0 - _NORM_DONE)
    pairs = np.flatnonzero(rows.per_pair(open_rows))
    active, _ = rows.select_rows(open_rows)
    while len(pairs):
        current = value[pairs]
        need = active.degrees.astype(np.float64)
        small = current < 1.0 - _NORM_DONE  # an item lifted to 1 may land one rounding below it
        squares = np.square(current)
        total = active.row_sums(squares)
        small_total = active.row_sums(np.where(small, squares, 0.0))
        largest = np.maximum.reduceat(np.where(small, current, 0.0), active.offsets[:-1])
        movable = small_total > 0.0
        with np.errstate(divide="ignore", invalid="ignore"):
            factor = np.minimum(b_max / largest, np.sqrt(1.0 + (need - total) / small_total))
        factor = np.where(movable, factor, 1.0)
        value[pairs] = np.where(small, current * active.per_pair(factor), current)
        total = active.row_sums(np.square(value[pairs]))
        still = movable & (total < need * (1.0 - _NORM_DONE)) & (factor > 1.0 + _NORM_DONE)
        active, kept = active.select_rows(still)
        pairs = pairs[kept]
