"""MaxAdaptiveDegree: initial weights, excess ratios and rerouting on integers (Chen et al. 2025, Algorithm 2).

Rounding must not break the sensitivity proof, although one new user can move the excess of many others:

- initial weights x_d = floor(2^30 / d) are exact integers, so are their sums;
- the excess ratio r(i) = 1 - tau / w_init(i) is one correctly rounded division of integers below 2^53, rounded
  down to 2^-52, hence monotone; w_init is clipped at 2^23 for this purpose only;
- a user's rerouted weight is coefficient_d * (sum of its r), a product of integers: linear, no rounding at all.
  Products in units of 2^-76 are summed exactly (whole units, and a fraction in two limbs of 23 bits);
- the noise is added on the grid of the fraction, 2^-76; the fraction is dropped afterwards.

What is left is the rounding of r, which changes the rerouted total by at most eta times the excess gamma that
the new user caused (`reroute_discount`), and weights up to two grid steps below 1/sqrt(d). Both shrink alpha.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from dpbeam.kernels.csr import Csr, joined, sums_at
from dpbeam.kernels.grid import UNITS, uniform_l1_units
from dpbeam.selectors.mad.degrees import MAX_ADAPTIVE_DEGREE, MIN_ADAPTIVE_DEGREE

RATIO_BITS = 52
_COEFFICIENT_BITS = 24
FRACTION_BITS = RATIO_BITS + _COEFFICIENT_BITS - 30  # 46
_CLIP = (1 << 53) - 1


def reroute_discount(b_min: float, max_adaptive_degree: int, tau: float) -> float:
    """alpha = b_min - 1/(2 sqrt(d_max)) (Chen et al. 2025, eq. 5), less what rounding may cost.

    With the new user's excess gamma, at least 2^-30 where it is not zero: an item that passes tau by the new
    user moves its rerouted total by at most 1.5 (tau + 1) 2^-52 off the real number, an item above tau before by
    at most 3 * 2^23 * 2^-52, against a gamma of at least 1/(2 d_max). So the rerouted total grows by at most
    (1 + eta) gamma. Direct weights are at least b_min/sqrt(d) - 2^-29. The proof's inequality
    alpha gamma / sqrt(d_max) + sqrt(1 - 2 gamma (b_min/sqrt(d_max) - 2^-29) + gamma/d_max) <= 1 then holds.
    """
    root = math.sqrt(max_adaptive_degree)
    eta = 1.5 * (tau + 1.0) * 2.0**-22 + 6.0 * max_adaptive_degree * 2.0**-29
    alpha = b_min - 1.0 / (2.0 * root) - root * 2.0**-29
    return max(0.0, alpha / (1.0 + eta) * (1.0 - 1e-12))


@dataclass(frozen=True)
class MadTables:
    """Public constants of one MAD round.

    Attributes:
      min_degree, max_degree: adaptive users hold between these many items.
      initial: (max_degree + 1,) int64 units, the initial weight by degree.
      coefficient: (max_degree + 1,) int64 in units of 2^-24, alpha x_d / d_max rounded down.
      tau_units: the adaptive threshold on the grid, rounded up.
    """

    min_degree: int
    max_degree: int
    initial: np.ndarray
    coefficient: np.ndarray
    tau_units: int

    @classmethod
    def create(cls, *, tau: float, max_adaptive_degree: int, b_min: float) -> MadTables:
        """Tables for adaptive threshold `tau`; see `dpbeam.selectors.mad` for the preconditions.

        Raises:
          ValueError: outside the preconditions of the sensitivity proof.
        """
        if not tau >= 1.0:
            raise ValueError(f"MAD needs tau >= 1, got {tau}")
        if not MIN_ADAPTIVE_DEGREE <= max_adaptive_degree <= MAX_ADAPTIVE_DEGREE:
            bounds = f"{MIN_ADAPTIVE_DEGREE} <= d_max <= {MAX_ADAPTIVE_DEGREE}"
            raise ValueError(f"MAD needs {bounds}, got {max_adaptive_degree}")
        if not 0.5 <= b_min <= 1.0:
            raise ValueError(f"MAD needs b_min in [0.5, 1], got {b_min}")
        initial = uniform_l1_units(max_adaptive_degree)
        alpha = reroute_discount(b_min, max_adaptive_degree, tau)
        scale = alpha / max_adaptive_degree * 2.0 ** (_COEFFICIENT_BITS - 30)
        coefficient = np.floor(initial * scale * (1.0 - 1e-12)).astype(np.int64)
        return cls(
            min_degree=math.ceil(1.0 / (b_min * b_min) - 1e-12),
            max_degree=max_adaptive_degree,
            initial=initial,
            coefficient=coefficient,
            tau_units=math.ceil(tau * UNITS),
        )

    def adaptive(self, degrees: np.ndarray) -> np.ndarray:
        """(rows,) bool: users that take part in the rerouting."""
        return (degrees >= self.min_degree) & (degrees <= self.max_degree)

    def of_adaptive(self, values: np.ndarray, degrees: np.ndarray) -> np.ndarray:
        """(rows,) of a table by degree, such as `initial`; 0 for users that take no part in the rerouting."""
        by_degree = np.where(self.adaptive(np.arange(len(values))), values, 0)
        return np.append(by_degree, 0)[np.minimum(degrees, len(values))]


def initial_sums(rows: Csr, tables: MadTables, num_items: int, kept: np.ndarray | None = None) -> np.ndarray:
    """w_init: every adaptive user adds x_d to each of its items. (num_items,) int64 units.

    Args:
      kept: (pairs,) bool, the pairs that count; None: all.
    """
    links, weights = joined(
        (part.links, part.per_pair(tables.of_adaptive(tables.initial, part.degrees)))
        for part in _kept_parts(rows, kept)
    )
    return sums_at(links, weights, num_items)


def _kept_parts(rows: Csr, kept: np.ndarray | None) -> Iterator[Csr]:
    for _, pairs, part in rows.parts():
        yield part if kept is None else part.restrict(kept[pairs]).filled()


def excess_ratio(initial: np.ndarray, tau_units: int) -> np.ndarray:
    """r(i) = max(0, (w_init - tau) / w_init) in units of 2^-52, rounded down. (n,) int64.

    The published listing prints min for max, which would never reroute anything.
    """
    clipped = np.minimum(initial, _CLIP)
    excess = np.maximum(clipped - tau_units, 0).astype(np.float64)
    ratio = excess / np.maximum(clipped, 1).astype(np.float64)
    return np.floor(ratio * 2.0**RATIO_BITS).astype(np.int64)


def second_sums(
    rows: Csr,
    tables: MadTables,
    direct: Callable[[Csr], np.ndarray],
    ratio: np.ndarray,
    num_items: int,
    kept: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What users add in the second trip: direct weight less the initial weight, plus rerouted excess.

    Two passes over the pairs: sums in units of 2^-38 and of the rest in units of 2^-76, both below 2^39 for each user.

    Args:
      direct: the units that some rows give to each of their pairs, int64, 1/sqrt(d) or the biased weights.
      ratio: (num_items,) int64, `excess_ratio` of the block's items.
      kept: (pairs,) bool, the pairs that count; None: all.

    Returns:
      whole: (num_items,) int64 units; high, low: (num_items,) int64 in [0, 2^23), the rest in units of 2^-53 and
      2^-76. Two limbs: the sums of a million blocks stay far below 2^63.

    Raises:
      ValueError: more than 2^23 users, whose sums might not fit.
    """
    if len(rows.offsets) - 1 > _MOST_USERS:
        raise ValueError(f"a block has at most {_MOST_USERS} users, got {len(rows.offsets) - 1}")
    links, coarse, fine = joined(
        (part.links, *_second_units(part, tables, direct(part), ratio)) for part in _kept_parts(rows, kept)
    )
    sums, rest = sums_at(links, coarse, num_items), sums_at(links, fine, num_items)
    sums += rest >> _FINE_BITS
    rest &= _MASK_FINE
    rest |= (sums & _MASK_COARSE) << _FINE_BITS
    return sums >> _COARSE_BITS, rest >> 23, rest & _MASK_23


