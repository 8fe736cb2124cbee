"""Peeling with Gumbel noise (exponential mechanisms of bounded range) and its zCDP cost.

Sources: Durfee and Rogers 2019 (one noisy vector, k largest = k rounds of peeling); Dong, Durfee and
Rogers 2020 (bounded range eps_0 is eps_0^2/8-zCDP); Bun and Steinke 2016 (a Gaussian mechanism is
mu^2/2-zCDP). Under add/remove one user counts move in one direction, so Gumbel noise of scale
1/eps_0 has bounded range eps_0; under replace-one neighbours it would be 2 eps_0.

Safe side: epsilon0 is rounded down, a zCDP cost up.
"""

from __future__ import annotations

import math

from dpbeam.accounting.gaussian import check_positive

_MARGIN = 1e-14


def check_rounds(rounds: int, name: str = "rounds") -> int:
    """Returns `rounds` as an int; ValueError unless it is an integer of at least 1."""
    if isinstance(rounds, bool) or int(rounds) != rounds or rounds < 1:
        raise ValueError(f"{name} must be an integer of at least 1, got {rounds}")
    return int(rounds)


def peeling_epsilon0(epsilon: float, delta: float, rounds: int) -> float:
    """Largest bounded-range eps_0 for which `rounds` adaptive choices are (epsilon, delta)-DP, rounded down.

        eps_0 = max(epsilon/k, sqrt((8 ln(1/delta) + 8 epsilon)/k) - sqrt(8 ln(1/delta)/k))

    The first term alone is pure epsilon-DP and all there is at delta = 0. The difference is computed as
    8 epsilon/k over the sum of the two roots, which does not cancel.

    Raises: ValueError unless epsilon > 0 is finite, 0 <= delta < 1, rounds is an integer >= 1.
    """
    epsilon = check_positive("epsilon", epsilon)
    rounds = check_rounds(rounds)
    delta = float(delta)
    if not 0 <= delta < 1:
        raise ValueError(f"delta must lie in [0, 1), got {delta}")
    best = epsilon / rounds
    if delta > 0:
        log_inverse = -math.log(delta)
        roots = math.sqrt(log_inverse + epsilon) + math.sqrt(log_inverse)
        best = max(best, math.sqrt(8 / rounds) * epsilon / roots)
    return best * (1 - _MARGIN)


def bounded_range_zcdp(epsilon0: float) -> float:
    """zCDP cost eps_0^2/8 of one mechanism of bounded range eps_0, rounded up."""
    return check_positive("epsilon0", epsilon0) ** 2 / 8 * (1 + _MARGIN)


def gaussian_zcdp(sigma: float) -> float:
    """zCDP cost (1/sigma)^2/2 of Gaussian noise on a query of l2-sensitivity 1, rounded up."""
    mu = 1.0 / check_positive("sigma", sigma)
    return mu * mu / 2 * (1 + _MARGIN)
