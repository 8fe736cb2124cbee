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
of the hit, and given the public past p is a number; a past that is told only splits the divergence into an average.
With n rounds left

    V_n(e) = max_p  p (1 - exp(e) (1 + a)/(1 + p a))+  +  (1 - p) V_(n-1)(e - ln(1 + p a)),   V_0(e) = (1 - exp(e))+.

V_0 <= V, and V does not grow in a round. With y = e + epsilon0 and u = ln(1 + p a) <= epsilon0:
y >= u: the first term is 0 and the second (1 - p) (1 + p a)^(1/a) V(e) <= (1 - p) exp(p) V(e) <= V(e).
0 <= y < u: the sum is 1 - exp(y - epsilon0), and g(y) = V - that is convex with g(0) = g'(0) = 0.
y < 0: the sum is 1 - exp(e) = V(e).
Rounds of small p that sum up to y/a reach V in the limit. D_e(Q||P) = 1 - exp(e) + exp(e) D_(-e)(P||Q) gives U. QED

Beside Gaussian noise that was released before, with privacy loss L ~ N(mu^2/2, mu^2), and epsilon-DP stages of
`pure` in sum, the divergence is at most E[V(epsilon - pure - L)], and E[U(...)] the other way: given what was
released, the rest is the theorem at what L leaves. Safe side: delta is rounded up.
"""

from __future__ import annotations

import math

from scipy.special import log_ndtr, ndtr

from dpbeam.accounting.gaussian import check_epsilon, check_positive

_MARGIN = 1e-13  # of each term, for its rounding error
_LARGEST = 700.0  # exp of more overflows
_SMALLEST_RANGE = 1e-9  # a smaller range is taken for this one, which costs more


def first_hit_delta(epsilon: float, epsilon0: float, sigma: float = math.inf, pure: float = 0.0) -> float:
    """A delta for which choices up to the first hit, after other stages, are (epsilon, delta)-DP, rounded up.

    Args:
      epsilon: finite, at least 0.
      epsilon0: bounded range of one choice.
      sigma: standard deviation per unit of l2-sensitivity of all Gaussian noise of the other stages; inf: none.
      pure: sum of the epsilons of other stages that are epsilon-DP.

    Returns:
      delta in [0, 1], for any number of choices.

    Raises: ValueError unless epsilon0 and sigma are positive, epsilon0 finite and epsilon and pure finite and not
      negative.
    """
    epsilon0 = max(check_positive("epsilon0", epsilon0), _SMALLEST_RANGE)
    left = check_epsilon(epsilon) - check_epsilon(pure)
    if not sigma > 0:
        raise ValueError(f"sigma must be positive, got {sigma}")
    if epsilon0 > _LARGEST:
        return 1.0
    mu = 1.0 / sigma
    if mu == 0:
        return min(1.0, max(_alone(left, epsilon0), _alone_added(left, epsilon0)))
    return min(1.0, max(_removed(left, epsilon0, mu), _added(left, epsilon0, mu)))


def _alone(e: float, epsilon0: float) -> float:
    """V(e)."""
    if e < -epsilon0:
        return -math.expm1(e)
    return -math.expm1(-epsilon0) * math.exp(-(e + epsilon0) / math.expm1(epsilon0)) * (1 + 1e-12)


def _alone_added(e: float, epsilon0: float) -> float:
    """U(e)."""
    if e >= epsilon0:
        return 0.0
    return -math.expm1(e) + math.exp(e) * _alone(-e, epsilon0) + _MARGIN


def _removed(e: float, epsilon0: float, mu: float) -> float:
    """E[V(e - L)], L ~ N(mu^2/2, mu^2): V is an exponential for L up to e + epsilon0, and 1 - exp(e - L) beyond."""
    a, bound = math.expm1(epsilon0), e + epsilon0
    factor = math.log(-math.expm1(-epsilon0)) - bound / a
    below = _sum([_moment(factor, 1 / a, mu, bound, above=False)])
    return below + _sum([_tail(bound, mu)], [_moment(e, -1.0, mu, bound, above=True)])


def _added(e: float, epsilon0: float, mu: float) -> float:
    """E[U(e - L)]: above L = e - epsilon0, U(x) = 1 - exp(x) + c exp(-epsilon0/a) exp(x (1 + 1/a)); 0 below."""
    a, bound = math.expm1(epsilon0), e - epsilon0
    power = 1 + 1 / a
    factor = math.log(-math.expm1(-epsilon0)) - epsilon0 / a + e * power
    plus = [_tail(bound, mu), _moment(factor, -power, mu, bound, above=True)]
    return _sum(plus, [_moment(e, -1.0, mu, bound, above=True)])


def _tail(bound: float, mu: float) -> float:
    """P(L > bound)."""
    return float(ndtr((mu * mu / 2 - bound) / mu))


def _moment(factor: float, power: float, mu: float, bound: float, *, above: bool) -> float:
    """E[exp(factor + power L); L above or below bound], rounded up by what cancels in the exponent."""
    mean = mu * mu / 2
    place = (bound - mean - power * mu * mu) / mu
    parts = (factor, power * mean, (power * mu) ** 2 / 2, float(log_ndtr(-place if above else place)))
    if parts[-1] == -math.inf:
        return 0.0
    exponent = math.fsum(parts)
    slack = 4e-16 * max(map(abs, parts)) if power != -1.0 else 0.0
    return math.exp(min(exponent + slack, _LARGEST))


def _sum(plus: list[float], minus: list[float] | None = None) -> float:
    """The difference of two sums of positive terms, plus a bound on its rounding error."""
    minus = minus or []
    return math.fsum([*plus, *(-value for value in minus), _MARGIN * math.fsum([*plus, *minus])])
