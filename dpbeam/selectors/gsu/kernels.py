"""Group-sequential union: how users fill their unit of weight, and how items score their own history."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from dpbeam.kernels.csr import Csr, joined, running_sums, sums_at, uniform_weights
from dpbeam.kernels.grid import floor_to_unit_norm

if TYPE_CHECKING:
    from dpbeam.selectors.gsu.presets import ScoreConstants

SCORE_ONE = (1 << 16) - 1  # scores travel, and enter the state, as multiples of 1/65535
RELEASED = 1  # travels in place of a score, of which the smallest is 66: the item takes part no more
_SMALLEST_SCORE = 1e-3


@dataclass(frozen=True)
class OpenRows:
    """What is left of a block once released items are out.

    Attributes:
      rows: users that have items left, and these items.
      bars: (rows,) float64 in (0, 1], the cap of each by its degree in the block.
    """

    rows: Csr
    bars: np.ndarray

    @classmethod
    def of(cls, rows: Csr, caps: np.ndarray) -> OpenRows:
        """All of a block.

        Args:
          caps: (largest degree + 1,) float64 in (0, 1], a user's cap by its degree.
        """
        full = rows.filled()
        return cls(full, caps.take(full.degrees))

    @cached_property
    def holders(self) -> np.ndarray:
        """(largest item + 1,) int64: the pairs of each item."""
        return np.bincount(self.rows.links)

    def without_released(self, units: np.ndarray) -> OpenRows:
        """Without released items, if they have half of the pairs.

        Args:
          units: (num_items,) uint16, the score of each item, or RELEASED.
        """
        released = units == RELEASED
        if 2 * int(self.holders[released[: len(self.holders)]].sum()) < len(self.rows.links):
            return self
        kept = ~released.take(self.rows.links)
        return OpenRows(*_with_bars(self.rows.restrict(kept), self.bars))


def first_weights(rows: Csr, caps: np.ndarray, num_items: int) -> np.ndarray:
    """What all users together add to each item where all items count fully, (num_items,) int64 units.

    Args:
      caps: (largest degree + 1,) float64 in (0, 1], a user's cap by its degree.
    """
    degrees = np.flatnonzero(np.bincount(rows.degrees))
    degrees = degrees[degrees > 0]
    one_of_each = Csr(running_sums(degrees), np.zeros(int(degrees.sum()), np.int32))
    units = fill_weights(one_of_each, np.ones(len(one_of_each.links)), caps.take(degrees))
    table = np.zeros(len(caps), np.int64)
    table[degrees] = units.take(one_of_each.offsets[:-1])
    return rows.item_sums(uniform_weights(rows, table), num_items)


def item_weights(left: OpenRows, units: np.ndarray, num_items: int) -> np.ndarray:
    """What all users together add to each item, (num_items,) int64 units.

    Args:
      units: (num_items,) uint16, the score of each item; 0 where it gets nothing now, or RELEASED.
    """

    def filled(rows: slice, _: slice, part: Csr) -> tuple[np.ndarray, np.ndarray]:
        score, bars = units.take(part.links), left.bars[rows]
        kept = score > RELEASED
        places = np.flatnonzero(kept)
        if len(places) < len(kept):
            part, bars = _with_bars(part.restrict(kept, places), bars)
            score = score.take(places)
        return part.links, fill_to(part, score * (1.0 / SCORE_ONE), part.per_pair(bars))

    links, weights = joined(itertools.starmap(filled, left.rows.parts()))
    return sums_at(links, weights, num_items)


def _with_bars(rows: Csr, bars: np.ndarray) -> tuple[Csr, np.ndarray]:
    """The rows that are not empty, and their bars."""
    full = rows.filled()
    return full, bars if full is rows else np.compress(rows.degrees > 0, bars)


def fill_weights(rows: Csr, score: np.ndarray, caps: np.ndarray) -> np.ndarray:
    """`fill_to` with one cap for all items of a user.

    Args:
      caps: (rows,) float64 in (0, 1], the cap of each user's *original* degree.
    """
    filled, caps = _with_bars(rows, caps)
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
    weight = level_weights(rows, score, bar, np.ones(len(rows.degrees)))
    return floor_to_unit_norm(weight, rows.offsets)


def level_weights(rows: Csr, score: np.ndarray, bar: np.ndarray, room: np.ndarray) -> np.ndarray:
    """x = min(bar, s score) per pair, with the largest s for which each user's squared l2 norm is at most its room.

    Args:
      rows: users, none without items.
      score, bar: (pairs,) float64 > 0.
      room: (rows,) float64 >= 0.

    Returns:
      (pairs,) float64, at most the bar, and a squared norm of at most the room but for rounding.
    """
    squares = np.square(score)
    scale = np.sqrt(room) / np.sqrt(rows.row_sums(squares))
    weight = score * rows.per_pair(scale)
    _settle_capped(rows, weight, score, squares, bar, room)
    # Rounded down like the weights, which are at most their bars, the bars bound the units; no bar may be NaN.
    return np.minimum(weight, bar, out=weight)


def _settle_capped(
    rows: Csr,
    weight: np.ndarray,
    score: np.ndarray,
    squares: np.ndarray,
    bar: np.ndarray,
    room: np.ndarray,
) -> None:
    """Fix items at their cap and share the rest of the norm among the others, in place, until none exceeds.

    The scale only grows, so an item once at its cap stays there, and a user with d items needs at most d steps.
    """
    above = np.flatnonzero(weight > bar)
    if not len(above):
        return
    own = rows.rows_of(above)
    active, room = rows.places(own), room.take(own)
    pairs = active.links
    bars, scores, squares, weights = (values.take(pairs) for values in (bar, score, squares, weight))
    while True:
        capped = weights >= bars
        used = active.row_sums(np.where(capped, np.square(bars), 0.0))
        free = active.row_sums(np.where(capped, 0.0, squares))
        left = np.maximum(room - used, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            scale = np.where(free > 0.0, np.sqrt(left / free), 0.0)
        weights = np.where(capped, bars, scores * active.per_pair(scale))
        weight[pairs] = weights
        above = np.flatnonzero(weights > bars)
        if not len(above):
            return
        own = active.rows_of(above)
        active, room = active.places(own), room.take(own)
        pairs, bars, scores, squares, weights = (
            values.take(active.links) for values in (pairs, bars, scores, squares, weights)
        )


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
    """Scores in [0, 1], (items,) float64; for arguments see `score_units`."""
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
