"""What the best choice of weights could release if it knew the data. NOT PRIVATE: for comparison only.

Selectors that add up bounded weights, one Gaussian in all, and compare with a threshold differ in the weights alone.
Here they are chosen with the data in sight: users' weights x_u, l2 norm at most 1 and no weight above the cap of the
user's degree, that maximise

    F(x) = sum over items of p(w(i)),      w(i) = sum over users of x_u(i),      p(w) = Phi((w - rho) / sigma),

the expected number of released items, with sigma, rho and the caps of one round of gsu with the whole budget. Rounds
that look at the noise so far may in principle pass that, since they need not go on with an item that was lucky.

Both sides of the maximum are computed. *From below*: conditional gradient (Frank and Wolfe 1956); each step moves every
user towards the weights that the gradient would have it send, a water filling in closed form. F is not concave, so p is
first smoothed and the smoothing is taken back step by step; what comes out is the F of weights that exist.
*From above*: the least concave majorant of p in place of p makes the problem concave, and at any point value + gap (the
duality gap of the same step; Jaggi 2013) exceeds its maximum, hence F of all weights there are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.ndimage import gaussian_filter1d
from scipy.special import ndtr

from dpbeam.errors import SettingError, param
from dpbeam.kernels.csr import Csr
from dpbeam.kernels.grid import UNITS
from dpbeam.selectors.gsu.calibration import calibrate_gsu
from dpbeam.selectors.gsu.kernels import fill_weights
from dpbeam.selectors.gsu.presets import GSU_PRESETS

STEPS = 80
_BOUND_STEPS = 20  # concave: within one in a thousand by then
_GRID_PER_SIGMA = 64
_TAIL_SIGMAS = 8.5  # the curve is 1 up to 1e-17 there
_SMALL_SLOPE = 1e-6  # of the largest: nobody aims at such items
_ROUNDING = 1e-6  # relative; weights are rounded down to 2^-30, the norm with them
_UNLIKE = 0.02
_MOST_POINTS = 1_000_000  # of a curve
_SMOOTH_SHARE = 0.8  # of the steps; the others climb the curve itself
_SMOOTH_PACE = 0.15
_FIRST_WIDTH = 0.8  # of the smoothing, in weights whose chance is one half
_LAST_PACES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0)
_SEED = 0


@dataclass(frozen=True)
class ReleaseCurve:
    """p(w), never falling: the chance of release by weight, on the grid 0, step, 2 step, ...; flat beyond its end."""

    step: float
    chance: np.ndarray

    @classmethod
    def tabulate(cls, chance: Callable[[np.ndarray], np.ndarray], end: float, step: float) -> ReleaseCurve:
        return cls(step, chance(np.arange(0.0, end + step, step)))

    def at(self, weight: np.ndarray) -> np.ndarray:
        """Linear between grid points."""
        return np.interp(weight / self.step, np.arange(len(self.chance)), self.chance)

    def slope(self, weight: np.ndarray) -> np.ndarray:
        """Slope to the right; 0 beyond the end."""
        slopes = np.append(np.diff(self.chance) / self.step, 0.0)
        return slopes[np.minimum((weight / self.step).astype(np.int64), len(slopes) - 1)]

    def smoothed(self, width: float) -> ReleaseCurve:
        """The mean of the curve under N(0, width^2)."""
        if width < self.step:
            return self
        return ReleaseCurve(self.step, gaussian_filter1d(self.chance, width / self.step, mode="nearest"))

    def majorant(self) -> ReleaseCurve:
        """Least concave curve above the chance, also between grid points: each point takes its successor's chance."""
        above = np.append(self.chance[1:], self.chance[-1])
        hull: list[int] = []
        for point, value in enumerate(above.tolist()):
            while len(hull) > 1 and _not_above(above, hull[-2], hull[-1], point, value):
                hull.pop()
            hull.append(point)
        return ReleaseCurve(self.step, np.interp(np.arange(len(above)), hull, above[hull]))


def _not_above(values: np.ndarray, left: int, middle: int, right: int, value: float) -> bool:
    """Whether the middle point lies on or below the line from left to right."""
    return bool((values[middle] - values[left]) * (right - left) <= (value - values[left]) * (middle - left))


@dataclass(frozen=True)
class Allocation:
    """Both sides of the largest expected number of released items that weights under one Gaussian can have."""

    at_least: float
    at_most: float


