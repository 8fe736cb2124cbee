"""Analytic Gaussian mechanism and exact composition of Gaussian noise.

Sources: Balle and Wang, "Improving the Gaussian Mechanism for Differential Privacy", ICML 2018,
Theorem 8 (the exact delta of Gaussian noise); Dong, Roth and Su, "Gaussian Differential Privacy",
2022, Corollary 3.3 (mu-GDP mechanisms compose exactly, adaptively too, to sqrt(sum mu_r^2)-GDP).

Design. With mu = 1 / sigma, x = (eps/mu - mu/2)/sqrt(2) and y = x + mu/sqrt(2), the identity
y^2 = x^2 + eps turns the textbook difference Phi(.) - exp(eps) Phi(.) into

    delta = exp(-x^2)/2 * (erfcx(x) - erfcx(y)),

in which exp(eps) no longer appears: nothing overflows, and delta keeps about 13 digits down to the
smallest doubles. Searches bisect to neighbouring doubles and add a relative margin to the computed
delta that covers its rounding error. Safe side: sigma is rounded up, a composed sigma is
rounded down.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np
from scipy import special

_SQRT2 = math.sqrt(2.0)
_RELATIVE_MARGIN = 1e-12  # the rounding error of gaussian_delta stays below this
_UNDERFLOW_X = 27.5  # exp(-x^2) is below the smallest double from here on
_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(20)


def check_positive(name: str, value: float) -> float:
    """Returns `value` as a float; ValueError unless it is finite and above 0."""
    value = float(value)
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be finite and positive, got {value}")
    return value


def check_epsilon(value: float) -> float:
    """Returns `value` as a float; ValueError unless it is finite and at least 0."""
    value = float(value)
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"epsilon must be finite and not negative, got {value}")
    return value


def check_delta(value: float, name: str = "delta") -> float:
    """Returns `value` as a float; ValueError unless 0 < value < 1."""
    value = float(value)
    if not 0 < value < 1:
        raise ValueError(f"{name} must lie strictly between 0 and 1, got {value}")
    return value


def gaussian_delta(epsilon: float, sigma: float) -> float:
    """Exact smallest delta for which noise N(0, sigma^2) on a query of l2-sensitivity 1 is (epsilon, delta)-DP.

    Args:
      epsilon: finite, at least 0.
      sigma: standard deviation of the noise, finite and positive.

    Returns: delta in [0, 1]; relative error below 1e-12, 0 only where delta underflows.

    Raises: ValueError on an argument out of range.
    """
    epsilon = check_epsilon(epsilon)
    mu = 1.0 / check_positive("sigma", sigma)
    if math.isinf(mu):
        return 1.0
    x = (epsilon / mu - mu / 2) / _SQRT2
    width = mu / _SQRT2
    if x > _UNDERFLOW_X:
        return 0.0
    if width < 1:
        # The two erfcx nearly cancel: integrate -erfcx'(s) = 2/sqrt(pi) - 2 s erfcx(s) > 0 instead.
        s = x + width * (_NODES + 1) / 2
        slope = 2 / math.sqrt(math.pi) - 2 * s * special.erfcx(s)
        difference = width / 2 * float(_NODE_WEIGHTS @ slope)
    elif x > 0:
        difference = float(special.erfcx(x) - special.erfcx(x + width))
    else:
        # exp(-x^2) erfcx(x) could overflow in parts; the first term is Phi of a positive number.
        tail = 0.5 * math.exp(-x * x) * float(special.erfcx(x + width))
        return min(1.0, max(0.0, float(special.ndtr(-x * _SQRT2)) - tail))
    return min(1.0, max(0.0, 0.5 * math.exp(-x * x) * difference))


def gaussian_sigma(epsilon: float, delta: float) -> float:
    """Smallest noise that makes a query of l2-sensitivity 1 (epsilon, delta)-DP, rounded up.

    Guarantee: `gaussian_delta(epsilon, sigma) <= delta` holds in floating point, with a margin of 1e-12 delta that
    covers its rounding error (Balle and Wang 2018, Algorithm 1).

    Raises: ValueError unless epsilon > 0 is finite and 0 < delta < 1.
    """
    epsilon = check_positive("epsilon", epsilon)
    delta = check_delta(delta)

    def holds(sigma: float) -> bool:
        return gaussian_delta(epsilon, sigma) * (1 + _RELATIVE_MARGIN) <= delta

    good = 1.0
    while not holds(good):
        good *= 2
    bad = good / 2
    while holds(bad):
        good, bad = bad, bad / 2
    while bad < (middle := bad + (good - bad) / 2) < good:
        if holds(middle):
            good = middle
        else:
            bad = middle
    return good


def _precision(sigmas: Iterable[float]) -> Fraction:
    """Exact sum of 1/sigma^2."""
    return sum((1 / Fraction(sigma) ** 2 for sigma in sigmas), Fraction(0))


def compose_sigmas(sigmas: Sequence[float]) -> float:
    """Sigma of the one Gaussian mechanism equivalent to all of them, rounded down.

    1/sigma^2 = sum 1/sigma_r^2, for mechanisms of l2-sensitivity 1 each, chosen adaptively or not. The
    result is the largest double that does not exceed the exact value.

    Raises: ValueError on an empty sequence or a sigma that is not finite and positive.
    """
    sigmas = [check_positive("sigma", sigma) for sigma in sigmas]
    if not sigmas:
        raise ValueError("sigmas must not be empty")
    precision = _precision(sigmas)
    # Relative to the smallest sigma, so that squares neither overflow nor underflow.
    smallest = min(sigmas)
    sigma = smallest / math.sqrt(math.fsum((smallest / other) ** 2 for other in sigmas))
    while Fraction(sigma) ** 2 * precision > 1:
        sigma = math.nextafter(sigma, 0.0)
    while Fraction(math.nextafter(sigma, math.inf)) ** 2 * precision <= 1:
        sigma = math.nextafter(sigma, math.inf)
    return sigma


def split_sigma(sigma: float, shares: Sequence[float]) -> list[float]:
    """Noise per round, sigma / sqrt(share_r), rounded up.

    Args:
      sigma: noise of the one-shot mechanism.
      shares: positive shares of 1/sigma^2; their sum is at most 1 (within 1e-9: a sum above 1 by
        rounding is scaled back to 1).

    Guarantee: `compose_sigmas(split_sigma(sigma, shares)) >= sigma`, exactly.

    Raises: ValueError if a share is not positive or the sum exceeds 1 by more than 1e-9.
    """
    sigma = check_positive("sigma", sigma)
    shares = [check_positive("shares", share) for share in shares]
    if not shares:
        raise ValueError("shares must not be empty")
    total = math.fsum(shares)
    if total > 1 + 1e-9:
        raise ValueError(f"shares must not sum to more than 1, got {total}")
    scale = max(1.0, total)
    sigmas = [sigma / math.sqrt(share / scale) for share in shares]
    allowed = 1 / Fraction(sigma) ** 2
    while _precision(sigmas) > allowed:
        sigmas = [math.nextafter(value, math.inf) for value in sigmas]
    return sigmas
