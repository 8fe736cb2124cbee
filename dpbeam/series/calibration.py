"""Calibration of a series: noise, coefficients, thresholds, and caps by the rank in which an item came to its user.

As for gsu (`dpbeam.selectors.gsu.calibration`), Z_k = sum_{r<=k} a_r f_r weight_r has noise N(0, sigma^2 V_k), and an
item to which one user alone gives at most c in every round drifts by at most c G_k. A user's novel items may come one
by one, and nobody knows how many will: so the cap depends on the rank j = 1..D0 of an item, and

    sum_j P_cross(cap_j) <= delta_threshold,        P_cross(c) = sum_k Q((rho_k - c G_k) / (sigma sqrt(V_k))).

The thresholds admit c0 with probability p = P_cross(c0), each round its share; cap_j is the largest c with
P_cross(c) <= p (D0/j)^power, at most 1, or `LARGEST_NORM` where norm is saved for later rounds. Caps reach it at low
ranks and leave part of delta unused, so p is the largest for which
the sum above holds. Safe side: thresholds up, caps down.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from scipy import special

from dpbeam.accounting.events import (
    ComposedEvent,
    Event,
    GaussianEvent,
    RankedThresholdEvent,
    SavedNormEvent,
)
from dpbeam.accounting.gaussian import check_delta, check_positive, gaussian_sigma
from dpbeam.selectors.gsu.calibration import (
    EXACT_STEPS,
    ROUND_UP,
    SLACK,
    checked_fractions,
    checked_spending,
    crossing_bound,
    largest_weights,
    read_only_arrays,
    split_delta,
)
from dpbeam.series.saved import LARGEST_NORM
from dpbeam.series.schedule import Schedule

_HALVINGS = 80


@dataclass(frozen=True, eq=False)
class SeriesCalibration:
    """What a series needs; arrays are float64, R rounds, ranks 1..D0.

    Attributes:
      sigma: noise of the whole; round_sigmas: (R,) of each round.
      fractions, a, G, V, thresholds: (R,), see `GsuCalibration`; every round tests.
      caps: (D0 + 1,) largest weight on an item by its rank, not growing; index 0 is unused (NaN).
      largest: l2 norm of what a user gives in one round, at most; None: 1, and nothing is saved.
    """

    delta_gauss: float
    delta_threshold: float
    sigma: float
    round_sigmas: np.ndarray
    fractions: np.ndarray
    a: np.ndarray
    G: np.ndarray
    V: np.ndarray
    thresholds: np.ndarray
    caps: np.ndarray
    largest: float | None

    def event(self) -> ComposedEvent:
        """The whole window as an event for the ledger."""
        sigmas = self.round_sigmas.tolist()
        noises: list[Event]
        if self.largest is None:
            noises = [GaussianEvent(sigma=s, round=r, label="series") for r, s in enumerate(sigmas, start=1)]
        else:
            shares = tuple(self.fractions.tolist())
            noises = [SavedNormEvent(self.sigma, tuple(sigmas), shares, self.largest, "series")]
        tests = RankedThresholdEvent(
            thresholds=tuple(self.thresholds.tolist()),
            coefficients=tuple((self.a * self.fractions).tolist()),
            delta=self.delta_threshold,
            caps=tuple(self.caps[1:].tolist()),
            label="series",
        )
        return ComposedEvent("gaussian", (*noises, tests), label="series")


@functools.lru_cache(maxsize=64)  # a command asks more than once
def calibrate_series(
    epsilon: float,
    delta: float,
    schedule: Schedule,
    *,
    delta_gauss_share: float,
    max_items: int,
    c0: float,
    rise: float,
    rank_power: float,
    saves_norm: bool = False,
) -> SeriesCalibration:
    """Calibrates a window to (epsilon, delta)-DP under add/remove one user.

    Args:
      epsilon, delta: of all nights together.
      delta_gauss_share: delta_gauss / delta, in (0, 1).
      max_items: D0, items of a user over the whole window.
      c0: cap of the last rank, at most 1, or `LARGEST_NORM` where norm is saved.
      rise: the coefficient of a round of night t is proportional to t^rise.
      rank_power: how allowances fall with the rank, from 0 (all alike) to 1.
      saves_norm: whether a user's norm is bounded in sum over the rounds, and not in each.

    Guarantee: D0 items, whose names are chosen one by one before anything is known of their noise, with drift at most
    cap_j per unit of a_r f_r for the item of rank j, cross a threshold with probability at most delta_threshold in
    all; and the R noises compose to sigma(epsilon, delta_gauss), and with saved norm each pays for its fraction.

    Raises: ValueError on an argument out of range.
    """
    epsilon, delta, c0 = check_positive("epsilon", epsilon), check_delta(delta), check_positive("c0", c0)
    largest = LARGEST_NORM if saves_norm else 1.0
    if c0 > largest or not 0 <= rank_power <= 1:
        raise ValueError(f"c0 must lie in (0, {largest:g}] and rank_power in [0, 1]")
    f = checked_fractions(schedule.fractions)
    shares = checked_spending(schedule.spending, len(f))
    delta_gauss, delta_threshold = split_delta(delta, delta_gauss_share)
    sigma = gaussian_sigma(epsilon, delta_gauss)

    # Powers of Python's: numpy's differ by the processor in the last bit, and a window may go on on another one.
    raw = np.array([float(night) ** rise for night in schedule.nights])
    a = raw / math.sqrt(math.fsum(raw * raw * f))
    G, V = np.cumsum(a * f), np.cumsum(a * a * f)
    V[-1] = 1.0
    deviations = sigma * np.sqrt(V)
    growth = np.array([(max_items / rank) ** rank_power for rank in range(1, max_items + 1)])
    thresholds, caps = _fit(shares, delta_threshold * SLACK, growth, c0, G, deviations, largest)
    arrays = read_only_arrays(sigma, fractions=f, a=a, G=G, V=V, thresholds=thresholds, caps=caps)
    if saves_norm:
        arrays["round_sigmas"] = _each_paying(sigma, f, arrays["round_sigmas"])
    return SeriesCalibration(
        delta_gauss=delta_gauss,
        delta_threshold=delta_threshold,
        sigma=sigma,
        largest=largest if saves_norm else None,
        **arrays,
    )


def _each_paying(sigma: float, fractions: np.ndarray, round_sigmas: np.ndarray) -> np.ndarray:
    """Noise of each round, raised until sigma_r^2 f_r >= sigma^2 holds exactly: a user may spend all in one round.

    The sum over rounds alone, which `split_sigma` holds, may leave single rounds short by a rounding.
    """

    def paying(noise: float, fraction: float) -> float:
        while Fraction(noise) ** 2 * Fraction(fraction) < Fraction(sigma) ** 2:
            noise = math.nextafter(noise, math.inf)
        return noise

    raised = np.array([paying(*pair) for pair in zip(round_sigmas.tolist(), fractions.tolist())])
    raised.setflags(write=False)
    return raised


def _fit(
    shares: np.ndarray,
    target: float,
    growth: np.ndarray,
    c0: float,
    G: np.ndarray,
    deviations: np.ndarray,
    largest: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Thresholds and caps for the largest p of which the crossing probabilities of all ranks sum to `target`."""

    def total(p: float) -> float:
        whole = float(crossing_bound(_thresholds(p, shares, c0, G, deviations), G, deviations, largest))
        return math.fsum(np.minimum(whole, p * growth).tolist())

    good, bad = target / math.fsum(growth.tolist()), target / len(growth)
    for _ in range(_HALVINGS):
        middle = (good + bad) / 2
        good, bad = (middle, bad) if total(middle) <= target else (good, middle)
    step = 1e-12
    while True:
        thresholds = _thresholds(good, shares, c0, G, deviations)
        # To the last digit, by which an open window knows its plan again.
        caps = largest_weights(thresholds, G, deviations, good * growth, c0, largest, EXACT_STEPS)
        caps = np.minimum.accumulate(caps)
        if math.fsum(crossing_bound(thresholds, G, deviations, caps).tolist()) <= target:
            return thresholds, caps
        good, step = good * (1 - step), min(0.5, 2 * step)  # rounding was larger than the margin


def _thresholds(p: float, shares: np.ndarray, c0: float, G: np.ndarray, deviations: np.ndarray) -> np.ndarray:
    """rho_k, rounded up, at which drift c0 crosses in round k with probability shares_k p."""
    noise = deviations * -special.ndtri(np.minimum(0.5, shares * p))
    return c0 * G + noise + ROUND_UP * (c0 * G + np.abs(noise))
