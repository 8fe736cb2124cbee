"""Fixed point: exact tables, norms that never exceed one, thresholds up, noise after the sum."""

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpbeam.kernels.grid import (
    NORM_UNITS,
    UNIT_BITS,
    UNITS,
    floor_to_unit_norm,
    l2_units,
    public_grid,
    threshold_units,
    uniform_l1_units,
    uniform_l2_units,
)


def norms(units: np.ndarray, offsets: np.ndarray) -> list[int]:
    """Exact squared norm of each row in Python integers."""
    return [sum(int(x) ** 2 for x in units[a:b]) for a, b in pairwise(offsets)]


def test_uniform_tables_hold_the_largest_allowed_integers():
    l2, l1 = uniform_l2_units(3000), uniform_l1_units(3000)
    assert (l2_units(np.arange(3000, 0, -1)) == l2[:0:-1]).all()
    assert l2.dtype == l1.dtype == np.int64
    assert l2[0] == l1[0] == 0
    for d in range(1, 3001):
        x, y = int(l2[d]), int(l1[d])
        assert d * x * x <= NORM_UNITS < d * (x + 1) ** 2
        assert d * y <= UNITS < d * (y + 1)


@given(st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=12), min_size=1, max_size=8))
def test_floored_rows_keep_norm_one(rows):
    offsets = np.concatenate(([0], np.cumsum([len(r) for r in rows])))
    scaled = [np.array(r) / max(1.0, math.sqrt(sum(x * x for x in r))) for r in rows]
    weights = np.concatenate(scaled)
    units = floor_to_unit_norm(weights, offsets)
    assert units.dtype == np.int64
    assert max(norms(units, offsets)) <= NORM_UNITS
    assert (units <= np.floor(weights * UNITS)).all()
    assert (units >= np.floor(weights * UNITS) - 2).all()


def test_floored_unit_rows_never_exceed_one_by_rounding():
    """A million weights whose floating-point norm is one, rounded naively, exceed it in many rows."""
    rng = np.random.default_rng(7)
    lengths = rng.integers(1, 60, 20_000)
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    raw = rng.random(offsets[-1])
    # Rows of equal weights that are multiples of the grid sit exactly at norm one.
    raw[offsets[0] : offsets[100]] = np.repeat([1.0], offsets[100])
    norm = np.sqrt(np.add.reduceat(raw * raw, offsets[:-1]))
    weights = np.minimum(raw / np.repeat(norm, lengths) * (1 + 2e-16), 1.0)
    units = floor_to_unit_norm(weights, offsets)
    exact = norms(units, offsets)
    assert max(exact) <= NORM_UNITS
    assert min(exact) >= NORM_UNITS * (1 - 1e-7)
    naive = norms(np.rint(weights * UNITS).astype(np.int64), offsets)
    assert sum(value > NORM_UNITS for value in naive) > 5_000


def test_rows_slightly_above_norm_one_lose_steps_until_they_fit():
    weights = np.full(4, 0.5 * (1 + 4e-9))
    units = floor_to_unit_norm(weights, np.array([0, 4]))
    assert sum(int(x) ** 2 for x in units) <= NORM_UNITS
    assert (units >= UNITS // 2 - 4).all()


def test_a_row_above_norm_one_by_less_than_its_floating_point_sum_shows_loses_a_step():
    weights = np.array([2.0**-UNIT_BITS, 1.0])  # squares of 1 and 2^60, whose float64 sum is 2^60
    assert floor_to_unit_norm(weights, np.array([0, 2])).tolist() == [0, UNITS - 1]
    assert floor_to_unit_norm(weights, np.array([0, 1, 2])).tolist() == [1, UNITS]


@pytest.mark.parametrize("bad", [math.nan, -1e-12, 1.1, math.inf])
def test_weights_that_are_no_weights_are_refused(bad):
    with pytest.raises(ValueError, match=r"weights must be numbers in \[0, 1\]"):
        floor_to_unit_norm(np.array([0.1, bad, 0.1]), np.array([0, 3]))


def test_rows_far_above_norm_one_are_refused():
    with pytest.raises(ValueError, match="a row's l2 norm is above one"):
        floor_to_unit_norm(np.array([0.5, 0.9, 0.9]), np.array([0, 1, 3]))
    for count in (8, 16, 32):  # squares of 2^60 each, whose sum wraps around to 0
        with pytest.raises(ValueError, match="a row's l2 norm is above one"):
            floor_to_unit_norm(np.ones(count), np.array([0, count]))
    assert len(floor_to_unit_norm(np.zeros(0), np.array([0]))) == 0


@given(st.floats(-100, 100, allow_nan=False))
def test_thresholds_round_up(value):
    up = threshold_units(value) - 1  # integer noise may exceed continuous noise by one unit
    assert Fraction(up, UNITS) >= Fraction(value) > Fraction(up - 1, UNITS)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_thresholds_must_be_finite(value):
    with pytest.raises(ValueError, match="threshold must be finite"):
        threshold_units(value)


@pytest.mark.parametrize("sigma", [1e-3, 0.7, 1.0, 4.4, 100.0, 3e5])
def test_public_grid_is_a_power_of_two_near_a_thousandth_of_sigma(sigma):
    grid = public_grid(sigma)
    assert math.frexp(grid)[0] == 0.5
    assert 0.7 <= grid / (sigma / 1024) <= 1.42
