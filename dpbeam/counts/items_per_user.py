"""How many items of a domain users hold, with noise, and weights that are clipped by it.

A user of m items of the domain is in one bucket of the histogram, and adds 1/sqrt(max(D2, m)) to each of its items, a
vector of l2 norm at most 1 whatever the clip D2. Noise on the histogram and on the sums is Gaussian of sensitivity 1.
"""

from __future__ import annotations

import math

import numpy as np

from dpbeam.kernels.csr import Csr
from dpbeam.kernels.grid import l2_units

#: Share of mu^2 that the histogram of items per user costs.
HISTOGRAM_SHARE = 0.04
#: How much a clip's loss weighs beside noise (docs/explanation/topk.md).
BIAS = 2.0
#: Clips that are tried.
CLIPS = (1, 2, 3, 5, 7, 10, 14, 20, 28, 40, 56, 80, 113, 160, 226, 320, 453, 640)
SURE = 3.0  # entries of the noisy histogram below so many standard deviations count as nothing


def bucket_edges(d: int) -> np.ndarray:
    """Lower ends of the buckets of m = 1..d items, ascending int64: the distinct ceil(2^(b/2)) up to d."""
    edges: list[int] = []
    b = 0
    while not edges or edges[-1] < d:
        edge = math.isqrt((1 << b) - 1) + 1 if b else 1  # ceil(sqrt(2^b))
        if edge > d:
            break
        if not edges or edge > edges[-1]:
            edges.append(edge)
        b += 1
    return np.array(edges, np.int64)


def items_per_user(degrees: np.ndarray, d: int) -> np.ndarray:
    """Exact numbers of users per bucket, int64; users without an item are in none."""
    edges = bucket_edges(d)
    held = degrees[degrees > 0]
    return np.bincount(np.searchsorted(edges, held, side="right") - 1, minlength=len(edges))


def clip_losses(noisy: np.ndarray, d: int, sigma: float) -> tuple[dict[int, float], float]:
    """{clip: share of the entries that it loses}, and the number of entries, from public and noisy numbers alone.

    Entries are pairs of a user and an item of the domain. Buckets below three standard deviations count as empty; no
    clip where all are.

    Args:
      noisy: numbers of users per bucket with noise of standard deviation sigma.
    """
    edges = bucket_edges(d)
    last = np.append(edges[1:] - 1, d)[: len(edges)]
    size = np.sqrt(edges.astype(np.float64) * last)
    entries = np.where(noisy >= SURE * sigma, noisy, 0.0) * size
    total = float(entries.sum())
    if not total > 0:
        return {}, 0.0
    kept = {clip: float(entries @ np.minimum(1.0, np.sqrt(clip / size))) / total for clip in CLIPS}
    return {clip: max(0.0, 1.0 - share) for clip, share in kept.items()}, total


def clipped_weights(rows: Csr, clip: int) -> np.ndarray:
    """1/sqrt(max(clip, m)) for each pair of a user of m items, (pairs,) int64 units, l2 norm at most 1 exactly."""
    return rows.per_pair(l2_units(np.maximum(rows.degrees, clip)))
