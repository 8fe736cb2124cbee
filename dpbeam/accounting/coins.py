"""Coins: an item of weight n is released with probability p_n, and nothing else is shown.

A `BitCurve` is a public sequence p_0 = 0 <= p_1 <= p_2 <= ... in few numbers, exact, n in steps of a weight;
`divergence` and `missing` are what it costs per item whose weight differs between two inputs. The proof is in
docs/explanation/bits.md; in short:

One user more moves some of the n, each by s steps. For each of them the bits have the laws B(p_n) and B(p_(n+s)). From
B(p_n) a mass of at most t_s is taken off at 0, from B(p_(n+s)) the same off at 1, so that what is left of both, P and Q
in either order, is closer; `missing` is that mass and what one of P, Q has alone besides, and D the Renyi divergence of
order alpha of the rest,

    exp((alpha - 1) D) = sum P^alpha Q^(1 - alpha) over the values of the bit that both have.

Divergences of several items and rounds add, missing masses too, and the total (epsilon, delta) is

    delta = sum of missing + exp((alpha - 1)(sum of D - epsilon)) (1 - 1/alpha)^(alpha - 1) / alpha,   any alpha > 1.

Two kinds of sequences: `WeightCurve`, the fastest for weights of bounded l2 norm, where t_s grows with the square of s,
and `CoinCurve`, with t_s = 0, the best there is for one item of a user, which older ledgers have for more.

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

_BISECTIONS = 32
_GAINS = 400  # points between which what a step allows is interpolated
_SHORT = 300  # up to so many numbers a sequence is kept as it is
_BEND = 0.05  # by how much the slopes may differ that one line stands for
_UNIT = 2.0**-52
_TOO_FINE = "probabilities in steps finer than 2^-128"


class BadCurveError(ValueError):
    """Numbers that are no curve."""


class BitCurve:
    """A sequence p_n of probabilities of release; the derived classes say how few numbers give it.

    Attributes:
      mirrored: p_(N-n) = 1 - p_n for all n.
    """

    mirrored: ClassVar[bool] = False

    @property
    def grid(self) -> int:
        """Steps of the table in a weight of 1."""
        raise NotImplementedError

    @property
    def novel(self) -> float:
        """With what probability an item is released that one user alone gives a weight of 1."""
        return float(self.law.release_probability(self.grid))

    @property
    def law(self) -> ReleaseLaw:
        """The table of p_n, n in steps."""
        raise NotImplementedError

    def set_aside(self, steps: int) -> float:
        """t_s."""
        return 0.0

    def missing(self, steps: int = 1) -> float:
        """The largest mass that is taken off a bit, or that one side has alone, if n moves by `steps`."""
        p, rest = self.law.probabilities
        gone = rest[: max(1, len(rest) - 1)][-steps:]  # n that a move takes to 1
        return max(float(p[min(steps, len(p) - 1)]), float(gone.max()), self.set_aside(steps))

    def divergence(self, order: float, steps: int = 1) -> float:
        """The largest D of an order alpha > 1 over all n and both directions if n moves by `steps`, rounded up."""
        return _divergence_of(self, float(order), steps)


@dataclass(frozen=True)
class CoinCurve(BitCurve):
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

    @property
    def grid(self) -> int:
        """Steps of the table in a weight of 1."""
        return len(self.start) + 1

    @property
    def law(self) -> ReleaseLaw:
        return _law(self)

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


@dataclass(frozen=True)
class WeightCurve(BitCurve):
    """p_n by knots, linear between them, up to 1/2, and from there on its own mirror image: p_(N-n) = 1 - p_n.

    Attributes:
      knots: (n, p_n), both increasing, from n = 1 on; the last p_n is 1/2.
      unit: steps in a weight of 1, a power of two.
      outside: t of a weight of 1; a move by s steps sets t (s/unit)^2 aside.

    Raises: BadCurveError unless all are multiples of 2^-128 and in order.
    """

    knots: tuple[tuple[int, float], ...]
    unit: int
    outside: float

    mirrored: ClassVar[bool] = True

    def __post_init__(self) -> None:
        knots = tuple((check_rounds(n, "knots"), float(p)) for n, p in self.knots)
        object.__setattr__(self, "knots", knots)
        object.__setattr__(self, "unit", check_rounds(self.unit, "grid"))
        object.__setattr__(self, "outside", float(self.outside))
        if not all(
            0 < p < 1 and math.ldexp(p, 128).is_integer() for p in (*dict(knots).values(), self.outside)
        ):
            raise BadCurveError("a curve needs multiples of 2^-128 between 0 and 1")
        if not knots or knots[-1][1] != 0.5 or 2 * knots[-1][0] > MAX_STEPS:
            raise BadCurveError(f"the knots of a curve must end at 1/2, within {MAX_STEPS // 2} steps")
        if any(n >= n2 or p > p2 for (n, p), (n2, p2) in itertools.pairwise(knots)) or self.unit & (
            self.unit - 1
        ):
            raise BadCurveError("the knots of a curve must increase, in a power of two of steps")

    @property
    def grid(self) -> int:
        return self.unit

    @property
    def law(self) -> ReleaseLaw:
        return _mirrored(self.knots)

    def set_aside(self, steps: int) -> float:
        return (
            self.outside * (steps / self.unit) ** 2
        )  # a square of steps, at most 2^40, times a power of two


@functools.lru_cache(maxsize=128)
def _mirrored(knots: tuple[tuple[int, float], ...]) -> ReleaseLaw:
    half, last, low = [0], 0, 0
    for n, p in knots:
        high = _units(p)
        half += [low + (high - low) * step // (n - last) for step in range(1, n - last + 1)]
        last, low = n, high
    return ReleaseLaw((*half, *(ONE - value for value in reversed(half[:-1]))))


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
def _divergence_of(curve: BitCurve, order: float, steps: int) -> float:
    values = []
    for fewer, more in _moved_logs(curve, steps):
        both = np.isfinite(fewer) & np.isfinite(more)
        values.append((np.where(both, fewer, 0.0), np.where(both, more, 0.0), np.where(both, 0.0, -np.inf)))
    add = _log_moments([(more, fewer, gone) for fewer, more, gone in values], order)
    remove = _log_moments(values, order)
    return max(float(add.max()), float(remove.max()), 0.0) / (order - 1)


@functools.lru_cache(maxsize=256)
def _moved_logs(curve: BitCurve, steps: int) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    """For 1 and for 0, the logarithms of what is left of a bit's law at every n, and of its law at n + steps."""
    t, size = curve.set_aside(steps), len(curve.law.cumulative)
    half = curve.mirrored and steps < size - 1  # the moves above are the mirror images of those below
    fewer = np.arange((size - steps) // 2 + 1 if half else size - 1)
    more = np.minimum(fewer + steps, size - 1)
    p, q, rest, rest_q = (side[:, at] for side in curve.law.parts for at in (fewer, more))
    near = (q[0] - p[0]) + (q[1] - p[1]) <= t  # all that differs is taken off
    left = np.where(near, p.sum(axis=0), (q[0] - t) + q[1])
    kept = np.where(near, rest_q.sum(axis=0), (rest[0] - t) + rest[1])
    return (
        (_log(p[0], rest[0]), _log(left, np.where(near, rest[0], rest_q[0] + t))),
        (_log(kept, np.where(near, q[0], p[0] + t)), _log(rest_q[0], q[0])),
    )


def _log(value: np.ndarray, rest: np.ndarray) -> np.ndarray:
    """ln of a value, with full relative precision also near 1; minus infinity at 0."""
    with np.errstate(divide="ignore"):
        return np.where(value < 0.5, np.log(value), np.log1p(-rest))


def _log_moments(values: list[tuple[np.ndarray, np.ndarray, np.ndarray]], alpha: float) -> np.ndarray:
    """ln of sum P^alpha Q^(1 - alpha) over the values of a bit, for every n, rounded up.

    Args:
      values: per value of the bit ln P, ln Q, and minus infinity where only one of them has it.
    """
    terms = [alpha * a + (1 - alpha) * b + gone for a, b, gone in values]
    total = np.logaddexp(*terms)
    error = np.full_like(total, 2.0)
    for term, (a, b, gone) in zip(terms, values):
        error -= (
            np.where(gone, 0.0, np.exp(term - np.maximum(total, -1e308))) * (a + b) * alpha
        )  # none positive
    return total + 8 * _UNIT * error


@dataclass(frozen=True)
class CoinNoise(TableNoise):
    """Coins of a round, as noise: n + Z reaches the law's threshold with probability p_n, and only that is shown.

    Attributes:
      curve: the sequence p_n.
      round: which noisy round, counted from 1.
      moves: pairs (n, s): what it costs counts users that move at most n items by at most s steps of the table each.
    """

    curve: BitCurve
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
        """The law by which a coin releases."""
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


@functools.lru_cache(maxsize=256)
def weight_curve(order: float, divergence: float, outside: float, grid: int) -> WeightCurve:
    """The fastest sequence of which a move by s steps is (divergence, outside) times (s/grid)^2, close of this order.

    p_n is the least over s of what s steps allow above p_(n-s) (docs/explanation/bits.md#the-sequence), by
    interpolation; so what it costs is near what is asked for and is to be recomputed.

    Args:
      order: alpha > 1.
      divergence, outside: of a weight of 1, per item.
      grid: steps in a weight of 1, a power of two.

    Raises: NoTableError where it is longer or finer than a table.
    """
    check_positive("divergence", divergence)
    share = np.square(np.arange(1, grid + 1) / grid)
    t, left = outside * share, 1 - outside * share
    first = math.log(t[0]) - 1.0
    spacing = (0.1 - first) / (_GAINS - 1)
    gains = _gains(first + spacing * np.arange(_GAINS), order, divergence * share)
    row = np.arange(grid) * _GAINS
    flat, rise = gains.ravel(), np.diff(gains, axis=1, append=0.0).ravel()
    recent = np.full(grid, first)  # logits of p_(n-1), p_(n-2), ...
    p = [0.0]
    while p[-1] < 0.5:
        held = len(p) - 1
        place = (recent - first) / spacing
        at = np.minimum(place.astype(np.int64), _GAINS - 2)
        logit = recent + flat[row + at] + (place - at) * rise[row + at]
        chance = left / (1 + np.exp(-logit)) + t
        chance[held:] = t[held:]  # nobody else's item
        p.append(float(chance.min()))
        if p[-1] <= p[-2] or p[-1] < 2.0**-100:
            raise NoTableError(_TOO_FINE)
        if 2 * len(p) > MAX_STEPS:
            raise NoTableError(f"release probabilities of more than {MAX_STEPS} counts")
        recent[1:] = recent[:-1].copy()
        recent[0] = math.log(p[-1] / (1 - p[-1]))
    exact = 3 * grid if len(p) > _SHORT else len(p)
    return WeightCurve(_knots(np.array(p), exact, order), grid, _down(outside))


def _gains(logits: np.ndarray, order: float, divergences: np.ndarray) -> np.ndarray:
    """(len(divergences), len(logits)) by how much a logit may rise for each divergence, in both directions."""
    low = np.zeros((len(divergences), len(logits)))
    high = np.full_like(low, 100.0)
    before = _log_chances(logits)
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        fits = divergence_of_logs(before, _log_chances(logits + middle), order) <= divergences[:, None]
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    return low


def _knots(p: np.ndarray, exact: int, order: float) -> tuple[tuple[int, float], ...]:
    """p without points that lie nearly on a line between their neighbours; the first `exact` ones all stay.

    Where p is small a divergence goes with the power `order` of its ratios, so lines are shorter there.
    """
    slopes, knots, start = np.diff(p).tolist(), [], 0
    growth = np.log(p[2:] / p[1:-1])
    bends = np.append(0.0, _BEND / np.maximum(1.0, order * growth)).tolist()
    while start < len(slopes):
        end = start + 1
        low = high = slopes[start]
        while exact < end < len(slopes):
            low, high = min(low, slopes[end]), max(high, slopes[end])
            if high > low * (1 + bends[end]):
                break
            end += 1
        knots.append((end, 0.5 if end == len(slopes) else _down(float(p[end]))))
        start = end
    return tuple(knots)


def bit_divergence(p: np.ndarray, q: np.ndarray, order: float) -> np.ndarray:
    """max of D(B(q) || B(p)) and D(B(p) || B(q)), of logits."""
    return divergence_of_logs(_log_chances(p), _log_chances(q), order)


def _log_chances(logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Logarithms of the chances of yes and of no."""
    return -np.logaddexp(0, -logits), -np.logaddexp(0, logits)


def divergence_of_logs(
    p: tuple[np.ndarray, np.ndarray], q: tuple[np.ndarray, np.ndarray], order: float
) -> np.ndarray:
    """The same, of logarithms of the chances of yes and of no."""
    both = [
        np.logaddexp(order * a[0] + (1 - order) * b[0], order * a[1] + (1 - order) * b[1])
        for a, b in ((p, q), (q, p))
    ]
    return np.maximum(*both) / (order - 1)


def _down(value: float) -> float:
    return math.ldexp(math.floor(math.ldexp(value, 128)), -128)


def _units(value: float) -> int:
    return int(math.ldexp(value, 128))
