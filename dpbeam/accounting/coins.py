"""Coins: an item that n users hold is released with probability p_n, and nothing else is shown.

`CoinCurve` is a public sequence p_0 = 0 <= p_1 <= p_2 <= ... in few numbers, exact; `divergence` is what it costs per
item in which two inputs differ by one user. The proof is in docs/explanation/bits.md; in short:

One user more moves at most D0 of the n by one. For each of them the bits have the laws B(p_n) and B(p_(n+1)). Let
P, Q be the two in either order, `missing` the mass of P where Q has none (p_1 for n = 0; 1 - p_n where p_(n+1) = 1;
otherwise 0), and D the Renyi divergence of order alpha of the rest of P from Q,

    exp((alpha - 1) D) = sum P^alpha Q^(1 - alpha) over the values of the bit that both have.

Divergences of several items and rounds add, missing masses too, and the total (epsilon, delta) is

    delta = sum of missing + exp((alpha - 1)(sum of D - epsilon)) (1 - 1/alpha)^(alpha - 1) / alpha,   any alpha > 1.

What is drawn for an item is a keyed uniform number of 128 bits, compared with p_n, a multiple of 2^-128.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from dpbeam.accounting.gaussian import check_positive
from dpbeam.accounting.geometric import FACTOR_BITS, exponential_below
from dpbeam.accounting.noise import LINF
from dpbeam.accounting.peeling import check_rounds
from dpbeam.accounting.tables import MAX_STEPS, ONE, NoTableError, ReleaseLaw, TableNoise

_BISECTIONS = 60
_UNIT = 2.0**-52
_TOO_FINE = "probabilities in steps finer than 2^-128"


class BadCurveError(ValueError):
    """Numbers that are no curve."""


@dataclass(frozen=True)
class CoinCurve:
    """p_1 = novel, p_(n+1) = C(p_n) with C linear between corners and its own mirror image.

    C passes through the corners (x, y), of which the first has x = p_1 = novel and the last x + y <= 1, and through
    their mirror images (1 - y, 1 - x). From 1 - y of the first corner on C is 1 - novel, and from 1 - novel on it is 1.

    Attributes:
      corners: (x, y), both increasing, x < y.
      start: where weights are finer than 1, the probabilities between weights 1 and 2 in equal steps. There are
        len(start) + 1 = `grid` steps in a weight of 1; up to 1 all have p_1, and from there on p_(n + grid) = C(p_n).

    Raises: BadCurveError unless all are multiples of 2^-128 in (0, 1) and in order.
    """

    corners: tuple[tuple[float, float], ...]
    start: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        corners = tuple((float(x), float(y)) for x, y in self.corners)
        object.__setattr__(self, "corners", corners)
        object.__setattr__(self, "start", tuple(float(value) for value in self.start))
        values = [*itertools.chain.from_iterable(corners), *self.start]
        if not values or not all(0 < value < 1 and math.ldexp(value, 128).is_integer() for value in values):
            raise BadCurveError("a curve needs multiples of 2^-128 between 0 and 1")
        if not all(x < y for x, y in corners) or not all(
            x < x2 and y <= y2 for (x, y), (x2, y2) in itertools.pairwise(corners)
        ):
            raise BadCurveError("the corners of a curve must increase")
        if sum(map(_units, corners[-1])) > ONE:
            raise BadCurveError("the corners of a curve end before its middle")
        first = [corners[0][0], *self.start, corners[0][1]]
        if any(low > high for low, high in itertools.pairwise(first)) or self.grid & (self.grid - 1):
            raise BadCurveError("the start of a curve must increase, in a power of two of steps")

    @classmethod
    def through(cls, corners: Iterable[tuple[float, float]]) -> CoinCurve:
        """The curve of these corners rounded down to multiples of 2^-128; those that then coincide are dropped.

        Raises: NoTableError where they are finer than that.
        """
        kept: list[tuple[float, float]] = []
        for x, y in corners:
            x, y = _down(x), _down(min(y, math.nextafter(1.0 - x, 0.0)))
            if not kept or (x > kept[-1][0] and y >= kept[-1][1]):
                kept.append((x, y))
        if not kept or kept[0][0] < 2.0**-100:
            raise NoTableError(_TOO_FINE)
        return cls(tuple(kept))

    @property
    def novel(self) -> float:
        """p_1, with what probability an item of a single user is released."""
        return self.corners[0][0]

    def refined(self, grid: int) -> CoinCurve:
        """The same curve with `grid` steps in a weight of 1, whose probabilities grow geometrically from 1 to 2."""
        low, high = self.corners[0]
        return CoinCurve(self.corners, tuple(_down(low * (high / low) ** (j / grid)) for j in range(1, grid)))

    @property
    def grid(self) -> int:
        """Steps of the table in a weight of 1."""
        return len(self.start) + 1

    @property
    def law(self) -> ReleaseLaw:
        """The table of p_n, n in steps."""
        return _law(self)

    def missing(self, steps: int = 1) -> float:
        """The largest mass of a bit that one side has alone, if n moves by `steps`."""
        p, rest = self.law.probabilities
        gone = rest[: max(1, len(rest) - 1)][-steps:]  # n that a move takes to 1
        return max(float(p[min(steps, len(p) - 1)]), float(gone.max()))

    def divergence(self, order: float, steps: int = 1) -> float:
        """The largest D of an order alpha > 1 over all n and both directions if n moves by `steps`, rounded up."""
        return _divergence_of(self, float(order), steps)

    def single_delta(self, epsilon: float) -> float:
        """The exact delta of one item that moves by one, rounded up: the largest over all n and both directions."""
        factor = exponential_below(epsilon)
        worst = max(
            max(
                (more << FACTOR_BITS) - factor * fewer, ((ONE - fewer) << FACTOR_BITS) - factor * (ONE - more)
            )
            for fewer, more in itertools.pairwise(self.law.cumulative)
        )
        return math.nextafter(float(Fraction(max(worst, 0), ONE << FACTOR_BITS)), 1.0)


@functools.lru_cache(maxsize=128)
def _law(curve: CoinCurve) -> ReleaseLaw:
    novel = _units(curve.novel)
    half = [(_units(x), _units(y)) for x, y in curve.corners]
    points = [*half, *((ONE - y, ONE - x) for x, y in reversed(half))]
    table, edge = [0, *[novel] * curve.grid, *map(_units, curve.start)], 0
    while table[-1] < ONE:
        x = table[-curve.grid]
        if x >= ONE - novel:
            y = ONE
        elif x >= points[-1][0]:
            y = ONE - novel
        else:
            while x >= points[edge + 1][0]:
                edge += 1
            (x1, y1), (x2, y2) = points[edge], points[edge + 1]
            y = y1 + (x - x1) * (y2 - y1) // (x2 - x1)
        if y <= x:
            raise NoTableError(_TOO_FINE)
        table.append(y)
        if len(table) > MAX_STEPS:
            raise NoTableError(f"release probabilities of more than {MAX_STEPS} counts")
    return ReleaseLaw(tuple(table))


@functools.lru_cache(maxsize=4096)
def _divergence_of(curve: CoinCurve, order: float, steps: int) -> float:
    values = []
    for log in curve.law.logs:
        fewer, more = log[:-1], np.concatenate((log[steps:], np.repeat(log[-1:], steps - 1)))[: len(log) - 1]
        both = np.isfinite(fewer) & np.isfinite(more)
        values.append((np.where(both, fewer, 0.0), np.where(both, more, 0.0), np.where(both, 0.0, -np.inf)))
    add = _log_moments([(more, fewer, gone) for fewer, more, gone in values], order)
    remove = _log_moments(values, order)
    return max(float(add.max()), float(remove.max())) / (order - 1)


def _log_moments(values: list[tuple[np.ndarray, np.ndarray, np.ndarray]], alpha: float) -> np.ndarray:
    """ln of sum P^alpha Q^(1 - alpha) over the values of a bit, for every n, rounded up.

    Args:
      values: per value of the bit ln P, ln Q, and minus infinity where only one of them has it.
    """
    terms = [alpha * a + (1 - alpha) * b + gone for a, b, gone in values]
    total = np.logaddexp(*terms)
    error = np.full_like(total, 2.0)
    for term, (a, b, _) in zip(terms, values):
        error -= np.exp(term - total) * (a + b) * alpha  # logarithms, none positive
    return total + 8 * _UNIT * error


@dataclass(frozen=True)
class CoinNoise(TableNoise):
    """Coins of a round, as noise: n + Z reaches the law's threshold with probability p_n, and only that is shown.

    Attributes:
      curve: the sequence p_n.
      round: which noisy round, counted from 1.
      moves: pairs (n, s): what it costs counts users that move at most n items by at most s steps of the table each.
    """

    curve: CoinCurve
    round: int = 1
    moves: tuple[tuple[int, int], ...] = ()

    kind: ClassVar[str] = "coin"  # type: ignore[misc]

    def __post_init__(self) -> None:
        object.__setattr__(self, "round", check_rounds(self.round, "round"))

    @property
    def norm(self) -> str:
        return LINF

    @property
    def bits(self) -> bool:
        return True

    def admits(self, items: np.ndarray, weight: np.ndarray) -> np.ndarray:
        if not self.moves:
            return super().admits(items, weight)
        most, steps = np.array([*self.moves, (self.moves[-1][0], 0)], np.int64).T
        return weight <= steps[np.searchsorted(most[:-1], items)] / self.grid

    @property
    def law(self) -> ReleaseLaw:
        return self.curve.law

    @property
    def grid(self) -> int:
        return self.curve.grid

    def __str__(self) -> str:
        return f"coins of first probability {self.curve.novel:.17g} in round {self.round}"


def pure_curve(epsilon: float, novel: float) -> CoinCurve:
    """The fastest sequence of (epsilon, novel) for one item (Desfontaines, Voss, Gipson and Mandayam 2022).

    Raises: ValueError on an argument out of range.
    """
    factor = math.exp(min(check_positive("epsilon", epsilon), 30.0)) * (1 - 2.0**-50)
    middle = (1 - novel) / (1 + factor)
    if middle <= novel:
        return CoinCurve.through([(novel, max(novel * (1 + 2.0**-40), 1 - novel * (1 + 2.0**-40)))])
    return CoinCurve.through([(novel, novel * (1 + factor)), (middle, 1 - middle)])


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


def bit_divergence(p: np.ndarray, q: np.ndarray, order: float) -> np.ndarray:
    """max of D(B(q) || B(p)) and D(B(p) || B(q)), of logits."""
    yes, no = (-np.logaddexp(0, -p), -np.logaddexp(0, -q)), (-np.logaddexp(0, p), -np.logaddexp(0, q))
    both = [
        np.logaddexp(order * yes[a] + (1 - order) * yes[b], order * no[a] + (1 - order) * no[b])
        for a, b in ((0, 1), (1, 0))
    ]
    return np.maximum(*both) / (order - 1)


def _down(value: float) -> float:
    return math.ldexp(math.floor(math.ldexp(value, 128)), -128)


def _units(value: float) -> int:
    return int(math.ldexp(value, 128))
