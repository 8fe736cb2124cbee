"""Choices that a user takes part in only until one of its items is chosen: the exact cost, for any number of rounds.

User peeling (Dick, Joseph and Raman 2026, Algorithm 4) chooses one item a round by an exponential mechanism of bounded
range epsilon0 on the numbers of users left, and removes the users that hold it. Composed as k choices it costs more
with every round; in truth a user's data matter only up to its first hit, an observation of Gupta, Ligett, McSherry,
Roth and Talwar ("Differentially Private Combinatorial Optimization", SODA 2010), whose bound this module makes
exact.

**Theorem.** Let Q be the run with user v and P the run without, a = exp(epsilon0) - 1. For any number of rounds,
any data and any adaptive choice of the domain,

    D_e(P || Q) <= V(e) = (1 - exp(-epsilon0)) exp(-(e + epsilon0)/a)     where e >= -epsilon0,
                        = 1 - exp(e)                                      below,
    D_e(Q || P) <= U(e) = 1 - exp(e) + exp(e) V(-e),                      which is 0 where e >= epsilon0,

with D_e the hockey-stick divergence, sup over events of P(E) - exp(e) Q(E). Both are the least such bounds.

*Proof.* While v is not hit, the scores with v are those without, plus 1 on the items of v. Let p be the probability
under P that the round's item is one of them: under Q it is p (1 + a)/(1 + p a), and which of them it is, or which
of the others, has the same law given that. After the hit both runs are the same. So all that matters is the round
of the hit, and given the public past p is a number; a past that is known only splits the divergence into an average.
With n rounds left

    V_n(e) = max_p  p (1 - exp(e) (1 + a)/(1 + p a))+  +  (1 - p) V_(n-1)(e - ln(1 + p a)),   V_0(e) = (1 - exp(e))+.

V_0 <= V, and V does not grow in a round. With y = e + epsilon0 and u = ln(1 + p a) <= epsilon0:
y >= u: the first term is 0 and the second (1 - p) (1 + p a)^(1/a) V(e) <= (1 - p) exp(p) V(e) <= V(e).
0 <= y < u: the sum is 1 - exp(y - epsilon0), and g(y) = V - that is convex with g(0) = g'(0) = 0.
y < 0: the sum is 1 - exp(e) = V(e).
Rounds of small p that sum up to y/a reach V in the limit. D_e(Q||P) = 1 - exp(e) + exp(e) D_(-e)(P||Q) gives U. QED
(p = 0 where the domain holds no item of v, or is used up: V_n <= V holds for every n, and for e of either sign.)

**Sampling users.** V shrinks slowly as epsilon0 grows, U not at all: only the removal of a user is expensive. So every
user may take part with probability `rate` alone, by a coin of its own that nobody sees (Ghazi, Kamath, Kumar,
Manurangsi and Sealfon 2024 turn one-sided guarantees into two-sided ones so). The run with v then has the law (1 -
rate) P + rate Q, and from the definition of D, with A = 1 - (1 - rate) exp(e) and B = exp(e) - (1 - rate),

    D_e(P || Q') = A D_x(P || Q), x = e + ln(rate / A),   and 0 where A <= 0,
    D_e(Q' || P) = rate D_x(Q || P), x = ln(B / rate),    and 1 - exp(e) where B <= 0.

At rate <= 1 - exp(-e) the first is 0: pure differential privacy at exp(epsilon0) = 1 + (exp(e) - 1)/rate.

**Beside other stages.** After Gaussian noise with privacy loss L ~ N(mu^2/2, mu^2), and epsilon-DP stages of `pure`
in sum, the divergence is at most E[D_(epsilon - pure - L)] with these bounds: given what was released, the rest is
the theorem at what L leaves. D falls in e, so the expectation is summed over cells of L with D at the cell's upper
end: every step is an upper bound.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr

from dpbeam.accounting.gaussian import check_epsilon, check_positive

_MARGIN = 1e-9  # relative, for the rounding errors of the sum
_ROUNDING = 2.0**-50  # of differences of numbers of size 1
_FAR = 600.0  # exp of it is finite, and a loss beyond it is as good as infinite
_SMALLEST_RANGE = 1e-9  # a smaller range is taken for this one, which costs more
_LARGEST_RANGE = 50.0
#: Edges of the cells of L in standard deviations; beyond the last, D counts as 1.
_EDGES = np.concatenate([np.linspace(-8, 8, 4_001), np.linspace(8, 38, 301)[1:]])
_CELLS = np.concatenate(
    [ndtr(_EDGES[:1]), np.where(_EDGES[:-1] < 0, np.diff(ndtr(_EDGES)), -np.diff(ndtr(-_EDGES)))]
)
_BEYOND = float(ndtr(-_EDGES[-1]))


def check_rate(value: float) -> float:
    """Returns `value` as a float; ValueError unless 0 < value <= 1."""
    value = float(value)
    if not 0 < value <= 1:
        raise ValueError(f"rate must be above 0 and at most 1, got {value}")
    return value


def first_hit_delta(
    epsilon: float, epsilon0: float, sigma: float = math.inf, pure: float = 0.0, rate: float = 1.0
) -> float:
    """A delta for which choices up to the first hit, after other stages, are (epsilon, delta)-DP, rounded up.

    Args:
      epsilon: finite, at least 0.
      epsilon0: bounded range of one choice.
      sigma: standard deviation per unit of l2-sensitivity of all Gaussian noise of the other stages; inf: none.
      pure: sum of the epsilons of other stages that are epsilon-DP.
      rate: probability with which a user takes part in the choices.

    Returns:
      delta in [0, 1], for any number of choices.

    Raises: ValueError unless epsilon0 and sigma are positive, epsilon0 is finite, epsilon and pure are finite and not
    negative, and rate lies in (0, 1].
    """
    epsilon0 = max(check_positive("epsilon0", epsilon0), _SMALLEST_RANGE)
    left, rate = check_epsilon(epsilon) - check_epsilon(pure), check_rate(rate)
    if not sigma > 0:
        raise ValueError(f"sigma must be positive, got {sigma}")
    mu = 1.0 / sigma
    if epsilon0 > _LARGEST_RANGE or math.isinf(mu):
        return 1.0
    if mu == 0:
        e = np.array([left])
        bound = max(_removed(e, epsilon0, rate)[0], _added(e, epsilon0, rate)[0])
    else:
        e = left - mu * (mu / 2 + _EDGES)
        cells = (_removed(e, epsilon0, rate), _added(e, epsilon0, rate))
        bound = max(float(_CELLS @ cell) for cell in cells) + _BEYOND
    return min(1.0, float(bound) * (1 + _MARGIN))


def _removed(e: np.ndarray, epsilon0: float, rate: float) -> np.ndarray:
    """Bounds on D_e(P || Q'), (n,)."""
    lost = (1 - rate) / rate * np.expm1(np.minimum(e, _FAR))  # A = rate (1 - lost)
    lost -= _ROUNDING * np.abs(lost)
    some = lost < 1
    bounds = np.zeros(len(e))
    bounds[some] = rate * (1 - lost[some]) * _v(e[some] - np.log1p(-lost[some]), epsilon0)
    return bounds


def _added(e: np.ndarray, epsilon0: float, rate: float) -> np.ndarray:
    """Bounds on D_e(Q' || P), (n,)."""
    bounds = -np.expm1(np.minimum(e, 0.0))
    more = np.expm1(np.minimum(e, _FAR)) / rate  # B = rate (1 + more)
    some = more > -1
    bounds[some] = rate * _u(np.log1p(more[some]), epsilon0)
    return bounds


def _v(e: np.ndarray, epsilon0: float) -> np.ndarray:
    """V, (n,)."""
    a, y = math.expm1(epsilon0), e + epsilon0
    tail = -math.expm1(-epsilon0) * np.exp(-np.maximum(y, 0.0) / a)
    return np.where(y >= 0, tail, -np.expm1(np.minimum(e, 0.0)))


def _u(e: np.ndarray, epsilon0: float) -> np.ndarray:
    """U, (n,).

    With y = epsilon0 - e it is 1 - exp(-y) - a exp(-y) (1 - exp(-y/a)), whose terms are below 1; those of its
    definition grow as exp(e), and what is left of their difference is rounding.
    """
    a, y = math.expm1(epsilon0), np.maximum(epsilon0 - e, 0.0)
    y += _ROUNDING * np.where(y > 0, epsilon0 + np.abs(e), 0.0)
    u = -np.expm1(-y) + a * np.exp(-y) * np.expm1(-y / a)
    return np.clip(u + _ROUNDING * np.minimum(y, 1.0), 0.0, 1.0)
