"""Calibration of the group-sequential union (GSU): noise, coefficients, thresholds and weight caps.

The mechanism spends its noise over R rounds (fractions f_r) and tests, at checkpoint k, the statistic
Z_k = sum_{r<=k} a_r f_r weight_r, where weight_r carries N(0, sigma^2/f_r). Under any history a novel item
of a user of degree d has drift at most cap(d) G_k and an independent Gaussian walk of variances
sigma^2 V_k, with G_k = sum a_r f_r and V_k = sum a_r^2 f_r. The calibration gives each checkpoint its share
of delta_threshold and bounds the crossing probability by the union over checkpoints.

Design. At drift c0 the allowance of checkpoint k is a closed form, so the multiplier m follows from
allowances alone and the thresholds follow from one quantile each; caps come from one bisection that is
vectorised over all degrees. Everything is calibrated to delta_threshold (1 - 1e-9), a slack that covers all
rounding here and in the state of the mechanism. Safe side: thresholds up, caps down.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from scipy import special

from dpbeam.accounting.events import ComposedEvent, CumulativeThresholdEvent, GaussianEvent
from dpbeam.accounting.gaussian import check_delta, check_positive, gaussian_sigma, split_sigma
from dpbeam.accounting.threshold import item_allowance
from dpbeam.selectors.gsu.presets import check_round_count

SLACK = 1 - 1e-9
ROUND_UP = 1e-13
#: Halvings of an interval of length below 1: 1e-12 is nothing beside SLACK; and down to the last digit.
CAP_STEPS, EXACT_STEPS = 40, 60
CAPS_AT_ONCE = 1 << 14


@dataclass(frozen=True, eq=False)
class GsuCalibration:
    """What a GSU run needs; arrays are float64 and read-only, R rounds, D0 = max_items.

    Attributes:
      sigma: noise of the whole, sigma(epsilon, delta_gauss).
      round_sigmas: (R,) noise of each round, sigma / sqrt(f_r) rounded up.
      fractions: (R,) f_r, exact sum at most 1.
      a: (R,) coefficients, sum a_r^2 f_r = 1.
      G, V: (R,) drift and variance factors at the checkpoints; V[-1] is 1.
      thresholds: (R,) rho_k, inf where a checkpoint tests nothing.
      caps: (D0 + 1,) largest weight of a user of degree d on one item; index 0 is unused (NaN).
    """

    delta_threshold: float
    sigma: float
    round_sigmas: np.ndarray
    fractions: np.ndarray
    a: np.ndarray
    G: np.ndarray
    V: np.ndarray
    thresholds: np.ndarray
    caps: np.ndarray
    max_items: int
    c0: float

    def event(self) -> ComposedEvent:
        """The run as an event for the ledger: R Gaussian rounds and the cumulative thresholds."""
        noises = [
            GaussianEvent(sigma=sigma, round=index, label="gsu")
            for index, sigma in enumerate(self.round_sigmas.tolist(), start=1)
        ]
        tests = CumulativeThresholdEvent(
            thresholds=tuple(rho if math.isfinite(rho) else None for rho in self.thresholds.tolist()),
            coefficients=tuple((self.a * self.fractions).tolist()),
            delta=self.delta_threshold,
            weight_cap=self.c0,
            max_items=self.max_items,
            label="gsu",
        )
        return ComposedEvent("gaussian", (*noises, tests), label="gsu")


def checked_fractions(fractions: Sequence[float]) -> np.ndarray:
    """Fractions with an exact sum of at most 1 (and at least 1 - 1e-9)."""
    values = [check_positive("fractions", value) for value in fractions]
    check_round_count(len(values))
    total = math.fsum(values)
    if abs(total - 1) > 1e-9:
        raise ValueError(f"fractions must sum to 1, got a sum of {total}")
    values = [value / total for value in values] if total > 1 else values
    while sum(map(Fraction, values), Fraction(0)) > 1:
        largest = max(range(len(values)), key=values.__getitem__)
        values[largest] = math.nextafter(values[largest], 0.0)
    return np.array(values)


def checked_spending(shares: Sequence[float], rounds: int) -> np.ndarray:
    """Shares of delta_threshold per checkpoint, (rounds,), sum 1."""
    values = np.array([float(value) for value in shares])
    if len(values) != rounds:
        raise ValueError(f"spending must have one share per round, got {len(values)} for {rounds} rounds")
    if not (np.all(np.isfinite(values) & (values >= 0)) and abs(math.fsum(values) - 1) <= 1e-9):
        raise ValueError("spending shares must not be negative and must sum to 1")
    if values[-1] <= 0:
        raise ValueError("spending must leave a share for the last round")
    return values


def split_delta(delta: float, gauss_share: float) -> tuple[float, float]:
    """(delta_gauss, delta_threshold), their exact sum at most delta."""
    gauss_share = check_delta(gauss_share, "delta_gauss_share")
    gauss = delta * gauss_share
    threshold = delta - gauss
    while Fraction(gauss) + Fraction(threshold) > Fraction(delta):
        threshold = math.nextafter(threshold, 0.0)
    if not 0 < threshold < 0.5:
        raise ValueError(f"delta_threshold must lie in (0, 1/2), got {threshold}")
    return gauss, threshold


def _multiplier(shares: np.ndarray, delta: float, max_items: int) -> float:
    """Largest m (rounded down) whose checkpoint allowances sum to at most the allowance of one item.

    x -> 1 - (1 - x)^(1/D0) is convex and 0 at 0, so m >= 1; it is 1 for a single tested checkpoint.
    """
    allowed = item_allowance(delta, max_items)

    def fits(m: float) -> bool:
        return math.fsum(_checkpoint_allowance(m, shares, delta, max_items)) <= allowed

    good, bad = 0.0, 2.0
    while fits(bad) and bad < 1e6:
        good, bad = bad, bad * 2
    while bad - good > 1e-15 * bad:
        middle = (good + bad) / 2
        good, bad = (middle, bad) if fits(middle) else (good, middle)
    return good


def _checkpoint_allowance(m: float, shares: np.ndarray, delta: float, max_items: int) -> np.ndarray:
    """Crossing probability per item and checkpoint at drift c0; the middle term keeps it below 1/2."""
    return -np.expm1(np.log1p(-np.minimum(0.5, m * shares * delta)) / max_items)


def crossing_bound(
    thresholds: np.ndarray, G: np.ndarray, deviations: np.ndarray, weight: np.ndarray | float
) -> np.ndarray:
    """P_cross(c) = sum_k Q((rho_k - c G_k) / (sigma sqrt(V_k))): union bound over the checkpoints.

    Args: arrays of length R (rho_k, G_k, sigma sqrt(V_k); rho_k may be inf) and an array of weights c.

    Returns: float64 of the shape of `weight`.
    """
    weight = np.asarray(weight, dtype=np.float64)
    total = np.zeros_like(weight)
    for rho, gain, deviation in zip(thresholds, G, deviations):
        total += special.ndtr((weight * gain - rho) / deviation)
    return total


def largest_weights(
    thresholds: np.ndarray,
    G: np.ndarray,
    deviations: np.ndarray,
    allowed: np.ndarray,
    c0: float,
    largest: float = 1.0,
    steps: int = CAP_STEPS,
) -> np.ndarray:
    """The largest weights c <= largest with P_cross(c) <= allowed, rounded down: arguments of `crossing_bound`, and

    Args:
      allowed: (n,) probabilities, not growing, all of which c0 fits.
      steps: halvings of the interval from c0 to `largest`, by whose last length a weight may be too small.
    """
    weights = np.empty_like(allowed)
    for start in range(0, len(allowed), CAPS_AT_ONCE):
        part = slice(start, start + CAPS_AT_ONCE)
        weights[part] = _bisected(thresholds, G, deviations, allowed[part], c0, largest, steps)
    return weights


def _bisected(
    thresholds: np.ndarray,
    G: np.ndarray,
    deviations: np.ndarray,
    allowed: np.ndarray,
    c0: float,
    largest: float,
    steps: int,
) -> np.ndarray:
    good, bad = np.full(len(allowed), c0), np.full(len(allowed), largest)
    whole = crossing_bound(thresholds, G, deviations, largest) <= allowed
    for _ in range(steps):
        middle = (good + bad) / 2
        if ((middle == good) | (middle == bad)).all():
            break
        # Neighbours have the same middle for half of the steps.
        new = np.concatenate([[True], middle[1:] != middle[:-1]])
        crossing = crossing_bound(thresholds, G, deviations, middle[new])
        ok = crossing.take(np.cumsum(new) - 1) <= allowed
        good, bad = np.where(ok, middle, good), np.where(ok, bad, middle)
    return np.where(whole, largest, good)


def _thresholds_that_admit_c0(
    shares: np.ndarray, delta: float, max_items: int, c0: float, G: np.ndarray, deviations: np.ndarray
) -> np.ndarray:
    """rho_k = c0 G_k + sigma sqrt(V_k) isf(allowance_k), rounded up; inf where the share is 0.

    The crossing probability at drift c0, recomputed from the thresholds in floating point, is at most the
    allowance of one item at degree D0.
    """
    m = _multiplier(shares, delta, max_items)
    allowed, step = item_allowance(delta, max_items), 1e-12
    while True:
        quantile = -special.ndtri(_checkpoint_allowance(m, shares, delta, max_items))
        tested = np.isfinite(quantile)
        noise = deviations * np.where(tested, quantile, 0.0)
        thresholds = np.where(tested, c0 * G + noise + ROUND_UP * (c0 * G + np.abs(noise)), np.inf)
        if crossing_bound(thresholds, G, deviations, c0) <= allowed:
            return thresholds
        m, step = m * (1 - step), min(0.5, 2 * step)  # rounding was larger than the margin


@functools.lru_cache(maxsize=64, typed=True)
def calibrate_gsu(
    epsilon: float,
    delta: float,
    fractions: tuple[float, ...],
    spending: tuple[float, ...],
    delta_gauss_share: float,
    max_items: int,
    c0: float,
    eta: float,
) -> GsuCalibration:
    """Calibrates GSU to (epsilon, delta)-DP under add/remove one user.

    Args:
      epsilon, delta: total budget; meant for epsilon 0.05..10 and delta from 1e-15 on.
      fractions: f_r > 0, R = 1..64 of them, sum 1 within 1e-9.
      spending: R shares >= 0 of delta_threshold, sum 1, the last one positive.
      delta_gauss_share: delta_gauss / delta, in (0, 1).
      max_items: D0, 1..10^6 (5,000 takes about 0.1 s at 16 rounds).
      c0: weight cap of a user of degree D0, in (0, 1].
      eta: growth of the coefficients, a_r proportional to exp(eta mid_r).

    Guarantee: for every degree d <= D0, d items of drift at most cap(d) per unit of a_r f_r cross a
    threshold with probability at most delta_threshold, and the R noises compose to sigma(epsilon,
    delta_gauss); together (epsilon, delta_gauss + delta_threshold)-DP.

    Raises: ValueError on an argument out of range, delta_threshold >= 1/2 included.
    """
    epsilon = check_positive("epsilon", epsilon)
    delta = check_delta(delta)
    c0 = check_positive("c0", c0)
    if c0 > 1:
        raise ValueError(f"c0 must lie in (0, 1], got {c0}")
    if not math.isfinite(eta) or abs(eta) > 100:
        raise ValueError(f"eta must lie in [-100, 100], got {eta}")
    if isinstance(max_items, bool) or int(max_items) != max_items or not 1 <= max_items <= 10**6:
        raise ValueError(f"max_items must be an integer from 1 to 1000000, got {max_items}")
    max_items = int(max_items)
    f = checked_fractions(fractions)
    shares = checked_spending(spending, len(f))
    delta_gauss, delta_threshold = split_delta(delta, delta_gauss_share)
    sigma = gaussian_sigma(epsilon, delta_gauss)

    raw = np.exp(eta * (np.cumsum(f) - f / 2))
    a = raw / math.sqrt(math.fsum(raw * raw * f))
    G = np.cumsum(a * f)
    V = np.cumsum(a * a * f)
    V[-1] = 1.0

    target = delta_threshold * SLACK
    deviations = sigma * np.sqrt(V)
    thresholds = _thresholds_that_admit_c0(shares, target, max_items, c0, G, deviations)
    # c0 fits every degree: the thresholds admit it at D0, the degree with the smallest allowance.
    allowed = item_allowance(target, np.arange(1, max_items + 1, dtype=np.float64))
    caps = largest_weights(thresholds, G, deviations, allowed, c0)
    arrays = read_only_arrays(sigma, fractions=f, a=a, G=G, V=V, thresholds=thresholds, caps=caps)
    return GsuCalibration(delta_threshold=delta_threshold, sigma=sigma, max_items=max_items, c0=c0, **arrays)


def read_only_arrays(
    sigma: float, *, fractions: np.ndarray, caps: np.ndarray, **others: np.ndarray
) -> dict[str, np.ndarray]:
    """The arrays of a calibration, with the noise of its rounds.

    Args:
      sigma: noise of the whole; fractions: (R,); caps: (D0,), of degree or rank 1 on.
    """
    arrays = {
        "round_sigmas": np.array(split_sigma(sigma, fractions.tolist())),
        "fractions": fractions,
        "caps": np.concatenate([[math.nan], caps]),
        **others,
    }
    for array in arrays.values():
        array.setflags(write=False)
    return arrays
