"""Sequential selectors from the literature: for comparison only, on data that may be looked at.

They visit users one after the other, and each user sees the weights that the earlier ones left behind. Parallel
selectors compete with that; no cluster can run it. Nothing here can become a release: an oracle has no selector, plan
or ledger, its random numbers come from an ordinary generator and not from a run's key, and it returns marks, not items.

Design. What is random is drawn and sorted first, with numpy: the order of the users, and each user's items in an order
of their own. What is left is one pass over plain lists, where a step costs less than a call of numpy on a user's few
items would: 20 million entries of users with one or two items take 34 s of CPU time at most
(lab/docs/reference/results.md).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator

import numpy as np

from dpbeam.accounting.gaussian import check_delta, check_positive, gaussian_sigma
from dpbeam.accounting.threshold import novel_threshold
from dpbeam.kernels.csr import Csr
from dpbeam.kernels.pairs import offsets_of

POLICY_EXCESS = 4.0
GREEDY_EXCESS = 4.0
_USERS_AT_ONCE = 1 << 14  # so that the lists of one batch stay in the cache, whatever the data


def policy_gaussian(
    sets: Csr,
    num_items: int,
    epsilon: float,
    delta: float,
    *,
    rng: np.random.Generator,
    max_items_per_user: int = 100,
    excess: float = POLICY_EXCESS,
) -> np.ndarray:
    """PolicyGaussian (Gopi et al. 2020, Algorithm 7). Sequential; for comparison only.

    Users in random order; each, cut to `max_items_per_user` random items, moves the weights of its items towards
    tau = rho + excess sigma along the straight line, by one unit of l2 norm at most. Noise and threshold are
    those of Basic.

    Args:
      sets: users as rows.
      excess: beta, how far above the threshold weights may grow, in standard deviations.

    Returns:
      (items,) bool, released.

    Raises:
      ValueError: a budget, cap or excess out of range.
    """
    _check_excess(excess)
    cap = _check_cap(max_items_per_user)
    sigma = gaussian_sigma(epsilon, delta / 2)
    rho = novel_threshold(sigma, delta / 2, cap, lambda t: 1 / np.sqrt(t))
    weight = policy_weights(visits(sets, rng, cap), num_items, rho + excess * sigma)
    return (weight > 0) & (weight + sigma * rng.standard_normal(num_items) >= rho)


def greedy_update(
    sets: Csr,
    num_items: int,
    epsilon: float,
    delta: float,
    *,
    rng: np.random.Generator,
    max_items_per_user: int | None = None,
    excess: float = GREEDY_EXCESS,
    single: bool = False,
) -> np.ndarray:
    """GreedyUpdate (Carvalho et al. 2022). Sequential; for comparison only.

    Users in random order; each spends one unit of l1 weight on its items below tau = rho + excess / epsilon, filling
    one up to tau before the next. Laplace noise of scale 1/epsilon, rho = 1 - ln(2 delta)/epsilon.

    The original takes a user's most frequent items first; data that are sets cannot say which, and the order is random:
    about half of the published figures.

    Args:
      sets: users as rows.
      max_items_per_user: keep so many random items of each user; the algorithm itself needs no cap.
      excess: beta, how far above the threshold weights may grow, in scales of the noise.
      single: the variant of Chen et al. 2025 (Section 5.2): a user gives its whole unit to one item below tau.

    Returns:
      (items,) bool, released.

    Raises:
      ValueError: a budget, cap or excess out of range.
    """
    epsilon, delta = check_positive("epsilon", epsilon), check_delta(delta)
    _check_excess(excess)
    cap = None if max_items_per_user is None else _check_cap(max_items_per_user)
    if not isinstance(single, bool):
        raise ValueError(f"single must be true or false, got {single!r}")
    rho = 1.0 - math.log(2.0 * delta) / epsilon
    spend = greedy_single if single else greedy_weights
    weight = spend(visits(sets, rng, cap), num_items, rho + excess / epsilon)
    return (weight > 0) & (weight + rng.laplace(0.0, 1.0 / epsilon, num_items) >= rho)


def visits(sets: Csr, rng: np.random.Generator, max_items: int | None = None) -> Iterator[list[list[int]]]:
    """The users in random order, each with a uniform sample of its items in random order.

    Args:
      max_items: size of the sample; None keeps all.

    Returns:
      Batches of users; a user is the list of its items, never empty.
    """
    users = len(sets.offsets) - 1
    links, place = sets.links, sets.per_pair(rng.permutation(users).astype(np.uint64))
    order = _shuffled(place, rng)
    place = place[order]
    if max_items is not None:
        starts = offsets_of(place, users)
        kept = np.arange(len(place)) - np.repeat(starts[:-1], np.diff(starts)) < max_items
        order, place = order[kept], place[kept]
    links = links[order]
    offsets = offsets_of(place, users)
    for start in range(0, users, _USERS_AT_ONCE):
        ends = offsets[start : start + _USERS_AT_ONCE + 1].tolist()
        held = links[ends[0] : ends[-1]].tolist()
        base = ends[0]
        yield [held[a - base : b - base] for a, b in itertools.pairwise(ends) if b > a]


def _shuffled(place: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Positions of the pairs, user after user as `place` numbers them, and random within a user."""
    coins = rng.integers(0, 1 << 32, len(place), dtype=np.uint64)
    return np.argsort((place << np.uint64(32)) | coins)


def policy_weights(batches: Iterable[list[list[int]]], num_items: int, tau: float) -> np.ndarray:
    """(items,) weights after every user has moved its items' weights towards tau by at most one unit of l2 norm."""
    weight = [0.0] * num_items
    for users in batches:
        for held in users:
            gaps = [tau - weight[item] for item in held]
            norm = math.hypot(*gaps)
            if norm <= 1.0:
                for item in held:
                    weight[item] = tau
            else:
                step = 1.0 / norm
                for item, gap in zip(held, gaps):
                    weight[item] += gap * step
    return np.array(weight)


def greedy_weights(batches: Iterable[list[list[int]]], num_items: int, tau: float) -> np.ndarray:
    """(items,) weights after every user has filled its items up to tau one by one, with one unit in all."""
    weight = [0.0] * num_items
    for users in batches:
        for held in users:
            left = 1.0
            for item in held:
                gap = tau - weight[item]
                if gap >= left:
                    weight[item] += left
                    break
                if gap > 0.0:
                    weight[item] = tau
                    left -= gap
    return np.array(weight)


def greedy_single(batches: Iterable[list[list[int]]], num_items: int, tau: float) -> np.ndarray:
    """(items,) weights after every user has added one to its first item that is below tau."""
    weight = [0.0] * num_items
    for users in batches:
        for held in users:
            for item in held:
                if weight[item] < tau:
                    weight[item] += 1.0
                    break
    return np.array(weight)


def _check_excess(excess: float) -> None:
    if not isinstance(excess, int | float) or not (math.isfinite(excess) and excess >= 0):
        raise ValueError(f"excess must be a finite number that is not negative, got {excess!r}")


def _check_cap(max_items: int) -> int:
    if isinstance(max_items, bool) or not isinstance(max_items, int) or max_items < 1:
        raise ValueError(f"max_items_per_user must be a whole number of at least 1, got {max_items!r}")
    return max_items
