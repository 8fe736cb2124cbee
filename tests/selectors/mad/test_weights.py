"""Uniform and biased user weights against the listing of the paper, with exact norms."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbeam.kernels.csr import uniform_weights
from dpbeam.kernels.grid import NORM_UNITS, UNITS, uniform_l2_units
from dpbeam.selectors.mad.weights import user_weights
from tests.selectors.mad.reference import user_weights as slow_user_weights
from tests.support.instances import csr

bias_values = st.one_of(st.just(1.0), st.floats(0, 1), st.sampled_from([0.5, 0.75, 1 / 32768, 1 - 2**-15]))


def check_row(units: list[int], bias: list[float], b_min: float, b_max: float) -> None:
    d = len(bias)
    root = math.sqrt(d)
    norm = sum(u * u for u in units)
    assert norm <= NORM_UNITS
    for u in units:
        assert u >= b_min / root * UNITS - 2
        assert u <= min(b_max / root, 1.0) * UNITS
    full = all(u >= b_max / root * UNITS - 2 for u in units)
    assert full or norm >= NORM_UNITS * (1 - 1e-7)
    expected = slow_user_weights(dict(enumerate(bias)), b_min, b_max)
    for i, u in enumerate(units):
        assert abs(u / UNITS - expected[i]) <= 3 / UNITS + 1e-9


@settings(max_examples=60)
@given(
    st.lists(st.lists(bias_values, min_size=1, max_size=16), min_size=1, max_size=4),
    st.floats(0.5, 1.0),
    st.floats(1.0, 8.0),
)
def test_biased_weights_follow_the_listing(rows, b_min, b_max):
    matrix = csr([range(len(r)) for r in rows])
    units = user_weights(matrix, np.array([b for r in rows for b in r]), b_min, b_max)
    assert units.dtype == np.int64
    for row, (a, b) in zip(rows, zip(matrix.offsets[:-1], matrix.offsets[1:])):
        check_row([int(u) for u in units[a:b]], row, b_min, b_max)


@pytest.mark.parametrize(("b_min", "b_max"), [(0.5, 2.0), (0.5, 1.0), (1.0, 1.0), (1.0, 3.0), (0.5, 100.0)])
def test_many_random_users_at_once(b_min, b_max):
    rng = np.random.default_rng(int(b_min * 10 + b_max))
    lengths = rng.integers(1, 100, 300)
    rows = [np.where(rng.random(d) < rng.random(), rng.random(d) ** 3, 1.0) for d in lengths]
    matrix = csr([range(d) for d in lengths])
    units = user_weights(matrix, np.concatenate(rows), b_min, b_max)
    for row, (a, b) in zip(rows, zip(matrix.offsets[:-1], matrix.offsets[1:])):
        check_row([int(u) for u in units[a:b]], row.tolist(), b_min, b_max)


def test_unbiased_users_get_uniform_weights_and_empty_rows_none():
    matrix = csr([[0, 1, 2], [], [0, 2], [5], []])
    table = uniform_l2_units(10)
    direct = uniform_weights(matrix, table)
    assert direct.tolist() == [int(table[3])] * 3 + [int(table[2])] * 2 + [int(table[1])]
    biased = user_weights(matrix, np.ones(6), 0.5, 2.0)
    assert (np.abs(biased - direct) <= 1).all()
    assert len(user_weights(csr([[], []]), np.zeros(0), 0.5, 2.0)) == 0


def test_a_user_is_weighed_alone():
    """Weights of a user are the same integers whoever shares the block: else sums would depend on blocks."""
    rng = np.random.default_rng(3)
    rows = [np.where(rng.random(d) < 0.6, rng.random(d), 1.0) for d in rng.integers(1, 60, 80)]
    together = user_weights(csr([range(len(r)) for r in rows]), np.concatenate(rows), 0.5, 2.0)
    alone = [user_weights(csr([range(len(r))]), r, 0.5, 2.0) for r in rows]
    assert np.array_equal(together, np.concatenate(alone))


@pytest.mark.parametrize("bad", [math.nan, -0.1, 1.1])
def test_biases_out_of_range_are_refused(bad):
    with pytest.raises(ValueError, match=r"biases must be numbers in \[0, 1\]"):
        user_weights(csr([[0, 1]]), np.array([0.5, bad]), 0.5, 2.0)
