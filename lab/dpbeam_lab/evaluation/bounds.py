"""What can be said beforehand of the mass that a release misses. Looks at true counts: NOT PRIVATE.

Source: Dick, Joseph and Raman 2026, "Missing Mass for Differentially Private Domain Discovery"; theorem numbers are
theirs. Their theorems hide constants; these functions carry the constants of the proofs, for the Weighted Gaussian
Mechanism (method basic) with noise sigma, threshold T and at most D0 items of a user. N(x) users hold item x, N is the
number of pairs, N_(r) the r-th largest N(x), MM_p the p-norm of N(x)/N over the items that are not released.

The last two steps of the printed proof of Theorem 3.3 do not hold:

- it takes an item with N(x) <= tau to have a rank beyond (C N/tau)^(1/s), but a Zipf law bounds counts from above
  only: an item of rank 1 may be as rare as any;
- it joins two terms by x^a + y^a <= (x + y)^a, which is the wrong way round for a < 1.

100 items of 10 users each, who hold nothing else, are (C, s)-Zipfian for every s; at epsilon 1, delta 1e-5, D0 = 1 the
mechanism misses .98 of them, and with s = 80 the printed bound is .40. What does hold: every missed item, also one that
no sample holds, has N(x) <= tau, so

    MM_1 <= sum over r of min(tau/N, C r^-s) <= integral of the same = s/(s - 1) C^(1/s) (tau/N)^((s-1)/s).

`theorem_3_3` is that; `theorem_3_3_printed` is kept to compare, and is true where it is not below the other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpbeam.accounting.gaussian import check_positive, gaussian_sigma
from dpbeam.accounting.limits import release_probability_limit
from dpbeam.accounting.peeling import check_rounds, peeling_epsilon0
from dpbeam.accounting.threshold import novel_threshold
from dpbeam_lab.evaluation.indexed import IndexedSets

BOUND_FAILURE = 0.05
_EXPONENTS = 1.0 + np.geomspace(0.01, 10.0, 200)


@dataclass(frozen=True)
class Masses:
    """What the bounds take from the data.

    Attributes:
      counts: (items,) N_(1) >= N_(2) >= ..., all positive.
      largest_set: items of the user who holds most.
    """

    counts: np.ndarray
    largest_set: int

    def __post_init__(self) -> None:
        counts = np.sort(np.asarray(self.counts, np.int64))[::-1]
        if not len(counts) or counts[-1] < 1 or self.largest_set < 1:
            raise ValueError("counts and the largest set must be positive, and there must be an item")
        object.__setattr__(self, "counts", counts)

    @classmethod
    def of(cls, indexed: IndexedSets) -> Masses:
        """Those of a dataset."""
        return cls(indexed.holders, int(indexed.sets.degrees.max()))

    @property
    def total(self) -> int:
        """N, the number of pairs."""
        return int(self.counts.sum())


@dataclass(frozen=True)
class ZipfLaw:
    """N_(r)/N <= factor r^-exponent for every rank r.

    Definition 3.1, which also wants factor >= 1; no proof uses that.
    """

    factor: float
    exponent: float

    def held(self, total: int) -> float:
        """(C N)^(1/s): no user can hold more items (Lemma 3.1)."""
        return (self.factor * total) ** (1.0 / self.exponent)


def fit_zipf(masses: Masses, exponent: float) -> ZipfLaw:
    """The law of that exponent with the smallest factor that the counts obey."""
    exponent = check_positive("exponent", exponent)
    counts = masses.counts
    last = np.flatnonzero(np.append(counts[1:] != counts[:-1], True))  # of equal counts the last needs most
    factor = np.max(np.log(counts[last] / masses.total) + exponent * np.log(last + 1.0))
    return ZipfLaw(math.exp(float(factor)), exponent)


@dataclass(frozen=True)
class Wgm:
    """The Weighted Gaussian Mechanism (Algorithm 1): sigma, threshold T and D0."""

    sigma: float
    threshold: float
    max_items: int

    @classmethod
    def of(cls, epsilon: float, delta: float, max_items: int) -> Wgm:
        """Theorem 3.2: half of delta for the noise, half for the threshold."""
        sigma = gaussian_sigma(epsilon, delta / 2)
        return cls(sigma, novel_threshold(sigma, delta / 2, max_items, lambda t: 1 / np.sqrt(t)), max_items)

    def sampled(self, masses: Masses) -> float:
        """p*: the least chance that a user's item stays in the sample."""
        return min(1.0, self.max_items / masses.largest_set)

    def weight_missed(self, masses: Masses, failure: float) -> float:
        """sqrt(q*) T0: no item that is missed is in more samples, but with probability failure/3 (Lemma C.4)."""
        q = min(masses.largest_set, self.max_items)
        highest = self.threshold + self.sigma * math.sqrt(2.0 * math.log(6.0 * masses.total / failure))
        return math.sqrt(q) * highest

    def count_missed(self, masses: Masses, failure: float, held: float) -> float:
        """tau: no missed item has more users, but with probability `failure` (Lemmas C.3 and C.4).

        Args:
          held: at least the number of items: N itself, or (C N)^(1/s) under a law.
        """
        rare = 8.0 * math.log(3.0 * held / failure)
        return max(2.0 * self.weight_missed(masses, failure), rare) / self.sampled(masses)


