"""The classical baseline of partition selection, which libraries release by: for comparison only, as `oracles`."""

from __future__ import annotations

import math

import numpy as np

from dpbeam.accounting.gaussian import check_delta, check_positive
from dpbeam.kernels.csr import Csr
from dpbeam_lab.evaluation.allocation import sampled


def truncated_geometric(
    sets: Csr,
    num_items: int,
    epsilon: float,
    delta: float,
    *,
    rng: np.random.Generator,
    max_items_per_user: int = 1,
) -> np.ndarray:
    """The optimal release of each item by its number of users (Desfontaines, Voss, Gipson and Mandayam, PETS 2022).

    Each of a user's `max_items_per_user` random items gets an equal share of epsilon and delta (basic composition).

    Args:
      sets: users as rows.

    Returns:
      (items,) bool, released.

    Raises:
      ValueError: a budget or cap out of range.
    """
    if max_items_per_user < 1:
        raise ValueError(f"max_items_per_user must be at least 1, got {max_items_per_user}")
    probability = release_probabilities(epsilon / max_items_per_user, delta / max_items_per_user)
    users = np.bincount(sampled(sets, max_items_per_user, rng).links, minlength=num_items)
    return rng.random(num_items) < probability[np.minimum(users, len(probability) - 1)]


def release_probabilities(epsilon: float, delta: float) -> np.ndarray:
    """p_0, p_1, ... up to the first 1: with n users an item is released with probability p_n, the largest that
    (epsilon, delta)-DP allows.

    Raises:
      ValueError: a budget out of range.
    """
    rise = math.exp(check_positive("epsilon", epsilon))
    chances = [0.0]
    check_delta(delta)
    while chances[-1] < 1.0:
        last = chances[-1]
        chances.append(min(1.0, rise * last + delta, 1.0 - (1.0 - last - delta) / rise))
    return np.array(chances)
