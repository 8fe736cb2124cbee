"""p-values with a stated false-alarm rate; a test uses them twice, for the true scale and for wrong ones."""

from __future__ import annotations

import numpy as np
from scipy import stats

# A correct program fails a single check with this probability; no check runs more than a hundred p-values.
FALSE_ALARM = 1e-9


def binomial_p(successes: int, trials: int, probability: float) -> float:
    """Two-sided exact p-value of a count (twice the smaller tail)."""
    low = stats.binom.cdf(successes, trials, probability)
    high = stats.binom.sf(successes - 1, trials, probability)
    return float(min(1.0, 2 * min(low, high)))


def distribution_p(values: np.ndarray, law, tails: tuple[float, ...] = (1e-2, 1e-3, 1e-4)) -> float:
    """Smallest p-value of a Kolmogorov-Smirnov test and of counts in both tails at the given probabilities."""
    smallest = stats.kstest(values, law.cdf, method="asymp").pvalue  # of thousands of values
    for tail in tails:
        smallest = min(
            smallest,
            binomial_p(int((values > law.isf(tail)).sum()), len(values), tail),
            binomial_p(int((values < law.ppf(tail)).sum()), len(values), tail),
        )
    return float(smallest)


def variance_p(values: np.ndarray, variance: float) -> float:
    """Two-sided chi-square p-value of the variance of centred normal values."""
    statistic = float(np.square(values).sum()) / variance
    tail = min(stats.chi2.cdf(statistic, len(values)), stats.chi2.sf(statistic, len(values)))
    return float(min(1.0, 2 * tail))


def correlation_p(first: np.ndarray, second: np.ndarray) -> float:
    """Two-sided p-value of zero correlation between independent centred normal samples (normal limit)."""
    r = float(np.dot(first, second) / np.sqrt(np.dot(first, first) * np.dot(second, second)))
    return float(2 * stats.norm.sf(abs(r) * np.sqrt(len(first))))
