"""Histograms as the top-k mechanisms take them, and the canonical order of their items.

A histogram is a pair of arrays: counts (d,) int64, the number of users holding each item, and fingerprints
(d, 2) uint64, the keyed identity of each item (`dpbeam.randomness.fingerprints`), distinct. The canonical
order is by decreasing count, then by fingerprint; *rank* 0..d-1 is a place in that order, *position* an index
into the arrays as given. Nothing that is released depends on positions: they only name the answer to the
caller.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpbeam.accounting.peeling import check_rounds

COUNT_LIMIT = 2**52  # counts below it are exact float64, with a bit to spare for noise
_SORT_WHOLE_CLASS = 1 << 16


def check_histogram(
    counts: ArrayLike, fingerprint: ArrayLike, k: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Validates the arguments shared by every mechanism.

    Args:
      counts: (d,) integers from 0 to 2^52.
      fingerprint: (d, 2) uint64.
      k: number of items to choose, None where it need not be checked.

    Returns:
      counts (d,) int64, fingerprint (d, 2) uint64; no copy where the types fit already.

    Raises: ValueError naming the argument; k > d is refused, the caller decides what to do then.
    """
    counts = np.asarray(counts)
    if counts.ndim != 1 or not np.issubdtype(counts.dtype, np.integer):
        raise ValueError(f"counts must be a vector of integers, got {counts.dtype} of shape {counts.shape}")
    if len(counts) and (counts.min() < 0 or counts.max() > COUNT_LIMIT):
        raise ValueError("counts must lie in [0, 2^52]")
    fingerprint = np.asarray(fingerprint)
    if fingerprint.dtype != np.uint64 or fingerprint.shape != (len(counts), 2):
        raise ValueError(f"fingerprint must be uint64 of shape ({len(counts)}, 2)")
    if k is not None and check_k(k) > len(counts):
        raise ValueError(f"k must not exceed the number of items, got k = {k} and {len(counts)} items")
    return counts.astype(np.int64, copy=False), fingerprint


def check_k(k: int) -> int:
    """k as an int; ValueError unless it is an integer of at least 1."""
    return check_rounds(k, "k")


def kth_largest(values: np.ndarray, k: int) -> Any:
    """The k-th largest value (k = 1 is the maximum), in O(d)."""
    return np.partition(values, len(values) - k)[len(values) - k]


def largest_positions(values: np.ndarray, fingerprint: np.ndarray, k: int) -> np.ndarray:
    """Positions of the k largest values in decreasing order, (k,) int64; ties by fingerprint."""
    cut = kth_largest(values, k)
    above = np.flatnonzero(values > cut)
    tied = np.flatnonzero(values == cut)
    if len(above) + len(tied) > k:
        tied = tied[_fingerprint_order(fingerprint[tied], np.arange(k - len(above)))]
    chosen = np.concatenate((above, tied))
    order = np.lexsort((fingerprint[chosen, 1], fingerprint[chosen, 0], -values[chosen]))
    return chosen[order]


def positions_at_ranks(counts: np.ndarray, fingerprint: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """Positions of the items at the given ranks of the canonical order.

    O(d) plus the sorting of counts, without sorting fingerprints: only the items that share their count with
    an item asked for are looked at again.

    Args:
      counts, fingerprint: the histogram.
      ranks: (q,) distinct integers in [0, d).

    Returns:
      (q,) int64 positions, in the order of `ranks`.
    """
    ranks = np.asarray(ranks, np.int64)
    ascending = np.sort(counts)
    wanted_counts = ascending[len(counts) - 1 - ranks]
    values, of_value = np.unique(wanted_counts, return_inverse=True)
    first_rank = len(counts) - np.searchsorted(ascending, values, side="right")
    at = np.minimum(np.searchsorted(values, counts), len(values) - 1)
    members = np.flatnonzero(values[at] == counts)
    members = members[np.argsort(at[members], kind="stable")]
    edges = np.searchsorted(at[members], np.arange(len(values) + 1))
    positions = np.empty(len(ranks), np.int64)
    for v in range(len(values)):
        group = members[edges[v] : edges[v + 1]]
        asked = np.flatnonzero(of_value == v)
        positions[asked] = group[_fingerprint_order(fingerprint[group], ranks[asked] - first_rank[v])]
    return positions


def _fingerprint_order(fingerprint: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Indices of the items at `places` (q,) of the fingerprint order of (n, 2) fingerprints."""
    n = len(fingerprint)
    if n <= _SORT_WHOLE_CLASS:
        return np.lexsort((fingerprint[:, 1], fingerprint[:, 0]))[places]
    # Selection instead of sorting. Equal first words (probability n^2 / 2^65) are ordered by the second.
    words = fingerprint[:, 0]
    wanted = np.partition(words, places)[places]
    candidates = np.flatnonzero(np.isin(words, wanted))
    order = candidates[np.lexsort((fingerprint[candidates, 1], words[candidates]))]
    lowest, start = np.unique(words[order], return_index=True)
    which = np.searchsorted(lowest, wanted)
    below = np.searchsorted(np.sort(words), lowest)[which]
    return order[start[which] + places - below]
