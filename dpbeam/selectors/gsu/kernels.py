"""Group-sequential union: how users fill their unit of weight, and how items score their own history."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpbeam.kernels.csr import Csr, joined, sums_at
from dpbeam.kernels.grid import floor_to_unit_norm
from dpbeam.selectors.gsu.presets import ScoreConstants

SCORE_ONE = (1 << 16) - 1  # scores travel, and enter the state, as multiples of 1/65535
_SMALLEST_SCORE = 1e-3


def item_weights(rows: Csr, caps: np.ndarray, score: np.ndarray | None, num_items: int) -> np.ndarray:
    """What all users together add to each item, (num_items,) int64 units.

    Args:
      rows: users' items.
      caps: (largest degree + 1,) float64 in (0, 1], a user's cap by its degree.
      score: (num_items,) uint16 multiples of 1/65535, 0 for an item that gets nothing; None: one for every item.
    """

    def filled(part: Csr) -> tuple[np.ndarray, np.ndarray]:
        bars = caps.take(part.degrees)
        if score is None:
            return part.links, fill_weights(part, np.ones(len(part.links)), bars)
        units = score.take(part.links)
        kept = units > 0
        part = part.restrict(kept)
        return part.links, fill_weights(part, np.compress(kept, units) * (1.0 / SCORE_ONE), bars)

    links, weights = joined(filled(part) for _, _, part in rows.parts())
    return sums_at(links, weights, num_items)


def fill_weights(rows: Csr, score: np.ndarray, caps: np.ndarray) -> np.ndarray:
    """`fill_to` with one cap for all items of a user.

    Args:
      caps: (rows,) float64 in (0, 1], the cap of each user's *original* degree.
    """
    filled = rows.filled()
    if filled is not rows:
        caps = np.compress(rows.degrees > 0, caps)
    return fill_to(filled, score, filled.per_pair(caps))


def fill_to(rows: Csr, score: np.ndarray, bar: np.ndarray) -> np.ndarray:
    """x = min(bar, s score) per pair, with the largest s for which each user's l2 norm is at most one.

    Args:
      rows: users' items with a positive score.
      score: (pairs,) float64 > 0.
      bar: (pairs,) float64 in (0, 1], the cap of each pair.

    Returns:
      (pairs,) int64 units, at most the cap rounded down, and exact l2 norm at most one per user.
    """
    rows = rows.filled()
    if not len(rows.links):
        return np.zeros(0, np.int64)
    squares = np.square(score)
    scale = 1.0 / np.sqrt(rows.row_sums(squares))
    weight = score * rows.per_pair(scale)
    _settle_capped(rows, weight, score, squares, bar)
    # Rounded down like the weights, which are at most their bars, the bars bound the units.
    return floor_to_unit_norm(np.minimum(np.minimum(weight, bar), 1.0), rows.offsets)


def _settle_capped(
    rows: Csr, weight: np.ndarray, score: np.ndarray, squares: np.ndarray, bar: np.ndarray
) -> None:
    """Fix items at their cap and share the rest of the norm among the others, in place, until none exceeds.

    The scale only grows, so an item once at its cap stays there, and a user with d items needs at most d steps.
    """
    above = weight > bar
    if not above.any():
        return
    over = rows.row_sums(above.astype(np.int64)) > 0
    pairs = np.flatnonzero(rows.per_pair(over))
    active, _ = rows.select_rows(over)
    while len(pairs):
        capped = weight[pairs] >= bar[pairs]
        used = active.row_sums(np.where(capped, np.square(bar[pairs]), 0.0))
        free = active.row_sums(np.where(capped, 0.0, squares[pairs]))
        room = np.maximum(1.0 - used, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            scale = np.where(free > 0.0, np.sqrt(room / free), 0.0)
        weight[pairs] = np.where(capped, bar[pairs], score[pairs] * active.per_pair(scale))
        still = active.row_sums(((weight[pairs] > bar[pairs]) & ~capped).astype(np.int64)) > 0
        active, kept = active.select_rows(still)
        pairs = pairs[kept]


@dataclass(frozen=True)
class Checkpoint:
    """Public numbers at a checkpoint k: G_k, V_k, those of the checkpoint that it aims at, rho there, and sigma."""

    drift: float
    variance: float
    final_drift: float
    final_threshold: float
    sigma: float
    final_variance: float = 1.0


def score_units(
    z: np.ndarray, y: np.ndarray, a: np.ndarray, at: Checkpoint, constants: ScoreConstants
) -> np.ndarray:
    """Scores of undecided items in multiples of 1/65535, 0 where the score is below 1e-3.

    A function of the item's own noisy history alone, coordinate by coordinate; anything that looks at other items
    of the data would break the guarantee.

    Args:
      z, y, a: (items,) float64 accumulators Z, Y, A of the item.

    Raises:
      ValueError: a score is not a number.
    """
    return in_units(outlook_score(z, y, a, at, constants))


def outlook_score(
    z: np.ndarray, y: np.ndarray, a: np.ndarray, at: Checkpoint, constants: ScoreConstants
) -> np.ndarray:
    """Scores in [0, 1], (items,) float64; arguments as of `score_units`."""
    rest = at.final_drift - at.drift
    estimate = y / a
    spread = at.sigma * np.sqrt(rest * rest / a + max(at.final_variance - at.variance, 0.0))
    outlook = (z + constants.g * rest * estimate - at.final_threshold) / spread
    shift = constants.a + constants.a1 * (at.variance - 0.5)
    width = constants.k1 * np.exp(constants.kk * (at.variance - 0.5))
    below = np.minimum(0.0, outlook + shift) / width
    above = np.maximum(0.0, outlook - constants.b) / constants.k2
    return np.exp(-0.5 * (np.square(below) + np.square(above)))


def in_units(score: np.ndarray) -> np.ndarray:
    """Scores as they travel, (items,) uint16.

    Raises:
      ValueError: a score is not a number.
    """
    if np.isnan(score).any():
        raise ValueError("a score is not a number: the score constants are out of range")
    return np.where(score < _SMALLEST_SCORE, 0, np.rint(score * SCORE_ONE)).astype(np.uint16)
