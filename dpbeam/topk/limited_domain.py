"""Limited domain: top-k without a known domain, in one stage.

Source: Durfee and Rogers, "Practical Differentially Private Top-k Selection with Pay-what-you-get
Composition", NeurIPS 2019 (Section 5). A baseline: it needs no selector, and returns fewer than
k items where counts are too close to the (kbar+1)-th.

Why it is private (the argument for the code as it is, ties and short domains included). Let h, h' differ by
one user, and D, D' be the kbar items of largest count in each, ties by fingerprint; where fewer than kbar
items exist, D is filled up with items of count 0 that nobody else names (leaving them out, as the code does,
only makes the other outcomes likelier). Each user changes at most t = min(D0,
kbar) of these places. If x left and y entered from D to D', then h(y) <= h(x) and h'(x) <= h'(y), so all of
h(x), h'(x), h(y), h'(y) lie within 1, and naming the place of x after y turns the change into one of a fixed
set of kbar places whose counts move the same way by at most 1; so does the (kbar+1)-th count, hence the stop
mark. On places the mechanism is therefore k rounds of peeling of bounded range epsilon0. The places whose
item differs hold counts of at most h_(kbar+1) + 1, and each of the t beats the stop mark with probability at
most delta_stop/t. Off that event the items are those of the places: with peeling (epsilon', delta')-DP, the
whole is (epsilon', delta' + delta_stop)-DP, with no factor exp(epsilon').
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from dpbeam.accounting.gaussian import check_positive
from dpbeam.counts.histogram import check_histogram, check_k, largest_positions
from dpbeam.randomness import KeyedBits, RunKey, prf_bits
from dpbeam.randomness.discrete import gumbel_peel

_STOP_BLOCK = np.zeros((1, 2), np.uint64)


def max_changed(kbar: int | None, max_items_per_user: int | None) -> int:
    """min(D0, kbar): the number of considered places that one user can change; None means no limit.

    Raises: ValueError if neither is limited, or one is below 1.
    """
    limits = [check_k(limit) for limit in (kbar, max_items_per_user) if limit is not None]
    if not limits:
        raise ValueError(
            "limited domain needs kbar or max_items_per_user: without both no threshold is private"
        )
    return min(limits)


def stop_gap(epsilon0: float, delta: float, changed: int) -> float:
    """Distance of the stop mark above h_(kbar+1): 1 + ln(changed / delta) / epsilon0, rounded up."""
    return (1 + math.log(changed / delta) / epsilon0) * (1 + 1e-14)


def limited_domain(
    counts: ArrayLike,
    fingerprint: ArrayLike,
    k: int,
    epsilon0: float,
    gap: float,
    key: RunKey,
    kbar: int | None = None,
    label: str = "top-k",
) -> np.ndarray:
    """At most k items by peeling among the kbar largest counts, until a noisy stop mark is met.

    Guarantee: with epsilon0 from `peeling_epsilon0(epsilon, delta', k)` and gap from `stop_gap(epsilon0,
    delta_stop, max_changed)`: (epsilon, delta' + delta_stop)-DP, add/remove one user; proof in the module
    docstring. With a limit D0 in the gap, the counts must come from sets of at most D0 items per user,
    sampled independently of others. (Replacing a user is two steps: 2 epsilon and (1 + e^epsilon) delta.)

    Args:
      counts, fingerprint: histogram of all items that somebody holds, (d,) and (d, 2); count 0 is never
        returned.
      k: largest number of items to return; it may exceed d.
      epsilon0: range of one choice.
      gap: distance of the stop mark above the (kbar+1)-th count.
      key, label: as in `cdp_peel`.
      kbar: number of items considered, at least k; None for all.

    Returns:
      (q,) int64 positions in rank order, 0 <= q <= k.

    Raises: ValueError naming the argument.
    """
    counts, fingerprint = check_histogram(counts, fingerprint)
    k = check_k(k)
    if kbar is not None and check_k(kbar) < k:
        raise ValueError(f"kbar must be at least k, got kbar = {kbar} and k = {k}")
    check_positive("epsilon0", epsilon0)
    check_positive("gap", gap)
    places = np.flatnonzero(counts > 0)
    beyond = 0
    if kbar is not None and kbar < len(places):
        ordered = largest_positions(counts[places], fingerprint[places], kbar + 1)
        beyond = int(counts[places[ordered[kbar]]])
        places = places[ordered[:kbar]]
    if not len(places):
        return np.empty(0, np.int64)
    # The stop mark runs along as one more item, with a fingerprint that no item has but by chance.
    mark = prf_bits(key.derive(f"{label}/limited-domain/stop"), _STOP_BLOCK)
    runners = np.concatenate((fingerprint[places], mark))
    bits = KeyedBits(key, f"{label}/limited-domain", runners)
    stop = beyond + Fraction(gap)
    return places[gumbel_peel(counts[places], epsilon0, bits, min(k, len(places)), stop)]


def largest_needed(mechanism: object) -> int | None:
    """How many of the largest counts a mechanism looks at; None: all of them."""
    kbar = getattr(mechanism, "kbar", None)
    return None if kbar is None else kbar + 1
