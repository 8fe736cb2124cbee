"""Confidence bounds that hold for every sample size, and the divergences they are put around."""

from __future__ import annotations

import math

import numpy as np
from scipy import stats


def proportion_bounds(successes: int, trials: int, alpha: float) -> tuple[float, float]:
    """Clopper-Pearson: each of the two bounds on a probability fails with probability at most alpha."""
    low = stats.beta.ppf(alpha, successes, trials - successes + 1) if successes else 0.0
    high = stats.beta.isf(alpha, successes + 1, trials - successes) if successes < trials else 1.0
    return float(low), float(high)


def mean_lower_bound(values: np.ndarray, alpha: float) -> float:
    """Lower bound on the mean of independent values in [0, 1], false with probability at most alpha.

    Betting bound (Waudby-Smith and Ramdas 2024, Theorem 3, one-sided): were the mean m, a gambler who stakes the share
    l_t >= 0, known before round t, on values above m would own prod_t (1 + l_t (x_t - m)), a non-negative
    martingale; it reaches 1/alpha with probability at most alpha (Ville). The bound is the largest m that this refutes.
    """
    stake = stakes(values, alpha)

    def refuted(m: float) -> bool:
        share = np.minimum(stake, 0.5 / m)  # wealth stays above one half of itself in every round
        return float(np.log1p(share * (values - m)).sum()) >= math.log(1.0 / alpha)

    low, high = 0.0, float(np.mean(values))
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if middle > 0 and refuted(middle) else (low, middle)
    return low


def stakes(values: np.ndarray, alpha: float) -> np.ndarray:
    """l_t of the betting bound, near the best for the variance seen in rounds before t. (n,) float64."""
    n = len(values)
    rounds = np.arange(1, n + 1)
    mean = (0.5 + np.concatenate(([0.0], np.cumsum(values)[:-1]))) / rounds
    squares = np.concatenate(([0.0], np.cumsum(np.square(values - mean))[:-1]))
    return np.sqrt(2.0 * math.log(1.0 / alpha) * rounds / ((0.25 + squares) * n))


def gaussian_spread_factor(samples: int, dimensions: int, alpha: float) -> float:
    """c such that c times the sample covariance dominates the true one with probability 1 - alpha.

    Davidson and Szarek 2001, Theorem II.13: the least singular value of a (samples, dimensions) standard normal
    matrix exceeds sqrt(samples) - sqrt(dimensions) - t with probability 1 - exp(-t^2 / 2).

    Raises:
      ValueError: too few samples for a finite factor.
    """
    t = math.sqrt(2.0 * math.log(1.0 / alpha))
    least = 1.0 - (math.sqrt(dimensions) + t) / math.sqrt(samples)
    if least <= 0.0:
        raise ValueError(f"{samples} samples are too few to bound a covariance of {dimensions} rounds")
    return 1.0 / least**2


def event_excess(
    first: np.ndarray, second: np.ndarray, epsilon: float, alpha: float
) -> tuple[float, float, str]:
    """Largest excess P(E) - e^eps Q(E) over events chosen on one half of the trials and tested on the other.

    Args:
      first, second: (trials, items) bool, released items of independent trials under P and Q.
      alpha: probability that the lower bound is false.

    Returns:
      estimate and lower bound on the held-out half, and the event.
    """
    half = len(first) // 2
    codes, counts = _codes(np.concatenate([first, second]))
    p, q = codes[: len(first)], codes[len(first) :]
    events = _candidates(p[:half], q[:half], counts, epsilon)
    level = alpha / (2 * len(events))
    best = (0.0, 0.0, "none")
    for name, members in events.items():
        hit_p, hit_q = int(members[p[half:]].sum()), int(members[q[half:]].sum())
        n_p, n_q = len(p) - half, len(q) - half
        estimate = hit_p / n_p - math.exp(epsilon) * hit_q / n_q
        low = proportion_bounds(hit_p, n_p, level)[0]
        low -= math.exp(epsilon) * proportion_bounds(hit_q, n_q, level)[1]
        if estimate > best[0]:
            best = (estimate, max(best[1], low), name)
        else:
            best = (best[0], max(best[1], low), best[2])
    return best


def _codes(released: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A number for each distinct row, (trials,), and by that number how many items the row releases."""
    packed, codes = np.unique(np.packbits(released, axis=1), axis=0, return_inverse=True)
    return codes.ravel(), np.unpackbits(packed, axis=1).sum(axis=1, dtype=np.int64)


def _candidates(p: np.ndarray, q: np.ndarray, counts: np.ndarray, epsilon: float) -> dict[str, np.ndarray]:
    """Events as masks over codes: likelihood ratio, rare outcomes left out, and numbers of released items."""
    of_p, of_q = (np.bincount(codes, minlength=len(counts)) / len(codes) for codes in (p, q))
    gain = of_p - math.exp(epsilon) * of_q
    often = of_p + of_q > 20.0 / len(p)
    by_count = np.bincount(counts, weights=gain)
    at_least, at_most = np.cumsum(by_count[::-1])[::-1], np.cumsum(by_count)
    return {
        "likelihood ratio": gain > 0,
        "likelihood ratio, frequent": (gain > 0) & often,
        "many released": counts >= int(np.argmax(at_least)),
        "few released": counts <= int(np.argmax(at_most)),
    }
