"""Peeling: the formula in high precision, its two regimes, its zCDP reading."""

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dpbeam.accounting.peeling import bounded_range_zcdp, gaussian_zcdp, peeling_epsilon0
from dpbeam.accounting.zcdp import zcdp_delta


def exact(epsilon, delta, rounds):
    with mp.workdps(60):
        e, k = mp.mpf(epsilon), mp.mpf(rounds)
        pure = e / k
        if delta == 0:
            return pure
        log = -8 * mp.log(mp.mpf(delta))
        return max(pure, mp.sqrt((log + 8 * e) / k) - mp.sqrt(log / k))


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    st.floats(-4, 2).map(lambda e: 10.0**e),
    st.one_of(st.just(0.0), st.floats(-30, -0.01).map(lambda e: 10.0**e)),
    st.integers(1, 10_000),
)
def test_formula_rounded_down(epsilon, delta, rounds):
    got, want = peeling_epsilon0(epsilon, delta, rounds), exact(epsilon, delta, rounds)
    assert want * (1 - mp.mpf(10) ** -12) <= got <= want


def test_regimes():
    assert peeling_epsilon0(1.0, 1e-6, 1) == pytest.approx(1.0)  # one choice is best as pure DP
    assert peeling_epsilon0(1.0, 0.0, 10) == pytest.approx(0.1)
    assert peeling_epsilon0(1.0, 1e-6, 200) > 5 * 1.0 / 200
    assert peeling_epsilon0(1.0, 0.0, 10) <= 0.1


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 10.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-20])
@pytest.mark.parametrize("rounds", [50, 1000])
def test_composition_of_the_rounds_keeps_the_budget(epsilon, delta, rounds):
    """Either k eps_0 <= epsilon, or the rounds as zCDP, converted tightly, stay within delta."""
    epsilon0 = peeling_epsilon0(epsilon, delta, rounds)
    pure = rounds * epsilon0 <= epsilon
    assert pure or zcdp_delta(rounds * bounded_range_zcdp(epsilon0), epsilon) <= delta


def test_zcdp_costs():
    assert bounded_range_zcdp(0.4) == pytest.approx(0.02, rel=1e-13)
    assert bounded_range_zcdp(0.4) >= 0.4**2 / 8
    assert gaussian_zcdp(5.0) == pytest.approx(0.02, rel=1e-13)


def test_gumbel_noise_of_scale_one_over_epsilon0_has_bounded_range():
    """Two counts 3, 1: the noisy maximum is the first with odds exp(2 eps_0), the exponential mechanism.

    200,000 draws; 5.5 standard deviations, false alarm below 1e-7; a scale off by 10 % fails.
    """
    epsilon0, runs = peeling_epsilon0(1.0, 0.0, 2), 200_000
    noise = np.random.default_rng(17).gumbel(size=(runs, 2))
    want = 1 / (1 + math.exp(-2 * epsilon0))
    tolerance = 5.5 * math.sqrt(0.25 / runs)

    def gap(scale):
        noisy = np.array([3.0, 1.0]) + scale / epsilon0 * noise
        return abs(np.mean(noisy.argmax(axis=1) == 0) - want)

    assert gap(1.0) < tolerance
    assert gap(0.9) > tolerance and gap(1.1) > tolerance
    assert stats.norm.sf(5.5) < 1e-7


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: peeling_epsilon0(0, 1e-6, 3), "epsilon must be finite and positive"),
        (lambda: peeling_epsilon0(1, 1, 3), r"delta must lie in \[0, 1\)"),
        (lambda: peeling_epsilon0(1, math.nan, 3), r"delta must lie in \[0, 1\)"),
        (lambda: peeling_epsilon0(1, 0, 0), "rounds must be an integer of at least 1"),
        (lambda: peeling_epsilon0(1, 0, 2.5), "rounds must be an integer of at least 1"),
        (lambda: peeling_epsilon0(1, 0, True), "rounds must be an integer of at least 1"),
        (lambda: bounded_range_zcdp(0), "epsilon0 must be finite and positive"),
        (lambda: gaussian_zcdp(math.nan), "sigma must be finite and positive"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()
