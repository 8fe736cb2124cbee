"""Analytic Gaussian mechanism against high precision, closed forms and dp-accounting."""

import math
from fractions import Fraction

import dp_accounting
import mpmath as mp
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbeam.accounting.gaussian import (
    compose_sigmas,
    gaussian_delta,
    gaussian_sigma,
    split_sigma,
)

EPSILONS = [1e-4, 1e-2, 0.3, 1.0, 5.0, 20.0, 100.0]
DELTAS = [0.9, 0.1, 1e-5, 1e-15, 1e-30]


def exact_delta(epsilon, sigma):
    """Balle and Wang 2018, Theorem 8, literally, in 200 digits."""
    with mp.workdps(200):
        mu, e = 1 / mp.mpf(sigma), mp.mpf(epsilon)
        return mp.ncdf(mu / 2 - e / mu) - mp.exp(e) * mp.ncdf(-mu / 2 - e / mu)


@pytest.mark.parametrize("sigma", [0.01, 0.05, 0.3, 1.0, 3.7, 40.0, 1e3, 5e4, 1e6])
def test_delta_has_twelve_digits(sigma):
    for epsilon in (0.0, 1e-8, *EPSILONS, 700.0, 2000.0):
        want = exact_delta(epsilon, sigma)
        got = gaussian_delta(epsilon, sigma)
        if want > 1e-300:
            assert abs(got / want - 1) < 1e-12
        else:
            assert 0 <= got < 1e-299


@pytest.mark.parametrize("delta", DELTAS)
def test_sigma_is_the_smallest_that_is_private(delta):
    for epsilon in EPSILONS:
        sigma = gaussian_sigma(epsilon, delta)
        assert gaussian_delta(epsilon, sigma) <= delta
        assert exact_delta(epsilon, sigma) <= delta  # truly, not only in floating point
        assert exact_delta(epsilon, sigma * (1 - 1e-10)) > delta


@pytest.mark.parametrize("epsilon", [1e-2, 0.3, 1.0, 5.0, 20.0])
@pytest.mark.parametrize("delta", [0.1, 1e-5, 1e-10])
def test_sigma_agrees_with_dp_accounting(epsilon, delta):
    assert gaussian_sigma(epsilon, delta) == pytest.approx(
        dp_accounting.get_sigma_gaussian(epsilon, delta), rel=1e-6
    )


@pytest.mark.parametrize(
    ("epsilon", "delta", "golden"),
    [
        # Roots of Balle and Wang's condition found with mpmath.findroot at 60 digits.
        (1.0, 1e-5, 3.73063163481594183),
        (1.0, 5e-6, 3.88414080460436124),
        (0.1, 1e-10, 54.2062958369012686),
    ],
)
def test_golden_sigma(epsilon, delta, golden):
    assert golden < gaussian_sigma(epsilon, delta) <= golden * (1 + 1e-11)


def test_delta_at_epsilon_zero():
    assert gaussian_delta(0.0, 10.0) == pytest.approx(math.erf(0.05 / math.sqrt(2)), rel=1e-13)


def test_extreme_noise():
    assert gaussian_delta(1.0, 1e300) == 0.0
    assert gaussian_delta(1.0, 1e-300) == 1.0


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.floats(-4, 2).map(lambda e: 10.0**e),
    st.floats(-2, 5).map(lambda e: 10.0**e),
    st.floats(1.0001, 3),
)
def test_delta_falls_with_epsilon_and_sigma(epsilon, sigma, factor):
    here = gaussian_delta(epsilon, sigma)
    assert 0 <= here <= 1
    assert gaussian_delta(epsilon * factor, sigma) <= here * (1 + 1e-12)
    assert gaussian_delta(epsilon, sigma * factor) <= here * (1 + 1e-12)


def test_composition_agrees_with_numerical_composition():
    """PLD composition of dp-accounting, a method that shares nothing with the closed form."""
    sigmas = [4.0, 6.0, 9.0]
    joint = None
    for sigma in sigmas:
        one = pld.from_gaussian_mechanism(sigma, value_discretization_interval=1e-3)
        joint = one if joint is None else joint.compose(one)
    for epsilon in (0.2, 0.5, 1.0):
        ours = gaussian_delta(epsilon, compose_sigmas(sigmas))
        assert joint.get_delta_for_epsilon(epsilon) == pytest.approx(ours, rel=0.02)


def test_compose_rounds_down_exactly():
    assert compose_sigmas([2.5]) == 2.5
    assert compose_sigmas([5.0, 5.0, 5.0, 5.0]) == 2.5
    for sigmas in ([3.0, 7.0], [0.1] * 10, [1e-8, 1e8], [1e200, 3e200]):
        sigma = compose_sigmas(sigmas)
        total = sum(1 / Fraction(s) ** 2 for s in sigmas)
        assert Fraction(sigma) ** 2 * total <= 1
        assert Fraction(math.nextafter(sigma, math.inf)) ** 2 * total > 1


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.floats(1e-3, 1e6), st.lists(st.floats(1e-3, 1), min_size=1, max_size=12))
def test_split_never_composes_below_sigma(sigma, weights):
    total = math.fsum(weights)
    parts = split_sigma(sigma, [weight / total for weight in weights])
    assert compose_sigmas(parts) >= sigma
    assert compose_sigmas(parts) <= sigma * (1 + 1e-13)


def test_split_published_shares():
    assert split_sigma(3.0, [0.25, 0.75]) == pytest.approx([6.0, 3.0 / math.sqrt(0.75)], rel=1e-14)
    with pytest.raises(ValueError, match=r"shares must not sum to more than 1, got 1\.1"):
        split_sigma(3.0, [0.5, 0.6])
    with pytest.raises(ValueError, match="shares must be finite and positive"):
        split_sigma(3.0, [1.0, 0.0])
    with pytest.raises(ValueError, match="shares must not be empty"):
        split_sigma(3.0, [])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: gaussian_delta(-1, 1), "epsilon must be finite and not negative"),
        (lambda: gaussian_delta(math.nan, 1), "epsilon must be finite and not negative"),
        (lambda: gaussian_delta(1, 0), "sigma must be finite and positive"),
        (lambda: gaussian_sigma(0, 0.1), "epsilon must be finite and positive"),
        (lambda: gaussian_sigma(math.inf, 0.1), "epsilon must be finite and positive"),
        (lambda: gaussian_sigma(1, 0), "delta must lie strictly between 0 and 1"),
        (lambda: gaussian_sigma(1, 1), "delta must lie strictly between 0 and 1"),
        (lambda: gaussian_sigma(1, math.nan), "delta must lie strictly between 0 and 1"),
        (lambda: compose_sigmas([]), "sigmas must not be empty"),
        (lambda: compose_sigmas([1, math.nan]), "sigma must be finite and positive"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()
