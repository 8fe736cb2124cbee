"""Peeling mechanisms: one item after the other, the largest noisy count first.

CDP-Peel adds one Gumbel variate per item, a pseudo-random function of the item's fingerprint, and takes the k
largest: equal in distribution to k exponential mechanisms without replacement (Durfee and Rogers 2019,
Section 4), and a distributed top-k finds it without a histogram in one place. Comparisons are those of real numbers
(`dpbeam.randomness.discrete.choices`).

PNF-Peel is k rounds of permute-and-flip (McKenna and Sheldon 2020), in its form as a noisy maximum with
exponential noise (Ding et al. 2021). Items of equal count are exchangeable, so a round draws the largest of
the n variates of each distinct count at once (the n-th root of a uniform) and then a member: O(d + k V) for V
distinct counts instead of O(d k), the same distribution.

Guarantees are for add/remove of one user, where counts move one way by at most 1. Under replace-one they
can move both ways, and the same noise costs twice epsilon.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from dpbeam.accounting.gaussian import check_positive
from dpbeam.counts.histogram import check_histogram, kth_largest, positions_at_ranks
from dpbeam.randomness import KeyedBits, RunKey
from dpbeam.randomness.discrete import gumbel_peel, largest_of_groups
from dpbeam.topk.draws import Draws, draw_untaken

# The largest of n < 2^63 exponentials that come from 128 bits is at most 129 ln 2 + ln n.
LARGEST_EXPONENTIAL_MAX = 134.0


def cdp_peel(
    counts: ArrayLike, fingerprint: ArrayLike, k: int, epsilon0: float, key: RunKey, label: str = "top-k"
) -> np.ndarray:
    """The k items with the largest counts + Gumbel noise of scale 1/epsilon0.

    Guarantee: privacy unit one user, neighbours add/remove one user; each of the k choices has bounded range
    epsilon0, which `PeelingEvent(epsilon0, k)` accounts for. No limit on items per user is needed.

    Args:
      counts, fingerprint: histogram of a public domain or of released items, (d,) and (d, 2).
      k: number of items, 1 <= k <= d.
      epsilon0: range of one choice, from `dpbeam.accounting.peeling`.
      key: the run's key.
      label: names this use of the key; never use one label twice on different data.

    Returns:
      (k,) int64 positions in rank order.

    Raises: ValueError naming the argument.
    """
    counts, fingerprint = check_histogram(counts, fingerprint, k)
    epsilon0 = check_positive("epsilon0", epsilon0)
    return gumbel_peel(counts, epsilon0, KeyedBits(key, f"{label}/cdp-peel", fingerprint), k)


def pnf_peel(
    counts: ArrayLike, fingerprint: ArrayLike, k: int, epsilon: float, key: RunKey, label: str = "top-k"
) -> np.ndarray:
    """k rounds of permute-and-flip at epsilon/k each.

    Guarantee: epsilon-DP (pure), add/remove one user, by basic composition of k rounds of epsilon/k; a round
    adds exponential noise of scale k/epsilon, enough because counts are monotone (McKenna and Sheldon 2020).

    Args, returns, raises: see `cdp_peel`, with epsilon the budget of all rounds.
    """
    counts, fingerprint = check_histogram(counts, fingerprint, k)
    round_epsilon = math.nextafter(check_positive("epsilon", epsilon) / k, 0.0)
    low = kth_largest(counts, k) - LARGEST_EXPONENTIAL_MAX / round_epsilon - 1
    values, members = np.unique(counts[counts >= low], return_counts=True)
    ranks = pnf_ranks(values[::-1], members[::-1], k, round_epsilon, key, f"{label}/pnf-peel")
    return positions_at_ranks(counts, fingerprint, ranks)


def pnf_ranks(
    values: np.ndarray, members: np.ndarray, k: int, round_epsilon: float, key: RunKey, label: str
) -> np.ndarray:
    """Ranks chosen by k rounds of a noisy maximum with exponential noise of scale 1/round_epsilon.

    Comparisons are those of real numbers (`largest_of_groups`).

    Args:
      values: (V,) distinct counts, decreasing.
      members: (V,) number of items of each count.

    Returns:
      (k,) int64 ranks, (value decreasing, then canonical) order.
    """
    first = np.concatenate(([0], np.cumsum(members)))
    left = members.astype(np.int64)
    draws, groups = Draws(key, f"{label}/member"), np.arange(len(values))
    taken: list[int] = []
    ranks = np.empty(k, np.int64)
    for j in range(k):
        # Words of this round's groups: the round and the group stand where an item's fingerprint does.
        places = np.stack((np.full(len(values), j), groups), axis=1).astype(np.uint64)
        v = largest_of_groups(values, left, round_epsilon, KeyedBits(key, f"{label}/round", places), groups)
        ranks[j] = draw_untaken(taken, int(first[v]), int(first[v + 1]), draws)
        left[v] -= 1
    return ranks
