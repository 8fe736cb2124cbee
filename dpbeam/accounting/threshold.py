"""Thresholds for noisy weights, so that an item nobody else holds is released with probability <= delta.

Source: the novel-item argument of Korolova et al. 2009 and Gopi et al. 2020.
A new user holds t <= max_items items that nobody else holds, each with weight at most h(t);
the t noises are independent, so every one stays below h(t) + z_t with probability 1 - delta if
P(noise < z_t)^t = 1 - delta; for Gaussian noise z_t = sigma Phi^-1((1 - delta)^(1/t)).

Design. The tail 1 - (1 - delta)^(1/t) is computed as such (expm1, log1p) and inverted as an upper
tail; the literal Phi^-1((1 - delta)^(1/t)) is infinite from delta of about 1e-16 on. Safe side:
thresholds are rounded up.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, overload

import numpy as np

from dpbeam.accounting.gaussian import check_delta, check_positive
from dpbeam.accounting.noise import NoiseSpec, StatedNoise

_CHUNK = 1 << 20  # values of t per step; bounds memory at about 30 MB whatever max_items is
_ROUND_UP = 1e-13  # relative; the rounding error of ndtri and of the sum stays below this
MAX_ITEMS_LIMIT = 10**9


@overload
def item_allowance(delta: float, t: float) -> float: ...


@overload
def item_allowance(delta: float, t: np.ndarray) -> np.ndarray: ...


def item_allowance(delta: float, t: float | np.ndarray) -> float | np.ndarray:
    """1 - (1 - delta)^(1/t): the failure probability of each of t independent items.

    Args: delta in (0, 1); t a number or array of numbers >= 1. Returns the same shape as t.
    """
    delta = check_delta(delta)
    t = np.asarray(t, dtype=np.float64)
    if t.size and not np.all(t >= 1):
        raise ValueError("t must be at least 1")
    allowance = -np.expm1(math.log1p(-delta) / t)
    return float(allowance) if allowance.ndim == 0 else allowance


def _chunk_maximum(
    noise: StatedNoise, delta: float, t: np.ndarray, novel_linf: Callable[[np.ndarray], np.ndarray]
) -> float:
    weight = np.asarray(novel_linf(t), dtype=np.float64)
    if weight.shape != t.shape:
        raise ValueError(f"novel_linf must return one value per t, got shape {weight.shape} for {t.shape}")
    if not np.all(np.isfinite(weight) & (weight >= 0)):
        raise ValueError("novel_linf must return finite values that are not negative")
    reach = noise.quantile(item_allowance(delta, t))
    return float(np.max(weight + reach + _ROUND_UP * (weight + np.abs(reach))))


def novel_threshold(
    noise: StatedNoise | float, delta: float, max_items: int, novel_linf: Callable[[np.ndarray], np.ndarray]
) -> float:
    """rho = max over t = 1..max_items of h(t) + z_t, rounded up, where one of t noises passes z_t with prob. delta.

    Args:
      noise: on every weight; a number is the standard deviation of Gaussian noise.
      delta: allowed probability that any of a user's novel items is released in this round: the
        round's own share, not the delta of the whole job.
      max_items: D0, the most items a user contributes, 1..10^9 (10^7 takes about a second).
      novel_linf: h, maps a float64 array of t to the array of the largest weights that a new user can
        put on each of t items that nobody else holds.

    Guarantee: for every t <= max_items, t weights of at most h(t) plus independent noises reach rho anywhere
    with probability at most delta.

    Raises: ValueError on an argument out of range, a novel_linf of wrong shape or value, or noise without quantiles.
    """
    if not isinstance(noise, StatedNoise):
        noise = NoiseSpec("gaussian", check_positive("sigma", noise))
    delta = check_delta(delta)
    if isinstance(max_items, bool) or int(max_items) != max_items or not 1 <= max_items <= MAX_ITEMS_LIMIT:
        raise ValueError(f"max_items must be an integer from 1 to {MAX_ITEMS_LIMIT}, got {max_items}")
    max_items = int(max_items)
    best = -math.inf
    for start in range(1, max_items + 1, _CHUNK):
        stop = min(start + _CHUNK, max_items + 1)
        t = np.arange(start, stop, dtype=np.float64)
        best = max(best, _chunk_maximum(noise, delta, t, novel_linf))
    return math.nextafter(best, math.inf)


class ReleaseTest(NamedTuple):
    """How items are released after a noisy round.

    Attributes:
      threshold: items are released whose number reaches it; None: the round adds to the number and tests nothing.
      coefficient: the number grows by so much for each unit of the round's noisy weight.
    """

    threshold: float | None
    coefficient: float = 1.0


@dataclass(frozen=True)
class NovelWeight:
    """h(t) = scale / t^power: the largest weight that a new user can put on each of t items of its own.

    The power is 1/2 where users' contributions are bounded in l2, 1 where they are bounded in l1.

    Raises: ValueError on a value out of range.
    """

    scale: float = 1.0
    power: float = 0.5

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", check_positive("novel_linf", self.scale))
        if self.power not in (0.5, 1.0):
            raise ValueError(f"novel_power must be 0.5 or 1, got {self.power}")
        object.__setattr__(self, "power", float(self.power))

    @classmethod
    def of(cls, noise: StatedNoise, scale: float = 1.0) -> NovelWeight:
        """What t items of a user whose weights this noise protects can weigh at most.

        Raises: NotStatedError for noise of another norm.
        """
        return cls(scale, noise.novel_power)

    def __call__(self, t: np.ndarray) -> np.ndarray:
        return self.scale / (np.sqrt(t) if self.power == 0.5 else t)
