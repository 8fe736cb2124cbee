"""How far a top-k answer is from the true one. Not private: for evaluation.

N_(1) >= N_(2) >= ... are the true counts of all items, x_1, ..., x_q the answer, q <= k. An answer that is
too short counts as if it went on with items that nobody holds. Sources: missing mass and l1 as in Dick,
Joseph, Raman 2026 (Sections 4 and F.2); l_inf as in Wu and Zhang 2024 (Section 5).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpbeam.counts.histogram import check_k


@dataclass(frozen=True)
class TopkErrors:
    """Distance of one answer from the truth.

    Attributes:
      missing_mass: (sum of the k largest counts - sum of the counts of the answer) / sum of all counts.
      l1: sum over ranks i <= k of |N_(i) - N(x_i)|.
      linf: largest |N_(i) - N(x_i)|.
    """

    missing_mass: float
    l1: int
    linf: int


def topk_errors(counts: np.ndarray, positions: np.ndarray, k: int) -> TopkErrors:
    """Errors of an answer.

    Args:
      counts: (d,) true counts of all items, d >= k, in any order.
      positions: (q,) the answer in rank order, q <= k.
      k: the length asked for.

    Raises: ValueError if the answer is longer than k, repeats an item, or d < k.
    """
    counts, positions = np.asarray(counts, np.int64), np.asarray(positions, np.int64)
    k = check_k(k)
    if len(counts) < k:
        raise ValueError(f"counts must hold at least k = {k} items, got {len(counts)}")
    if len(positions) > k or len(np.unique(positions)) != len(positions):
        raise ValueError(f"positions must be at most k = {k} distinct items")
    best = np.sort(np.partition(counts, len(counts) - k)[len(counts) - k :])[::-1]
    answered = np.zeros(k, np.int64)
    answered[: len(positions)] = counts[positions]
    gaps = np.abs(best - answered)
    total = int(counts.sum())
    missing = int(best.sum() - answered.sum())
    return TopkErrors(missing / total if total else 0.0, int(gaps.sum()), int(gaps.max()))
