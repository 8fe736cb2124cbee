"""The canonical Lipschitz mechanism: a set of k items in one draw, without a delta. NOT PRIVATE: of a plain generator.

Source: Shekelyan and Loukides, "Differentially Private Top-k Selection via Canonical Lipschitz Mechanism", arXiv
2201.13376, 2022; derived here from its definition. The loss of a k-subset S is the number of users that must change
for S to be a top-k: max(0, max_(j not in S) h_j - min_(i in S) h_i), because a user that is added with all of S, and
none of the rest, lowers the difference by 1, and nobody lowers it by more. So one user moves the loss by at most 1,
either way. The subset with the largest noise - loss is chosen, noise independent with scale 2/epsilon: exponential
noise is permute-and-flip (McKenna and Sheldon 2020; Ding et al. 2021), Gumbel noise the exponential mechanism. Both
are epsilon-DP; privacy unit one user, neighbours add/remove one user, who may hold any number of items.

Items by rank, the loss of a subset that holds ranks 1..a, not a + 1, and t as its last is h_(a+1) - h_(t), whatever it
holds between: binom(t - a - 2, k - a - 1) subsets. So the k (d - k) pairs (a, t) and the top-k itself are all there is
to draw the largest noise for; O(d k) time and memory.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from scipy.special import gammaln

from dpbeam.errors import SettingError
from dpbeam.topk.config import MAX_K
from dpbeam.topk.joint import MAX_ENTRIES
from dpbeam_lab.evaluation.data import HISTOGRAM, HistogramData, PairData, Repetition
from dpbeam_lab.evaluation.methods import TOP_K, Method, Outcome, Prepared, whole

_NOISES = ("exponential", "gumbel")
_TINY = -30.0  # e^-a is 1 - a below e^_TINY, in doubles


class TopKSubset(Method):
    """k items as a set: it has no order, so of its errors the missing mass alone means something."""

    name = "top-k-subset"
    kind = TOP_K
    data = HISTOGRAM
    parallel = False
    note = "the canonical Lipschitz mechanism: a set, not a ranking; the items are taken for public"

    def settings(self, settings: Mapping[str, Any]) -> Collection[str]:
        return ("k", "noise")

    def prepare(self, epsilon: float, delta: float, settings: Mapping[str, Any]) -> Prepared:
        k = whole(settings, "k", 1, MAX_K)
        noise = settings.get("noise", _NOISES[0])
        if noise not in _NOISES:
            raise SettingError(f"noise must be one of {', '.join(_NOISES)}, got {noise!r}")
        return functools.partial(_chosen, k, epsilon, noise == _NOISES[0])


def _chosen(
    k: int, epsilon: float, exponential: bool, data: PairData | HistogramData, repetition: Repetition
) -> Outcome:
    counts = np.asarray(data.holders)
    order = np.argsort(-counts, kind="stable")
    ranks = draw_subset(counts[order], min(k, len(counts)), epsilon, repetition.rng(), exponential)
    return Outcome(order[ranks])


def subset_classes(descending: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Subsets of equal loss by (a, t): all of ranks 1..a, not a + 1, and t as the last one; at a = k the top-k itself.

    Args:
      descending: (d,) counts, 1 <= k <= d.

    Returns:
      a, t: (1 + k (d - k),) int64; losses: int64, users; logs: float64, ln of the number of subsets.

    Raises:
      InputError: there are more than 10^8 classes.
    """
    d = len(descending)
    if k * (d - k) > MAX_ENTRIES:
        raise SettingError(
            f"top-k-subset keeps k (d - k) classes: {k * (d - k)} is more than {MAX_ENTRIES:.0e}"
        )
    a, t = (grid.ravel() for grid in np.meshgrid(np.arange(k), np.arange(k + 1, d + 1), indexing="ij"))
    free, places = k - a - 1, t - a - 2
    logs = gammaln(places + 1) - gammaln(free + 1) - gammaln(places - free + 1)
    losses = descending[a] - descending[t - 1]
    return np.append(a, k), np.append(t, k), np.append(losses, 0), np.append(logs, 0.0)


def draw_subset(
    descending: np.ndarray, k: int, epsilon: float, rng: np.random.Generator, exponential: bool = True
) -> np.ndarray:
    """(k,) int64 ranks from 0, ascending, of the subset with the largest noise - loss.

    Args:
      descending: (d,) counts, 1 <= k <= d.
      exponential: noise; False: Gumbel.
    """
    a, t, losses, logs = subset_classes(descending, k)
    largest = largest_exponential if exponential else _largest_gumbel
    chosen = int(np.argmax(largest(logs, rng) * (2.0 / epsilon) - losses))
    kept, last = int(a[chosen]), int(t[chosen])
    if kept == k:
        return np.arange(k)
    between = kept + 1 + np.sort(rng.choice(last - kept - 2, k - kept - 1, replace=False))
    return np.concatenate([np.arange(kept), between, [last - 1]])


def largest_exponential(logs: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The largest of e^logs standard exponentials, for each; numbers of them may pass what a double holds."""
    # U^(1/m) is the quantile of the largest of m: a = -ln(U)/m, by its logarithm.
    log_a = np.log(rng.standard_exponential(len(logs))) - logs
    small = log_a < _TINY
    return np.where(small, -log_a, -np.log(-np.expm1(-np.exp(np.where(small, _TINY, log_a)))))


def _largest_gumbel(logs: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return logs + rng.gumbel(size=len(logs))
