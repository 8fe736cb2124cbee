"""FastJoint: one exponential mechanism over all sequences of k items, with pruned loss.

Source: Wu and Zhang, "Faster Differentially Private Top-k Selection: A Joint Exponential Mechanism with
Pruning", 2024 (Sections 4 and B). A sequence s has loss E(s) = max_j (h_(j) - h[s_j]); FastJoint draws s with
probability proportional to exp(-epsilon min(E(s), tau) / 2). Adding a user moves E by at most 1, hence
epsilon-DP, whatever tau.

Design. Write C_{r,j} for the number of items with h >= h_(j) - r. In the canonical order they are the first
C_{r,j} items, for every r and j: a set of candidates is a prefix, never an array. Sequences with loss in (a,
b], grouped by the first position i whose loss exceeds a, number

    prod_{j<i} (C_{a,j} - (j-1)) * (C_{b,i} - C_{a,i}) * prod_{j>i} (C_{b,j} - (j-1)).

The published algorithm takes b = a + 1. Here (a, b] is as wide as `_WIDTH / epsilon`: a segment is drawn with
probability proportional to its size times exp(-epsilon (a+1)/2), a sequence uniformly in it, and the sequence
is accepted with probability exp(-epsilon (E(s) - a - 1)/2) >= exp(-_WIDTH/2), else all is drawn again. The
result is exact in distribution and takes O(d + k ln(d^k / beta)) instead of O(d + k tau): no dependence on
epsilon. With segments of width 1 it is the published algorithm.

The sum over i telescopes to N(b) - N(a), N(r) the number of sequences of loss <= r; C_{-1,j} counts the items
with h > h_(j), which makes N(-1) = 0 and the first segment right.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from dpbeam.accounting.gaussian import check_positive
from dpbeam.counts.histogram import check_histogram, check_k, kth_largest, positions_at_ranks
from dpbeam.randomness import RunKey
from dpbeam.topk.draws import Draws, draw_sequence
from dpbeam.topk.sums import running_sums

DEFAULT_BETA = 2.0**-10
# Wider segments save rows of the table and cost rejected sequences: 6 is about best from k = 100 on.
_WIDTH = 6.0
_CHUNK = 1 << 20  # table entries held at once
_NO_PRUNING = 2**62


def log_sequences(d: int, k: int) -> float:
    """ln of the number of sequences of k distinct items among d."""
    return math.lgamma(d + 1) - math.lgamma(d - k + 1)


def pruning_loss(d: int, k: int, epsilon: float, beta: float) -> int:
    """tau = ceil((2/epsilon) ln(d! / (d-k)! / beta)); a loss of tau or more has probability at most beta.

    Raises: ValueError unless 0 < beta < 1.
    """
    if not 0 < beta < 1:
        raise ValueError(f"beta must lie in (0, 1), got {beta}")
    tau = 2 / epsilon * (log_sequences(d, k) - math.log(beta))
    return math.ceil(tau) if tau < _NO_PRUNING else _NO_PRUNING


def fast_joint(
    counts: ArrayLike,
    fingerprint: ArrayLike,
    k: int,
    epsilon: float,
    key: RunKey,
    label: str = "top-k",
    beta: float = DEFAULT_BETA,
) -> np.ndarray:
    """A sequence of k items by the joint exponential mechanism with pruned loss.

    Guarantee: epsilon-DP (pure) for every beta; privacy unit one user, neighbours add/remove one user; no
    limit on items per user. (Replacing a user moves the loss by up to 2: 2 epsilon, and no delta.) Pr[loss >= tau] <=
    beta.

    Args:
      counts, fingerprint: histogram of a public domain or of released items, (d,) and (d, 2).
      k: number of items, 1 <= k <= d.
      epsilon: the budget.
      key, label: as in `cdp_peel`.
      beta: failure probability of the pruning, in (0, 1).

    Returns:
      (k,) int64 positions in rank order.

    Raises: ValueError naming the argument.
    """
    counts, fingerprint = check_histogram(counts, fingerprint, k)
    check_positive("epsilon", epsilon)
    tau = pruning_loss(len(counts), check_k(k), epsilon, beta)
    # Items at h_(k) - tau or below have a loss of tau at every position: only their number matters.
    near = np.sort(counts[counts > kth_largest(counts, k) - tau])
    ranks = fast_joint_ranks(near, len(counts), k, epsilon, tau, Draws(key, f"{label}/fast-joint"))
    return positions_at_ranks(counts, fingerprint, ranks)


def fast_joint_ranks(
    near: np.ndarray, d: int, k: int, epsilon: float, tau: int, draws: Draws, width: float = _WIDTH
) -> np.ndarray:
    """The mechanism on sorted counts.

    Args:
      near: ascending counts of all items with h > h_(k) - tau.
      d: number of items in all.
      width: epsilon times the width of a segment; any value gives the same distribution.

    Returns:
      (k,) int64 ranks in the canonical order.
    """
    tops = near[: -k - 1 : -1]
    edges = segment_edges(int(tops[0] - near[0]), tau, max(1, math.floor(width / epsilon)))
    log_mass = segment_log_masses(near, d, tops, edges, tau, epsilon)
    while True:
        m = draws.choice(log_mass)
        low, high = prefix_sizes(near, d, tops, edges[m : m + 2], tau)
        i = draws.choice(log_group_sizes(low, high))
        ranks = draw_sequence(*candidate_ranges(low, high, i), draws)
        loss = tau if edges[m + 1] == tau else int(np.max(tops - near[len(near) - 1 - ranks]))
        if draws.accept(-epsilon / 2 * (loss - int(edges[m]) - 1)):
            return ranks


def segment_edges(largest_loss: int, tau: int, width: int) -> np.ndarray:
    """-1 = t_0 < t_1 < ... (M + 1,) int64: segment m holds the losses in (t_m, t_{m+1}].

    The losses below tau that occur, largest_loss at most, in segments of this width; then tau, the pruned
    group, alone: its losses are all equal to tau by definition.
    """
    last = min(tau - 1, largest_loss)
    inner = np.arange(-1, last, width, dtype=np.int64)
    return np.append(inner, np.unique([last, tau - 1, tau]))


def prefix_sizes(near: np.ndarray, d: int, tops: np.ndarray, losses: np.ndarray, tau: int) -> np.ndarray:
    """C_{r,j} = number of items with h >= h_(j) - r, for each r of `losses`, (R, k) int64; C_{tau,j} = d."""
    sizes = len(near) - np.searchsorted(near, tops[None, :] - losses[:, None])
    sizes[losses == tau] = d
    return sizes


def candidate_ranges(low: np.ndarray, high: np.ndarray, i: int) -> tuple[np.ndarray, np.ndarray]:
    """Ranks [first, end) open to each position of a sequence of group i, (k,) each."""
    before = np.arange(len(low)) < i
    first, end = np.zeros_like(low), np.where(before, low, high)
    first[i] = low[i]
    return first, end


def log_group_sizes(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """ln of the number of sequences of each group, -inf where there are none.

    Args:
      low: (..., k) integers C_{a,j}.
      high: (..., k) integers C_{b,j}, b > a.

    Returns:
      (..., k) float64, one value per first position i whose loss exceeds a.
    """
    taken = np.arange(low.shape[-1])
    before, after = _log(low - taken), _log(high - taken)
    sizes = _log(high - low)
    sizes[..., 1:] += running_sums(before[..., :-1])
    sizes[..., :-1] += running_sums(after[..., :0:-1])[..., ::-1]
    return sizes


def segment_log_masses(
    near: np.ndarray, d: int, tops: np.ndarray, edges: np.ndarray, tau: int, epsilon: float
) -> np.ndarray:
    """ln of (number of sequences in the segment) exp(-epsilon (t_m + 1)/2), (M,) float64. O(M k) time."""
    masses = np.empty(len(edges) - 1)
    rows = max(1, _CHUNK // len(tops))
    for start in range(0, len(masses), rows):
        part = edges[start : start + rows + 1]
        sizes = prefix_sizes(near, d, tops, part, tau)
        # The pruned group starts above tau - 1: its loss is tau.
        logs = log_group_sizes(sizes[:-1], sizes[1:])
        peak = np.max(logs, axis=1)
        safe = np.where(np.isfinite(peak), peak, 0.0)
        with np.errstate(divide="ignore"):
            total = np.log(np.sum(np.exp(logs - safe[:, None]), axis=1))
        masses[start : start + rows] = safe + total - epsilon / 2 * (part[:-1] + 1)
    return masses


def _log(values: np.ndarray) -> np.ndarray:
    """ln, with -inf for zero and for negative numbers of candidates."""
    with np.errstate(divide="ignore"):
        return np.log(np.maximum(values, 0))
