"""Noise for counts of which one user moves one by one: the fastest release that (epsilon, delta) allows.

An item that n users chose is released with probability p_n, p_0 = 0 and

    p_(n+1) = min(1, exp(eps) p_n + delta, 1 - exp(-eps) (1 - p_n - delta)),

and no algorithm releases it more often (`limits.py`; Desfontaines, Voss, Gipson and Mandayam 2022). Here the sequence
is a law of integer noise: Z >= theta - n with probability p_n, so n + Z >= theta is that release, and n + Z itself may
be shown. Its mass grows by exp(eps) per step, then falls likewise, and ends where a step costs delta: a geometric law
cut off on both sides.

Guarantee. Vectors of counts over the whole universe of items; neighbours differ by one in at most one coordinate. n + Z
on every coordinate, independent, is (epsilon, delta)-DP. Proof: one coordinate differs, so the claim is that of one
shift. With f_k = p_k - p_(k-1), the mass of Z = theta - k, and any e <= exp(eps) it says

    sum_k max(0, f_(k+1) - e f_k) <= delta    and    sum_k max(0, f_k - e f_(k+1)) <= delta.

`TruncatedGeometric.create` checks both in integers: f_k are multiples of 2^-128, e is one of 2^-256, sums are exact. A
law that fails is never returned. As p_0 = 0, an item that nobody chose never reaches theta, and novel items need
no delta of their own.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction
from typing import ClassVar

import numpy as np

from dpbeam.accounting.gaussian import check_delta, check_positive
from dpbeam.accounting.noise import L1
from dpbeam.accounting.peeling import check_rounds
from dpbeam.accounting.tables import MAX_STEPS, ONE, NoTableError, ReleaseLaw, TableNoise

FACTOR_BITS = 256
_LARGEST_EPSILON = 30.0  # beyond, three users are enough at any delta: exp(eps) is taken as exp(30)


@dataclass(frozen=True, eq=False)
class TruncatedGeometric(ReleaseLaw):
    """The law of Z, from `truncated_geometric`: p_0 = 0, ..., p_m = 2^128, rounded down.

    Attributes:
      epsilon, delta: what releasing n + Z costs.
    """

    epsilon: float
    delta: float

    @classmethod
    def create(cls, epsilon: float, delta: float) -> TruncatedGeometric:
        """The fastest law for this budget.

        Raises: ValueError on an argument out of range; NoTableError, which says what the budget needs and a table
        does not have.
        """
        epsilon, delta = check_positive("epsilon", epsilon), check_delta(delta)
        used = min(epsilon, _LARGEST_EPSILON)
        steps = 4 + 2 * math.log1p(math.expm1(used) / (2 * delta)) / used
        if not steps <= MAX_STEPS:
            raise NoTableError(f"noise over {steps:.3g} counts, more than the {MAX_STEPS} of a table")
        factor = exponential_below(used)
        whole = int(Fraction(delta) * ONE)
        # A mass is off by less than one unit of 2^-128, which a neighbouring mass may multiply by exp(eps).
        unit = whole - 2 * math.ceil(steps * (1 + math.exp(used)))
        if unit < whole - (whole >> 10):
            raise NoTableError("probabilities in steps finer than 2^-128")
        cumulative = _fastest(factor, unit)
        law = cls(cumulative, epsilon, delta)
        if max(law.excess(factor)) > whole << FACTOR_BITS:
            raise ArithmeticError("the noise exceeds its delta")
        return law

    def excess(self, factor: int) -> tuple[int, int]:
        """delta of one more and of one less user at exp(eps) = factor 2^-256, exact, in units of 2^-384."""
        p = self.cumulative
        mass = [0, *(after - before for before, after in itertools.pairwise(p)), 0]
        pairs = list(itertools.pairwise(mass))
        more = sum(max(0, (after << FACTOR_BITS) - factor * before) for before, after in pairs)
        less = sum(max(0, (before << FACTOR_BITS) - factor * after) for before, after in pairs)
        return more, less


@functools.lru_cache(maxsize=8)
def truncated_geometric(epsilon: float, delta: float) -> TruncatedGeometric:
    """`TruncatedGeometric.create`, remembered."""
    return TruncatedGeometric.create(epsilon, delta)


def exponential_below(epsilon: float) -> int:
    """A lower bound on exp(epsilon) in units of 2^-256, off by less than 2^-200 of it; the float is taken as it is."""
    with localcontext() as context:
        context.prec = 200
        context.rounding = ROUND_FLOOR
        value = Decimal(epsilon).exp().next_minus()  # exp is rounded to nearest whatever the context says
        return int(value * (1 << FACTOR_BITS))


def _fastest(factor: int, unit: int) -> tuple[int, ...]:
    """p_0, p_1, ..., 2^128 by the recursion, each rounded down; `unit` is delta."""
    p = [0]
    while p[-1] < ONE:
        last = p[-1]
        rest = ONE - last - unit
        if rest <= 0:
            p.append(ONE)
            break
        grown = (factor * last >> FACTOR_BITS) + unit
        kept = -(-(rest << FACTOR_BITS) // factor)
        p.append(min(grown, ONE - kept))
    return tuple(p)


@dataclass(frozen=True)
class CountNoise(TableNoise):
    """The noise of a round whose sums are counts of which one user moves one by one.

    Attributes:
      epsilon, delta: what releasing all noisy counts of the round costs.
      round: which noisy round, counted from 1.
    """

    epsilon: float
    delta: float
    round: int = 1

    kind: ClassVar[str] = "truncated geometric"  # type: ignore[misc]

    @property
    def norm(self) -> str:
        return L1

    @property
    def bits(self) -> bool:
        return False

    def admits(self, items: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """One count of one item: shares of several are another query, whatever their norm."""
        return (items == 1) & (weight <= 1.0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_positive("epsilon", self.epsilon))
        object.__setattr__(self, "delta", check_delta(self.delta))
        object.__setattr__(self, "round", check_rounds(self.round, "round"))

    @property
    def law(self) -> TruncatedGeometric:
        """The law of the noise."""
        return truncated_geometric(self.epsilon, self.delta)

    def __str__(self) -> str:
        return f"{self.kind} noise of epsilon {self.epsilon:.17g} and delta {self.delta:.17g} in round {self.round}"
