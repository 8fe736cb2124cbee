"""Probability that an item passes its threshold, and how many users that takes.

Plain Gaussian tails, for planning and evaluation; no privacy claim rests on this module.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from dpbeam.accounting.gaussian import check_delta, check_positive


def keep_probability(weight: ArrayLike, sigma: float, threshold: float) -> float | np.ndarray:
    """Phi((weight - threshold) / sigma): the probability that weight + N(0, sigma^2) >= threshold.

    Args: weight is a number or an array; the result has its shape.

    Raises: ValueError unless sigma is finite and positive, threshold finite.
    """
    sigma = check_positive("sigma", sigma)
    if not math.isfinite(threshold):
        raise ValueError(f"threshold must be finite, got {threshold}")
    probability = special.ndtr((np.asarray(weight, dtype=np.float64) - threshold) / sigma)
    return float(probability) if np.ndim(probability) == 0 else probability


def users_needed(probability: float, weight_per_user: float, sigma: float, threshold: float) -> int:
    """Smallest number of users, each giving weight_per_user, that keeps an item with this probability.

    Returns: an integer n >= 0 with keep_probability(n weight_per_user) >= probability and, for n > 0,
    keep_probability((n - 1) weight_per_user) < probability.

    Raises: ValueError unless 0 < probability < 1 and weight_per_user, sigma are finite and positive.
    """
    probability = check_delta(probability, "probability")
    weight_per_user = check_positive("weight_per_user", weight_per_user)
    sigma = check_positive("sigma", sigma)

    def enough(users: int) -> bool:
        return bool(keep_probability(users * weight_per_user, sigma, threshold) >= probability)

    users = max(0, math.ceil((threshold + sigma * float(special.ndtri(probability))) / weight_per_user))
    # The guess is right up to rounding; far out, where whole numbers exceed 2^53, it stands as it is.
    if users < 2**50:
        while users > 0 and enough(users - 1):
            users -= 1
        while not enough(users):
            users += 1
    return users
