"""Prices from log-weights."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbeam.packing.prices import price_bits, prices_of, step

ONE = 1 << 40


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-60, 60), min_size=1, max_size=8), st.floats(0.5, 5e4))
def test_prices_are_those_of_multiplicative_weights(theta, largest):
    largest = Fraction(largest)
    bits = price_bits(largest)
    prices = prices_of(np.array([round(t * ONE) for t in theta]), largest, bits)
    weights = np.exp(np.array([*theta, 0.0]) - max([*theta, 0.0]))
    expected = float(largest) * weights[:-1] / weights.sum()
    assert prices * 2.0**-bits == pytest.approx(expected, rel=1e-9, abs=2.0 ** (1 - bits))
    assert prices.min() >= 0 and prices.sum() <= largest * 2**bits <= 2**31


def test_the_first_prices_are_equal_shares_with_the_dummy():
    prices = prices_of(np.zeros(3, np.int64), Fraction(20), 10)
    assert prices.tolist() == [5 << 10] * 3


def test_log_weights_far_apart_do_not_overflow():
    prices = prices_of(np.array([1 << 60, -(1 << 60), 0]), Fraction(1), 30)
    assert prices.tolist() == [(1 << 30), 0, 0] or prices.tolist() == [(1 << 30) - 1, 0, 0]


def test_prices_that_no_grid_holds_are_refused():
    with pytest.raises(ValueError, match="leave the fixed point"):
        price_bits(Fraction(2) ** 33)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.integers(-(2**55), 2**55), min_size=1, max_size=4), st.fractions(0, 1, max_denominator=10**6)
)
def test_steps_are_exact_and_rounded_down(gradient, size):
    moved = step(np.zeros(len(gradient), np.int64), np.array(gradient), size / 2**55)
    for theta, g in zip(moved, gradient):
        exact = Fraction(g) * size * ONE / 2**55
        assert theta == -(exact // 1)
