"""Sequential selectors from the literature, in memory and for comparison only.

Both look at users one after the other and let each see the weights that the earlier ones left behind. That is what
parallel selectors compete with, and why these cannot be run on a cluster: nothing here is a job of the
product, nothing is written to a ledger, and the random numbers come from an ordinary generator.
"""

from __future__ import annotations

import math

import numpy as np

from dpbeam.accounting.gaussian import check_delta, check_positive, gaussian_sigma
from dpbeam.accounting.threshold import novel_threshold
from dpbeam.kernels.csr import Csr

POLICY_EXCESS = 4.0
GREEDY_EXCESS = 4.0


def policy_gaussian(
    sets: Csr,
    num_items: int,
    epsilon: float,
    delta: float,
    *,
    rng: np.random.Generator,
    max_items: int = 100,
    excess: float = POLICY_EXCESS,
) -> np.ndarray:
    """PolicyGaussian (Gopi et al. 2020, Algorithm 7). Sequential; for comparison only.

    Users in random order; each, cut to `max_items` random items, moves the weights of its items towards
    tau = rho + excess sigma along the straight line, by one unit of l2 norm at most. Noise and threshold are
    those of Basic.

    Args:
      sets: users as rows.
      excess: beta, how far above the threshold weights may grow, in standard deviations.

    Returns:
      (items,) bool, released.
    """
    sigma = gaussian_sigma(epsilon, delta / 2)
    rho = novel_threshold(sigma, delta / 2, max_items, lambda t: 1 / np.sqrt(t))
    weight = _policy_weights(sets, num_items, rho + excess * sigma, max_items, rng)
    present = weight > 0
    return present & (weight + sigma * rng.standard_normal(num_items) >= rho)


def _policy_weights(
    sets: Csr, num_items: int, tau: float, max_items: int, rng: np.random.Generator
) -> np.ndarray:
    weight = np.zeros(num_items)
    offsets, links = sets.offsets, sets.links
    for user in rng.permutation(len(offsets) - 1):
        held = links[offsets[user] : offsets[user + 1]]
        if len(held) > max_items:
            held = held[rng.choice(len(held), max_items, replace=False, shuffle=False)]
        gap = tau - weight[held]
        np.maximum(gap, 0.0, out=gap)
        norm = math.sqrt(float(gap @ gap))
        if norm > 1.0:
            gap /= norm
        weight[held] += gap
    return weight


def greedy_update(
    sets: Csr,
    num_items: int,
    epsilon: float,
    delta: float,
    *,
    rng: np.random.Generator,
    excess: float = GREEDY_EXCESS,
) -> np.ndarray:
    """GreedyUpdate (Carvalho et al. 2022) on sets. Sequential; for comparison only.

    Users in random order, without a cap on their items; each spends one unit of l1 weight on its items below
    tau = rho + excess / epsilon, filling one up to tau before the next. The original takes a user's most
    frequent items first; sets have no counts within a user, so the order is random, which costs about half
    of the published figures. Laplace noise of scale 1/epsilon, rho = 1 - ln(2 delta)/epsilon.

    Returns:
      (items,) bool, released.
    """
    epsilon, delta = check_positive("epsilon", epsilon), check_delta(delta)
    rho = 1.0 - math.log(2.0 * delta) / epsilon
    tau = rho + excess / epsilon
    weight = np.zeros(num_items)
    offsets, links = sets.offsets, sets.links
    for user in rng.permutation(len(offsets) - 1):
        held = links[offsets[user] : offsets[user + 1]]
        open_items = held[weight[held] < tau]
        if len(open_items):
            _fill_in_order(weight, open_items, tau, rng)
    noisy = weight + rng.laplace(0.0, 1.0 / epsilon, num_items)
    return (weight > 0) & (noisy >= rho)


def _fill_in_order(weight: np.ndarray, items: np.ndarray, tau: float, rng: np.random.Generator) -> None:
    """One unit of weight for `items` in random order, each up to tau; in place."""
    left = 1.0
    for place in rng.permutation(len(items)):
        item = items[place]
        step = min(left, tau - weight[item])
        weight[item] += step
        left -= step
        if left <= 0.0:
            return
