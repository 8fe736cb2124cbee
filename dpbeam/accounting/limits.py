"""The physical limit: what no (epsilon, delta)-DP algorithm can do.

An algorithm that only outputs items somebody holds releases an item held by b users with
probability at most p_b, where p_0 = 0 and

    p_b = min(1, exp(eps) p_{b-1} + delta, 1 - exp(-eps) (1 - p_{b-1} - delta)).

Source: the recursion follows from the definition of differential privacy applied to the event and to
its complement (Desfontaines, Voss, Gipson and Mandayam 2022, "Differentially private partition
selection", where the algorithm that meets it for one item per user is given).

Design. With p below the crossing p^ = (1 - delta)/(exp(eps) + 1) the first branch is the smaller and
p_b = delta (exp(b eps) - 1)/(exp(eps) - 1); above it the second branch, affine too, takes over with
q = 1 - p: q_b = exp(-eps) (q_{b-1} - delta). Both have closed forms, so the cost does not depend on b.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dpbeam.accounting.gaussian import check_delta, check_positive
from dpbeam.accounting.search import users_for


@dataclass(frozen=True)
class _Recursion:
    """Where the branches of the recursion meet: p_switch is the last value of the growing branch."""

    epsilon: float
    delta: float
    switch: int
    p_switch: float


def _growing(users: ArrayLike, epsilon: float, delta: float) -> np.ndarray:
    """delta (exp(b eps) - 1)/(exp(eps) - 1), without overflow while it is at most about 1."""
    # exp(b eps - eps) (1 - exp(-b eps)) / (1 - exp(-eps))
    users = np.asarray(users, dtype=np.float64)
    log_ratio = (users - 1) * epsilon + math.log(delta)
    return np.exp(np.minimum(log_ratio, 700.0)) * np.expm1(-users * epsilon) / math.expm1(-epsilon)


def _recursion(epsilon: float, delta: float) -> _Recursion:
    """Finds the first b whose p_b is at or above the crossing of the two branches."""
    epsilon = check_positive("epsilon", epsilon)
    delta = check_delta(delta)
    crossing = (1 - delta) * math.exp(-epsilon) / (1 + math.exp(-epsilon))
    # Smallest b with growing(b) >= crossing; the guess solves the closed form for b.
    growth = crossing * -math.expm1(-epsilon) / delta  # (exp(b eps) - 1) exp(-eps)
    if epsilon > 600:
        guess = 1 if delta >= crossing else 2
    else:
        guess = max(1, math.ceil(math.log1p(growth * math.exp(epsilon)) / epsilon))
    while guess > 1 and _growing(guess - 1, epsilon, delta) >= crossing:
        guess -= 1
    while _growing(guess, epsilon, delta) < crossing:
        guess += 1
    return _Recursion(epsilon, delta, guess, min(1.0, float(_growing(guess, epsilon, delta))))


def _saturating(users: ArrayLike, r: _Recursion) -> np.ndarray:
    """p_b for b >= switch: q_b = exp(-n eps) (q + c) - c, n = b - switch, c = delta/(exp(eps) - 1)."""
    steps = np.asarray(users, dtype=np.float64) - r.switch
    fixed = r.delta * math.exp(-r.epsilon) / -math.expm1(-r.epsilon)
    # q falls below 0 when the recursion is clipped at p = 1.
    rest = np.exp(-steps * r.epsilon) * (1 - r.p_switch) + fixed * np.expm1(-steps * r.epsilon)
    return 1 - np.maximum(rest, 0.0)


def release_probability_limit(n_users: ArrayLike, epsilon: float, delta: float) -> float | np.ndarray:
    """p_b for every b in n_users: the largest probability of releasing an item held by b users.

    Args:
      n_users: whole number or array of whole numbers >= 0, of any size.
      epsilon: finite, positive.
      delta: in (0, 1).

    Returns: float64 of the shape of n_users, in [0, 1].

    Raises: ValueError on an argument out of range.
    """
    recursion = _recursion(epsilon, delta)
    users = np.asarray(n_users, dtype=np.float64)
    if not np.all((users >= 0) & (users == np.floor(users))):
        raise ValueError("n_users must hold whole numbers that are not negative")
    early = np.minimum(users, recursion.switch)
    late = np.maximum(users, recursion.switch)
    limit = np.where(
        users <= recursion.switch,
        np.minimum(_growing(early, recursion.epsilon, recursion.delta), 1.0),
        _saturating(late, recursion),
    )
    return float(limit) if limit.ndim == 0 else limit


def half_limit_users(epsilon: float, delta: float) -> float:
    """b* = ln(1 + (exp(eps) - 1)/(2 delta))/eps: with at most b* users an item is released with p <= 1/2.

    Raises: ValueError on an argument out of range.
    """
    epsilon = check_positive("epsilon", epsilon)
    delta = check_delta(delta)
    if epsilon > 30:  # exp(eps) - 1 is exp(eps) to the last bit
        log_ratio = epsilon - math.log(2 * delta)
        return (log_ratio + math.log1p(math.exp(-log_ratio))) / epsilon
    return math.log1p(math.expm1(epsilon) / (2 * delta)) / epsilon


def users_needed_limit(probability: float, epsilon: float, delta: float) -> int:
    """Smallest b with p_b >= probability: no algorithm releases an item of fewer users that often.

    Raises: ValueError unless 0 < probability <= 1 and epsilon, delta are in range.
    """
    probability = float(probability)
    if not 0 < probability <= 1:
        raise ValueError(f"probability must lie in (0, 1], got {probability}")
    needed = users_for(
        probability, lambda users: float(release_probability_limit(users, epsilon, delta)), math.inf
    )
    assert needed is not None  # p_b comes to 1
    return needed