def theorem_3_6(masses: Masses, wgm: Wgm, failure: float = BOUND_FAILURE) -> float:
    """Bound on MM_inf for any data; holds but with probability `failure`. Above 1 it says nothing."""
    _check_failure(failure)
    return wgm.count_missed(masses, failure, masses.total) / masses.total


def rare_items(masses: Masses, wgm: Wgm, failure: float = BOUND_FAILURE) -> float:
    """Bound on MM_1 for any data: all that is as rare as Theorem 3.6 lets a missed item be, as a share of N."""
    bar = theorem_3_6(masses, wgm, failure) * masses.total
    return float(masses.counts[masses.counts <= bar].sum() / masses.total)


def theorem_3_3(masses: Masses, wgm: Wgm, law: ZipfLaw, failure: float = BOUND_FAILURE) -> float:
    """Bound on MM_1 for data that obey the law, s > 1; corrected, see the module. Above 1 it says nothing.

    Raises:
      ValueError: an exponent of at most 1, or a failure probability outside (0, 1).
    """
    s, c = _check_law(law), law.factor
    _check_failure(failure)
    bar = wgm.count_missed(masses, failure, law.held(masses.total)) / masses.total
    return s / (s - 1.0) * c ** (1.0 / s) * bar ** ((s - 1.0) / s)


def theorem_3_3_printed(masses: Masses, wgm: Wgm, law: ZipfLaw, failure: float = BOUND_FAILURE) -> float:
    """The last line of the printed proof of Theorem 3.3, which does not always hold; see the module.

    Raises:
      ValueError: as `theorem_3_3`.
    """
    s, c = _check_law(law), law.factor
    _check_failure(failure)
    inner = max(wgm.weight_missed(masses, failure), math.log(3.0 * law.held(masses.total) / failure))
    inner *= 9.0 / (wgm.sampled(masses) * masses.total)
    return c ** (1.0 / s) / (s - 1.0) * inner ** ((s - 1.0) / s)


def best_law(masses: Masses, wgm: Wgm, failure: float = BOUND_FAILURE) -> ZipfLaw:
    """The data's law (C, s), 1.01 <= s <= 11, with the smallest bound of Theorem 3.3.

    It depends on the data alone, so the bound holds as for a law fixed beforehand.
    """
    laws = [fit_zipf(masses, s) for s in _EXPONENTS]
    return min(laws, key=lambda law: theorem_3_3(masses, wgm, law, failure))


def theorem_4_5(masses: Masses, epsilon: float, delta: float, max_items: int, k: int) -> float:
    """Users by which the hits of k items may fall short of 1 - 1/e of the best k items' hits.

    Half the budget for the domain, half for user peeling with fresh Gumbel noise of scale lambda = 1/eps_0 (Lemma
    B.1), as in the paper. With probability 1 - beta, beta = `BOUND_FAILURE`, Hits >= (1 - 1/e) Opt - this: (1 - 1/e) k
    tau of Lemma C.8, tau users being what Theorem 3.6 lets a missed item have, and 2 k lambda ln(2 M k/beta) of Lemma
    C.7 for all M items, each at half the failure probability. If fewer than k items are released, all of them are, and
    the first part covers the rest. Above (1 - 1/e) times the number of users it says nothing.
    """
    k = check_rounds(k, "k")
    wgm = Wgm.of(epsilon / 2, delta / 2, max_items)
    failure = BOUND_FAILURE / 2
    missed = (1.0 - math.exp(-1.0)) * theorem_3_6(masses, wgm, failure) * masses.total
    spread = math.log(2.0 * len(masses.counts) * k / failure) / peeling_epsilon0(epsilon / 2, delta / 2, k)
    return k * (missed + 2.0 * spread)


def missing_mass_floor(masses: Masses, epsilon: float, delta: float) -> float:
    """No (epsilon, delta)-algorithm that releases only what somebody holds misses less on average (MM_1).

    The sum behind Theorem 3.5, with the exact limit of an item's release in place of Lemma D.1's 1/2.
    """
    counts, times = np.unique(masses.counts, return_counts=True)
    missed = 1.0 - np.asarray(release_probability_limit(counts, epsilon, delta))
    return float((missed * counts * times).sum() / masses.total)


def _check_failure(failure: float) -> None:
    if not 0.0 < failure < 1.0:
        raise ValueError(f"the failure probability must lie in (0, 1), got {failure}")


def _check_law(law: ZipfLaw) -> float:
    if not law.exponent > 1.0:
        raise ValueError(f"the exponent of the law must be above 1, got {law.exponent}")
    return law.exponent