def _second_units(
    rows: Csr, tables: MadTables, direct: np.ndarray, ratio: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """What each pair adds: int64 units of 2^-38, and the rest of 2^-76."""
    degrees = rows.degrees
    returned = rows.row_sums(ratio.take(rows.links))
    rerouted, fine = _exact_product(tables.of_adaptive(tables.coefficient, degrees), returned)
    coarse = tables.of_adaptive(-tables.initial << _COARSE_BITS, degrees) + rerouted
    return (direct << _COARSE_BITS) + rows.per_pair(coarse), rows.per_pair(fine)


_MOST_USERS = 1 << 23
_COARSE_BITS = 8  # below a grid unit
_FINE_BITS = FRACTION_BITS - _COARSE_BITS
_MASK_COARSE, _MASK_FINE = (1 << _COARSE_BITS) - 1, (1 << _FINE_BITS) - 1
_MASK_23, _MASK_26 = (1 << 23) - 1, (1 << 26) - 1


def _exact_product(coefficient: np.ndarray, ratio: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """coefficient * ratio, in units of 2^-76, as units of 2^-38 and the rest."""
    high = coefficient * (ratio >> 26)
    low = coefficient * (ratio & _MASK_26)
    high += low >> 26
    shift = _FINE_BITS - 26
    return high >> shift, ((high & ((1 << shift) - 1)) << 26) | (low & _MASK_26)


def total_weight(
    initial: np.ndarray, whole: np.ndarray, high: np.ndarray, low: np.ndarray, tau_units: int
) -> tuple[np.ndarray, np.ndarray]:
    """w = min(w_init, tau) + second trip: int64 units, and an int64 fraction in [0, 2^46) units of 2^-76."""
    high = high + (low >> 23)
    return np.minimum(initial, tau_units) + whole + (high >> 23), ((high & _MASK_23) << 23) | (low & _MASK_23)
