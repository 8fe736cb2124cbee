"""Keep probabilities and the users they take."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbeam.accounting.keep import keep_probability, users_needed


def test_closed_form():
    assert keep_probability(10.0, 2.0, 10.0) == 0.5
    assert keep_probability(12.0, 2.0, 10.0) == pytest.approx(0.8413447460685429, rel=1e-14)
    assert keep_probability(0.0, 1.0, 20.0) == pytest.approx(2.7536241186062337e-89, rel=1e-10)
    assert keep_probability(np.array([8.0, 12.0]), 2.0, 10.0).sum() == pytest.approx(1.0)


def test_frequency():
    """100,000 noisy weights; 5.5 standard deviations, false alarm below 1e-7; sigma off by 10 % fails."""
    noise = np.random.default_rng(5).standard_normal(100_000)

    def gap(scale):
        return abs(np.mean(7.0 + 2.0 * scale * noise >= 10.0) - keep_probability(7.0, 2.0, 10.0))

    tolerance = 5.5 * math.sqrt(0.25 / 100_000)
    assert gap(1.0) < tolerance
    assert gap(0.9) > tolerance and gap(1.1) > tolerance


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.floats(1e-6, 1 - 1e-6), st.floats(1e-2, 10), st.floats(1e-2, 100), st.floats(-50, 1000))
def test_users_needed_is_the_smallest(probability, weight, sigma, threshold):
    users = users_needed(probability, weight, sigma, threshold)
    assert keep_probability(users * weight, sigma, threshold) >= probability
    assert users == 0 or keep_probability((users - 1) * weight, sigma, threshold) < probability


def test_users_needed_values():
    assert users_needed(0.5, 1.0, 3.0, 20.0) == 20
    assert users_needed(0.5, 0.1, 3.0, 20.05) == 201
    assert users_needed(0.5, 1.0, 3.0, -20.0) == 0
    assert 3 * 0.1 / 0.1 > 3  # the quotient rounds above the answer
    assert users_needed(0.5, 0.1, 1.0, 3 * 0.1) == 3
    assert users_needed(0.5, 1e-300, 1.0, 1.0) == pytest.approx(10**300, rel=1e-9)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: keep_probability(1, 0, 1), "sigma must be finite and positive"),
        (lambda: keep_probability(1, 1, math.nan), "threshold must be finite"),
        (lambda: users_needed(1.0, 1, 1, 1), "probability must lie strictly between 0 and 1"),
        (lambda: users_needed(0.5, 0, 1, 1), "weight_per_user must be finite and positive"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()
