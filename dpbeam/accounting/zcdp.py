"""Zero-concentrated differential privacy: conversions to (epsilon, delta) and a privacy filter.

Source: Bun and Steinke 2016 (definition, composition); Canonne, Kamath and Steinke, "The Discrete
Gaussian for Differential Privacy", NeurIPS 2020, Proposition 12: rho-zCDP implies (epsilon, delta)-DP
for every alpha > 1 with

    delta = exp((alpha - 1) (alpha rho - epsilon)) / (alpha - 1) * (1 - 1/alpha)^alpha.

Design. All searches run on ln(delta), as a function of u = ln(alpha - 1), of which it is smooth with a
single minimum. EVERY alpha gives a valid bound, so a search that stops early costs accuracy and
never privacy. Safe side: delta is rounded up, rho down. The filter adds exact fractions, so
rounding can never let it overrun (fail closed).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from dpbeam.accounting.gaussian import check_delta, check_epsilon, check_positive

_MARGIN = 1e-12  # relative; covers the rounding error of the formulas below
_GOLDEN = (math.sqrt(5) - 1) / 2


class BudgetExceededError(RuntimeError):
    """A spend would overrun the privacy budget; nothing was spent."""


def _log_delta_at(u: float, rho: float, epsilon: float) -> float:
    """ln(delta) of Proposition 12 at alpha = 1 + exp(u)."""
    excess = math.exp(u)  # alpha - 1
    # alpha ln(1 - 1/alpha) = -alpha ln(1 + 1/(alpha - 1)); log1p stays accurate for large alpha.
    return excess * ((1 + excess) * rho - epsilon) - u - (1 + excess) * math.log1p(1 / excess)


def _minimum(function: Callable[[float], float], low: float, high: float) -> float:
    """Smallest value seen by a golden-section search (an upper bound of the minimum, always)."""
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    value_left, value_right = function(left), function(right)
    best = min(value_left, value_right)
    while high - low > 1e-9:
        if value_left <= value_right:
            high, right, value_right = right, left, value_left
            left = high - _GOLDEN * (high - low)
            value_left = function(left)
        else:
            low, left, value_left = left, right, value_right
            right = low + _GOLDEN * (high - low)
            value_right = function(right)
        best = min(best, value_left, value_right)
    return best


def _log_delta(rho: float, epsilon: float) -> float:
    """Upper bound of ln(delta), at most the closed form -(epsilon - rho)^2 / (4 rho) where that applies."""
    # The minimum lies near alpha = (epsilon + rho) / (2 rho), or near alpha = 1/sqrt(2 rho) where epsilon is
    # small: the bracket spans both generously.
    centre = math.log(epsilon + rho) - math.log(2 * rho)
    low = min(centre, 0.0) - 12
    high = min(700.0, max(centre, -0.5 * math.log(2 * rho)) + 12)
    best = _minimum(lambda u: _log_delta_at(u, rho, epsilon), low, high)
    if epsilon > rho:
        best = min(best, -((epsilon - rho) ** 2) / (4 * rho))
    # The exponent is a difference of terms of this size; its rounding error scales with them.
    return min(0.0, best + _MARGIN * (1 + abs(best)))


def zcdp_delta(rho: float, epsilon: float) -> float:
    """A delta for which rho-zCDP implies (epsilon, delta)-DP, rounded up; at most 1.

    Never above the closed form exp(-(epsilon - rho)^2 / (4 rho)) by more than rounding.

    Raises: ValueError unless rho > 0 and epsilon >= 0 are finite.
    """
    return math.exp(_log_delta(check_positive("rho", rho), check_epsilon(epsilon)))


def zcdp_rho(epsilon: float, delta: float) -> float:
    """Largest rho for which rho-zCDP implies (epsilon, delta)-DP, rounded down.

    Guarantee: `zcdp_delta(zcdp_rho(epsilon, delta), epsilon) <= delta` in floating point.

    Raises: ValueError unless epsilon > 0 is finite and 0 < delta < 1.
    """
    epsilon = check_positive("epsilon", epsilon)
    target = math.log(check_delta(delta))

    def holds(rho: float) -> bool:
        return _log_delta(rho, epsilon) <= target and zcdp_delta(rho, epsilon) <= delta

    root = math.sqrt(epsilon - target) + math.sqrt(-target)
    good = (epsilon / root) ** 2 * (1 - 1e-9)  # solves the closed form, without cancellation
    while not holds(good):
        good *= 1 - 1e-9
    bad = good * 2
    while holds(bad):
        good, bad = bad, bad * 2
    while bad - good > 1e-14 * good:
        middle = (bad + good) / 2
        if holds(middle):
            good = middle
        else:
            bad = middle
    return good


class ZCDPFilter:
    """Privacy filter: zCDP spends chosen adaptively, never more than a total in sum.

    Guarantee: the sequence of mechanisms whose `spend` returned is rho_total-zCDP, although each rho_t
    may depend on what was released before (Feldman and Zrnic 2021, Whitehouse et al. 2023). Sums are
    exact fractions, so the claim holds with no tolerance. A refused spend changes nothing.
    """

    def __init__(self, rho_total: float):
        """Raises ValueError unless rho_total is finite and positive."""
        self._total = Fraction(check_positive("rho_total", rho_total))
        self._spent = Fraction(0)

    @property
    def remaining(self) -> float:
        """What is left, rounded down: spending it is always allowed (0.0 when nothing is left)."""
        left = self._total - self._spent
        value = float(left)
        return value if Fraction(value) <= left else math.nextafter(value, 0.0)

    def spend(self, rho: float) -> None:
        """Records a rho-zCDP mechanism; call it before the mechanism runs.

        Raises: BudgetExceededError if the sum would exceed the total; ValueError unless rho is finite
        and positive.
        """
        spend = Fraction(check_positive("rho", rho))
        if self._spent + spend > self._total:
            raise BudgetExceededError(
                f"spending rho {float(spend):.6g} would overrun the budget: {self.remaining:.6g} is left"
            )
        self._spent += spend
