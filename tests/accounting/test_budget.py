"""The budget and its parts."""

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbeam.accounting.budget import Budget, split_amount
from dpbeam.errors import InputError


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.floats(-30, 2).map(lambda e: 10.0**e), st.lists(st.floats(1e-3, 1), min_size=1, max_size=20))
def test_parts_never_exceed_the_whole(amount, weights):
    total = math.fsum(weights)
    parts = split_amount(amount, [weight / total for weight in weights])
    assert sum(map(Fraction, parts)) <= Fraction(amount)
    assert math.fsum(parts) >= amount * (1 - 1e-12)


def test_rounding_up_to_the_whole_is_taken_back():
    """0.1 + 0.2 + 0.7 of some amounts exceed them when products are only rounded to nearest."""
    shares, above = [0.1, 0.2, 0.7], 0
    for step in range(1, 200):
        amount = step / 7
        naive = sum(Fraction(amount * share) for share in shares)
        above += naive > Fraction(amount)
        assert sum(map(Fraction, split_amount(amount, shares))) <= Fraction(amount)
    assert above > 10  # the case the code exists for does occur


def test_split_values():
    assert split_amount(1e-5, [0.1, 0.9]) == pytest.approx([1e-6, 9e-6])
    assert split_amount(1e-5, [1.0]) == [1e-5]


def test_shares_within_the_tolerance_are_accepted_and_scaled_down():
    assert math.fsum(split_amount(1.0, [1 / 3 + 2e-10] * 3)) <= 1.0


@pytest.mark.parametrize(
    ("epsilon", "delta", "message"),
    [
        (0, 1e-5, "epsilon must be a finite number above 0, got 0"),
        (-1.0, 1e-5, "epsilon must be a finite number above 0, got -1"),
        (math.nan, 1e-5, "epsilon must be a finite number above 0, got nan"),
        (math.inf, 1e-5, "epsilon must be a finite number above 0, got inf"),
        ("1", 1e-5, "epsilon must be a number, got str"),
        (True, 1e-5, "epsilon must be a number, got bool"),
        (1.0, 0.0, "delta must lie strictly between 0 and 1, got 0"),
        (1.0, 1, "delta must lie strictly between 0 and 1, got 1"),
        (1.0, 0.999999, "delta must lie between 1e-30 and 0.1, got 0.999999"),
        (50.0, 0.1000001, "delta must lie between 1e-30 and 0.1, got 0.1000001"),
        (1.0, 9e-31, "delta must lie between 1e-30 and 0.1, got 9e-31"),
        (1.0, math.nan, "delta must lie strictly between 0 and 1, got nan"),
        (1.0, None, "delta must be a number, got NoneType"),
    ],
)
def test_bad_budget(epsilon, delta, message):
    with pytest.raises(InputError, match=message):
        Budget(epsilon, delta)


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ([0.5, 0.4], r"--set budget_split shares must sum to 1, got \[0\.5, 0\.4\] with sum 0\.9"),
        ([0.5, 0.5 + 1e-8], "--set budget_split shares must sum to 1"),
        ([1.5, -0.5], "--set budget_split needs positive shares"),
        ([1.0, 0.0], "--set budget_split needs positive shares"),
        ([math.nan, 1.0], "--set budget_split needs positive shares"),
        ([], "--set budget_split needs positive shares"),
        (["0.1", 0.9], "--set budget_split must be a number, got str"),
    ],
)
def test_bad_shares(shares, message):
    with pytest.raises(InputError, match=message):
        split_amount(1.0, shares)


def test_part_that_underflows():
    with pytest.raises(InputError, match="leaves nothing for one of its parts"):
        split_amount(5e-324, [0.5, 0.5])


def test_frozen():
    with pytest.raises(AttributeError):
        Budget(1.0, 1e-5).epsilon = 2.0