def gaussian_family(sets: Csr, num_items: int, epsilon: float, delta: float, *, max_items: int) -> Allocation:
    """Full-knowledge allocation of weights under one Gaussian mechanism. NOT PRIVATE.

    Args:
      sets: users as rows.
      epsilon, delta: the budget; its split is that of gsu16.
      max_items: D0; users with more items keep a random sample, always the same.

    Raises:
      ValueError: an argument out of range.
      InputError: epsilon is so large that the curve has no end.
    """
    preset = GSU_PRESETS["gsu16"]
    share, cap = preset.delta_gauss_share, preset.c0
    round_ = calibrate_gsu(epsilon, delta, (1.0,), (1.0,), share, max_items, cap, preset.eta)
    rho, sigma = float(round_.thresholds[0]), round_.sigma

    def chance(weight: np.ndarray) -> np.ndarray:
        return ndtr((weight - rho) / sigma)

    if (rho / sigma + _TAIL_SIGMAS) * _GRID_PER_SIGMA > _MOST_POINTS:
        raise SettingError(
            f"{param('epsilon')} ({epsilon:g}) leaves too little noise to compare with full knowledge; lower it"
        )
    curve = ReleaseCurve.tabulate(chance, rho + _TAIL_SIGMAS * sigma, sigma / _GRID_PER_SIGMA)
    return allocate(sampled(sets, max_items), num_items, curve, round_.caps)


def sampled(sets: Csr, max_items: int, rng: np.random.Generator | None = None) -> Csr:
    """The users' sets, each cut to `max_items` of its items at random; without `rng` always the same ones."""
    if sets.degrees.max(initial=0) <= max_items:
        return sets
    order = (rng or np.random.default_rng(_SEED)).random(len(sets.links))
    row = np.repeat(np.arange(len(sets.offsets) - 1), sets.degrees)
    place = np.empty(len(order), np.int64)
    place[np.lexsort((order, row))] = np.arange(len(order))
    return sets.restrict(place - sets.per_pair(sets.offsets[:-1]) < max_items)


def allocate(
    sets: Csr, num_items: int, curve: ReleaseCurve, caps: np.ndarray, steps: int = STEPS
) -> Allocation:
    """Maximise the sum of curve(w) over items, w the sums of users' weights.

    Args:
      sets: users as rows.
      curve: chance of release by weight.
      caps: largest weight of a user on one item by its degree, in (0, 1]; index 0 is unused.
      steps: conditional gradient steps towards `at_least`.
    """
    held = np.bincount(sets.links, minlength=num_items) > 0
    problem = _Problem(sets, caps[sets.degrees], held)
    at_least = problem.climb(curve, steps)
    return Allocation(at_least, max(at_least, min(problem.bound(curve, _BOUND_STEPS), float(held.sum()))))


@dataclass(frozen=True)
class _Problem:
    sets: Csr
    caps: np.ndarray
    held: np.ndarray

    def value(self, curve: ReleaseCurve, weight: np.ndarray) -> float:
        return float(curve.at(weight[self.held]).sum())

    def aim(self, score: np.ndarray) -> np.ndarray:
        """(items,) the sums of the users' weights that have the largest inner product with the score."""
        per_pair = score[self.sets.links]
        rows = self.sets.restrict(aimed := per_pair > 0)
        units = fill_weights(rows, per_pair[aimed], self.caps)
        return np.bincount(rows.links, units, len(score)) / UNITS

    def climb(self, curve: ReleaseCurve, steps: int) -> float:
        """F of the best weights found."""
        weight = self.aim(self.held.astype(np.float64))
        # Items with the same holders would rise together, and none of them arrive.
        unlike = 1 + _UNLIKE * np.random.default_rng(_SEED).random(len(weight))
        width = _FIRST_WIDTH * curve.step * np.searchsorted(curve.chance, 0.5)
        smooth_steps = round(_SMOOTH_SHARE * steps)
        for step in range(steps):
            smooth = curve.smoothed(width * max(0.0, 1 - step / max(smooth_steps, 1)))
            score = smooth.slope(weight) * unlike
            score[score < _SMALL_SLOPE * score.max(initial=0.0)] = 0.0
            target = self.aim(score)
            paces = (_SMOOTH_PACE,) if step < smooth_steps else _LAST_PACES
            weight += self._best(curve, weight, target, paces) * (target - weight)
        return self.value(curve, weight)

    def bound(self, curve: ReleaseCurve, steps: int) -> float:
        """At least F of any weights."""
        curve = curve.majorant()
        weight = self.aim(self.held.astype(np.float64))
        best = float(self.held.sum())
        for step in range(steps):
            score = curve.slope(weight)
            target = self.aim(score)
            reach = float(score @ target) * (1 + _ROUNDING)
            best = min(best, self.value(curve, weight) + reach - float(score @ weight))
            paces = tuple(min(1.0, factor / (step + 2)) for factor in (4, 2, 1, 0.5, 0.2))
            weight += self._best(curve, weight, target, paces) * (target - weight)
        return best

    def _best(
        self, curve: ReleaseCurve, weight: np.ndarray, target: np.ndarray, paces: tuple[float, ...]
    ) -> float:
        """The pace towards the target with the largest F."""
        if len(paces) == 1:
            return paces[0]
        return max(paces, key=lambda pace: self.value(curve, weight + pace * (target - weight)))
