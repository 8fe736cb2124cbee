"""Joint: the exponential mechanism over all sequences of k items, in O(dk) memory; reference of FastJoint.

Source: Gillenwater, Joseph, Munoz Medina, Ribero Diaz, "A Joint Exponential Mechanism for Differentially
Private Top-k", 2022. A sequence s is drawn with probability proportional to exp(-epsilon E(s)/2), E(s) =
max_j (h_(j) - h[s_j]).

Design. All k d differences h_(i) - h_(j) are sorted once, ties by larger i first, then smaller j. The largest
difference of a sequence in that order belongs to one pair (i, j): position i holds item j and every other
position r chooses among the n_r items whose differences come earlier, which are the first n_r items. Sweeping
the pairs in order keeps the sum of ln(n_r - r) up to date. It shares no formula with FastJoint, whose groups
name the *first* position of the largest loss, and therefore tests it. Sums of logarithms are compensated (`sums.py`):
over k d terms of which many are equal, plain ones are off by 1e-8.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dpbeam.accounting.gaussian import check_positive
from dpbeam.counts.histogram import check_histogram, positions_at_ranks
from dpbeam.randomness import RunKey
from dpbeam.topk.draws import Draws, draw_sequence
from dpbeam.topk.sums import running_sums

MAX_ENTRIES = 10**8  # of the k x d table; about 60 bytes each


def joint(
    counts: ArrayLike, fingerprint: ArrayLike, k: int, epsilon: float, key: RunKey, label: str = "top-k"
) -> np.ndarray:
    """A sequence of k items by the joint exponential mechanism.

    Guarantee: epsilon-DP (pure); privacy unit one user, neighbours add/remove one user; no limit on items per
    user. Replacing a user moves the loss by up to 2: 2 epsilon, and no delta.

    Args, returns: see `fast_joint`. Time O(d k log k), memory about 60 d k bytes.

    Raises: ValueError naming the argument, also where d k exceeds 10^8.
    """
    counts, fingerprint = check_histogram(counts, fingerprint, k)
    check_positive("epsilon", epsilon)
    if len(counts) * k > MAX_ENTRIES:
        raise ValueError(
            f"joint keeps a table of k x items entries: {k} x {len(counts)} is more than {MAX_ENTRIES:.0e}; "
            "fast_joint draws from the same distribution, up to its beta"
        )
    descending = np.sort(counts)[::-1]
    ranks = joint_ranks(descending, k, epsilon, Draws(key, f"{label}/joint"))
    return positions_at_ranks(counts, fingerprint, ranks)


def joint_ranks(descending: np.ndarray, k: int, epsilon: float, draws: Draws) -> np.ndarray:
    """The mechanism on counts in decreasing order (d,); returns (k,) int64 ranks."""
    d = len(descending)
    order, losses, logs = joint_groups(descending, k)
    chosen = draws.choice(logs - epsilon / 2 * losses)
    i, item = k - 1 - int(order[chosen]) // d, int(order[chosen]) % d
    ascending, loss = descending[::-1], int(losses[chosen])
    limits = descending[:k] - loss
    more = d - np.searchsorted(ascending, limits, side="right")  # h > h_(r) - loss
    least = d - np.searchsorted(ascending, limits, side="left")  # h >= h_(r) - loss
    first, end = np.zeros(k, np.int64), np.where(np.arange(k) < i, more, least)
    first[i], end[i] = item, item + 1
    return draw_sequence(first, end, draws)


def joint_groups(descending: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sizes of the groups of sequences, one group per pair (i, j), in increasing order of loss.

    Returns:
      order: (k d,) int64, (k - 1 - i) d + j for the pair (i, j).
      losses: (k d,) int64 h_(i) - h_(j).
      logs: (k d,) float64, ln of the number of sequences, -inf where there are none.
    """
    d = len(descending)
    differences = (descending[k - 1 :: -1][:k, None] - descending[None, :]).ravel()
    order = np.argsort(differences, kind="stable")  # merges k sorted runs
    rows = k - 1 - order // d
    places = order % d
    factor = places + 1 - rows  # n_i - i of the row itself, once this pair counts
    with np.errstate(divide="ignore", invalid="ignore"):
        growth = np.where(factor > 1, -np.log1p(-1.0 / factor), 0.0)
        own = np.log(np.maximum(factor, 1))
    # A row starts to count with its factor 1; before all rows have, there is no sequence.
    complete = np.cumsum(factor == 1) == k
    logs = np.where(complete, running_sums(growth) - own, -np.inf)
    return order, differences[order], logs
