"""k adaptive choices of bounded range, accounted exactly: alone, and beside Gaussian and pure parts.

Sources: Dong, Durfee and Rogers, "Optimal Differential Privacy Composition for Exponential Mechanisms", ICML 2020
(bounded range, the worst choice, the recursion for adaptive rounds); Zhu, Dong and Wang, "Optimal Accounting of
Differential Privacy via Characteristic Function", AISTATS 2022 (dominating pairs compose).

For neighbours P, Q let V(u) be the least delta with P(E) <= u Q(E) + delta for all E: convex, V(0) = 1. A choice has
bounded range eps_0 if its log likelihood ratios lie in an interval of that length. As V is convex, the worst one has
two outcomes, with P/Q = e^t and e^(t - eps_0): the value of j rounds is V_0(u) = (1 - u)_+ and

    V_j(u) = sup over t in [0, eps_0] of q_t V_(j-1)(u e^-t) + (1 - q_t) V_(j-1)(u e^(eps_0 - t)),
    q_t = (e^eps_0 - e^t) / (e^eps_0 - 1),

whatever is chosen adaptively. Other parts are charged as if they came first, when the choices can make the most of
them: a supremum of means is below the mean of suprema. So delta is the mean of V_k over the likelihood ratios of the
Gaussian mechanism that all Gaussian parts compose to and of randomised response for each pure part.

Upper bounds, and why they are ones.

- Grid. V_j is bounded at knots u_i = e^(i h), m h >= eps_0. It is convex: the polygon through the bounds is above it.
- Supremum. Where e^-t and e^(eps_0 - t) stay within a cell each, the objective on the polygon is c_0 - A a - B/a,
  a = u e^-t, with the second derivative -2 B/a^3. A function whose second derivative is at least -f on a cell of width
  w is, at the fraction s of the cell, at most its chord plus f w^2 s (1 - s)/2. The maximum of that sum is taken.
- Ends. Below the first knot the chord from V(0) = 1; above the last one zCDP, and 0 from u = e^(j eps_0) on.
- Many rounds. The polygon is the curve of a pair with finitely many ratios, and k/g blocks of g rounds cost no more
  than its composition with itself, a convolution. Coarser knots are a coarser polygon, hence above.
- Rounding. All sums have positive terms; every step is multiplied by more than its rounding error.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy import special

from dpbeam.accounting.gaussian import (
    check_delta,
    check_epsilon,
    check_positive,
    gaussian_sigma,
)
from dpbeam.accounting.peeling import bounded_range_zcdp, check_rounds, gaussian_zcdp
from dpbeam.accounting.zcdp import zcdp_delta

_MOST_PURE = 8  # pure parts whose outcomes are followed; they double with each
_MOST_ROUNDS = 1 << 40
_LARGEST_RANGE = 50.0
_SMALLEST_RANGE = 1e-9
_LARGEST_MU = 30.0
_HOPELESS = 0.1  # a delta of zCDP from which on nothing better is looked for, but for few rounds
_FEW_ROUNDS = 32
_STEP = 1 + 1e-14  # above the rounding error of one round
_TINY = 2.0**-50  # above the relative error of a difference of intercepts, relative to them
_LOW_END = math.log(1e5)
_TAIL = math.log(1e-5)  # relative to delta: what may lie above the last knot
_MOST_STEPS = 192  # rounds that are followed one by one
_MOST_KNOTS = 2048
# A search stops once delta is within _CLOSE below what is allowed, relatively, or the bracket is narrow.
_CLOSE, _SPARE, _NARROW = 1e-3, 1e-9, 1e-6
_MOST_TRIALS = 60


def choices_delta(
    epsilon: float, epsilon0: float, rounds: int, sigma: float = math.inf, pure: Sequence[float] = ()
) -> float:
    """delta of adaptive choices of bounded range beside other parts, in any order, rounded up.

    Args:
      epsilon: finite, at least 0.
      epsilon0, rounds: of the choices.
      sigma: of the Gaussian mechanism per unit of l2-sensitivity that all Gaussian parts compose to; inf: none.
      pure: epsilon of each pure part.

    Returns: in [0, 1], never above the bound of zCDP; as much as the exact value at an epsilon0 larger by less than
      0.2 % up to 192 rounds, about 0.5 % beyond.

    Raises: ValueError on an argument out of range.
    """
    epsilon, rounds = check_epsilon(epsilon), check_rounds(rounds)
    epsilon0 = check_positive("epsilon0", epsilon0)
    sigma = sigma if sigma == math.inf else check_positive("sigma", sigma)
    pure = [check_positive("pure", value) for value in pure]
    rho = math.fsum([rounds * bounded_range_zcdp(epsilon0), *(value**2 / 2 for value in pure)])
    rough = zcdp_delta((rho + (0.0 if math.isinf(sigma) else gaussian_zcdp(sigma))) * _STEP, epsilon)
    hopeless = rough >= _HOPELESS and rounds > _FEW_ROUNDS
    if hopeless or epsilon0 > _LARGEST_RANGE or rounds > _MOST_ROUNDS:
        return rough
    log_tail = math.floor(math.log(max(min(rough, _HOPELESS), 1e-300)) + _TAIL)
    losses = choice_losses(max(epsilon0, _SMALLEST_RANGE), rounds, log_tail)
    outcomes = _responses(pure).items()
    return min(rough, math.fsum(p * losses.delta(epsilon - loss, sigma) for loss, p in outcomes) * _STEP)


def _responses(pure: Sequence[float]) -> dict[float, float]:
    """Losses of randomised response for every pure part together, and their probabilities, rounded up."""
    ordered = sorted(pure, reverse=True)
    if len(ordered) > _MOST_PURE:
        ordered[_MOST_PURE - 1 :] = [math.fsum(ordered[_MOST_PURE - 1 :]) * _STEP]
    masses = {0.0: 1.0}
    for value in ordered:
        after: dict[float, float] = {}
        for loss, probability in masses.items():
            for sign in (1, -1):
                share = probability * float(special.expit(sign * value)) * _STEP
                after[loss + sign * value] = after.get(loss + sign * value, 0.0) + share
        masses = after
    return masses


@functools.lru_cache(maxsize=256)
def largest_range(
    epsilon: float, delta: float, rounds: int, sigma: float = math.inf, pure: tuple[float, ...] = ()
) -> float:
    """The largest epsilon0, to about 1e-4, for which `choices_delta` stays within delta; 0 if there is none.

    Never below what pure epsilon-DP allows.

    Args: delta in (0, 1); for the others see `choices_delta`.

    Raises: ValueError on an argument out of range.
    """
    epsilon, delta, rounds = check_positive("epsilon", epsilon), check_delta(delta), check_rounds(rounds)
    whole = 1 / gaussian_sigma(epsilon, delta)
    left = whole**2 - (0.0 if math.isinf(sigma) else sigma**-2) - math.fsum(value**2 for value in pure)
    share = max(left / whole**2, 1e-3)
    least = (epsilon - math.fsum(pure)) / rounds * (1 - 1e-14) if math.isinf(sigma) else 0.0
    if left <= 0 and least <= 0:
        return 0.0

    def log_excess(epsilon0: float) -> float:
        reached = choices_delta(epsilon, epsilon0, rounds, sigma, pure)
        return math.log(reached / delta) if reached > 0 else -math.inf

    # A Gaussian mechanism of the same variance of losses is near, its delta about exp(-(epsilon / mu)^2 / 2).
    guess = max(2 * math.sqrt(share * whole**2 / rounds), share * epsilon / rounds)
    return _largest_within(log_excess, max(least, 0.0), guess, slope=share * (1 + (epsilon / whole) ** 2))


def _largest_within(log_excess: Callable[[float], float], good: float, guess: float, slope: float) -> float:
    """A place, close to the largest, where an increasing function is negative.

    Args:
      good: a place where it is known to be negative, or 0, which is returned if none is found.
      guess, slope: guesses of the answer, and of the derivative there by the logarithm of the place.
    """
    bad, place = math.inf, max(guess, good * (1 + _CLOSE))
    close = _CLOSE * min(1.0, slope / 10)
    seen: list[tuple[float, float]] = []
    for _ in range(_MOST_TRIALS):
        height = log_excess(place)
        if height <= -_SPARE:
            good = max(good, place)
            if height >= -close:
                break
        else:
            bad = min(bad, place)
        if math.isfinite(height):
            seen = [*seen[-1:], (math.log(place), height)]
        if len(seen) == 2 and seen[1][1] != seen[0][1] and seen[1][0] != seen[0][0]:
            slope = (seen[1][1] - seen[0][1]) / (seen[1][0] - seen[0][0])
        if math.isfinite(height) and slope > 0:
            place *= math.exp(min(1.0, max(-1.0, -(height + close / 2) / slope)))
        if not good < place < bad or not math.isfinite(height):
            place = math.sqrt(good * bad) if good and bad < math.inf else 2 * good if good else bad / 2
        if good and bad <= good * (1 + _NARROW):
            break
    return good


@dataclass(frozen=True, eq=False)
class Losses:
    """A pair of distributions that dominates some choices, by its privacy losses under the first.

    Attributes:
      step: distance of two losses.
      first: the loss of masses[0], in steps.
      masses: (n,) float64, rounded up.
      infinite: mass of infinite loss.
    """

    step: float
    first: int
    masses: np.ndarray
    infinite: float

    @property
    def losses(self) -> np.ndarray:
        """(n,) float64."""
        return self.step * np.arange(self.first, self.first + len(self.masses))

    def twice(self) -> Losses:
        """The composition of two independent such pairs."""
        masses = np.convolve(self.masses, self.masses) * (1 + 2e-16 * len(self.masses))
        return Losses(self.step, 2 * self.first, masses, 2 * self.infinite * _STEP)

    def cut(self, lowest: int, highest: int) -> Losses:
        """Losses above `highest` steps made infinite, those below `lowest` made `lowest`."""
        low, high = max(0, lowest - self.first), min(len(self.masses), highest + 1 - self.first)
        masses = self.masses[low:high].copy()
        masses[0] += float(np.sum(self.masses[:low])) * _STEP
        infinite = (self.infinite + float(np.sum(self.masses[high:]))) * (1 + 1e-12)
        return Losses(self.step, self.first + low, masses, infinite)

    def coarser(self) -> Losses:
        """On every second loss: what lies between goes to both neighbours, with the mean of 1/ratio kept."""
        odd = self.first % 2
        padded = np.concatenate((np.zeros(odd), self.masses, np.zeros(2 - (odd + len(self.masses)) % 2)))
        kept, split = padded[0::2].copy(), padded[1::2]
        lower = special.expit(-self.step)
        kept[: len(split)] += split * lower
        kept[1:] += split[: len(kept) - 1] * (1 - lower)
        if len(split) == len(kept):
            kept = np.append(kept, split[-1] * (1 - lower))
        return Losses(2 * self.step, (self.first - odd) // 2, kept * _STEP, self.infinite)

    def delta(self, epsilon: float, sigma: float = math.inf) -> float:
        """delta at any real epsilon beside Gaussian noise of this sigma per unit, rounded up."""
        gaps = epsilon - self.losses
        each = np.maximum(-np.expm1(gaps), 0.0) if math.isinf(sigma) else _gaussian_deltas(gaps, 1 / sigma)
        return (float(each @ self.masses) + self.infinite) * (1 + 1e-12)


def _gaussian_deltas(epsilon: np.ndarray, mu: float) -> np.ndarray:
    """`gaussian_delta` for arrays and any real epsilon, rounded up."""
    mu = max(mu * (1 + 1e-15), 1e-12)
    if mu > _LARGEST_MU:
        return np.ones_like(epsilon)
    x, width = np.minimum((epsilon / mu - mu / 2) / math.sqrt(2), 1e4), mu / math.sqrt(2)
    right, left = np.maximum(x, 0.0), np.minimum(x, 0.0)
    scale = 0.5 * np.exp(-right * right)
    near = special.erfcx(right)
    far = scale * (near - special.erfcx(right + width) + 1e-15 * (4 + right * right) * near)
    low = np.minimum(epsilon, 0.5 * mu * mu)
    close = special.ndtr(-left * math.sqrt(2)) - np.exp(low) * special.ndtr(-(left + width) * math.sqrt(2))
    return np.minimum(1.0, np.where(x > 0, far, close + 2e-15 * (1 + mu * mu)) + 1e-300)


def _cells(rounds: int) -> int:
    """Knots per eps_0: the fewer the rounds, the more."""
    return 16 if rounds > 32 else 32 if rounds > 8 else 64


@functools.lru_cache(maxsize=256)
def choice_losses(epsilon0: float, rounds: int, log_tail: int) -> Losses:
    """A pair that dominates `rounds` adaptive choices of bounded range epsilon0.

    Args:
      log_tail: about exp(log_tail) of mass may be moved to an infinite loss.
    """
    doublings = max(0, math.ceil(math.log2(rounds / _MOST_STEPS)))
    losses = _polygon(epsilon0, -(-rounds >> doublings), log_tail - doublings)
    for done in range(1, doublings + 1):
        losses = losses.coarser() if len(losses.masses) > _MOST_KNOTS else losses
        losses = losses.twice()
        rho = bounded_range_zcdp(epsilon0) * -(-rounds >> doublings) * 2**done
        losses = losses.cut(
            -_knots(rho, _LOW_END, losses.step), _knots(rho, doublings - log_tail, losses.step)
        )
    return losses


def _knots(rho: float, log_inverse: float, step: float) -> int:
    """Steps up to where the delta of rho-zCDP falls below exp(-log_inverse)."""
    return math.ceil((rho + 2 * math.sqrt(rho * log_inverse)) / step) + 1


def _polygon(epsilon0: float, rounds: int, log_tail: int) -> Losses:
    """The recursion on the grid, as the pair whose curve the polygon is."""
    m = _cells(rounds)
    step = epsilon0 / m * (1 + 1e-15)
    rho = rounds * bounded_range_zcdp(m * step)
    top = min(rounds * m, _knots(rho, -log_tail, step))
    bottom = min(rounds * m, _knots(rho, _LOW_END, step))
    index = np.arange(-bottom - m, top + m + 1)
    value = np.maximum(-np.expm1(step * index), 0.0) * _STEP
    advance = _Round(m, step, bottom + top + 1)
    below = np.exp(step * (index[:m] - index[m])) * (1 - 1e-15)
    above = step * index[-m:]
    for j in range(1, rounds + 1):
        inner = advance(value)
        value[m:-m] = inner
        value[:m] = (1 - (1 - inner[0]) * below) * _STEP
        spent = j * bounded_range_zcdp(m * step)
        tail = np.exp(-(np.maximum(above - spent, 0.0) ** 2) / (4 * spent)) * (1 + 1e-12)
        value[-m:] = np.where(index[-m:] >= j * m, 0.0, np.minimum(tail, inner[-1]))
    return _as_losses(value[m:-m], -bottom, step)


def _as_losses(value: np.ndarray, first: int, step: float) -> Losses:
    """The pair whose curve is the polygon through (e^(i step), value_i), (0, 1), constant after its last knot."""
    intercepts = value[:-1] + (value[:-1] - value[1:]) / math.expm1(step)
    before, after = np.append(1.0, intercepts), np.append(intercepts, value[-1])
    return Losses(step, first, np.maximum(before - after, 0.0) + _TINY * before, float(value[-1]))


class _Round:
    """V_(j-1) at the knots of a window, and m more at both sides -> bounds on V_j at the knots of the window."""

    def __init__(self, m: int, step: float, width: int):
        t = step * np.arange(m + 1)[:, None]
        whole = math.expm1(m * step)
        self._m, self._width = m, width
        self._down = np.exp(t) * np.expm1(m * step - t) / whole  # q_t, to u e^-t
        self._up = np.expm1(t) / whole
        self._slope = 1 / math.expm1(step)
        self._bend = np.exp(t[1:]) * (math.expm1(step) ** 2 / (4 * whole) * _STEP)

    def __call__(self, value: np.ndarray) -> np.ndarray:
        m = self._m
        values = sliding_window_view(value, self._width)
        at = self._down * values[m::-1] + self._up * values[2 * m : m - 1 : -1]  # at t = 0, h, ..., m h
        intercept = value[:-1] + (value[:-1] - value[1:]) * self._slope
        intercepts = sliding_window_view(intercept, self._width)
        lower, upper = intercepts[m - 1 :: -1], intercepts[2 * m - 1 : m - 1 : -1]
        # Within a cell the objective is at most its chord plus 4 s (1 - s) bend, s from 0 to 1.
        bend = (np.maximum(lower - upper, 0.0) + _TINY * lower) * self._bend
        rise = at[1:] - at[:-1]
        inside = np.abs(rise) < 4 * bend
        ratio = np.divide(rise * rise, 16 * bend, out=np.zeros_like(bend), where=inside)
        peak = np.where(inside, (at[1:] + at[:-1]) / 2 + bend + ratio, 0.0)
        return np.minimum(np.maximum(at.max(axis=0), peak.max(axis=0)), 1.0) * _STEP
