"""The budget and its parts."""

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbeam.accounting.budget import Budget, split_amount
from dpbeam.errors import InputError


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    st.floats(-4, 2).map(lambda e: 10.0**e),
    st.floats(-30, -1.01).map(lambda e: 10.0**e),
    st.lists(st.floats(1e-3, 1), min_size=1, max_size=20),
)
def test_parts_never_exceed_the_whole(epsilon, delta, weights):
    total = math.fsum(weights)
    whole = Budget(epsilon, delta)
    parts = whole.split([weight / total for weight in weights])
    for name in ("epsilon", "delta"):
        values = [getattr(part, name) for part in parts]
        assert sum(map(Fraction, values)) <= Fraction(getattr(whole, name))
        assert math.fsum(values) >= getattr(whole, name) * (1 - 1e-12)


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
    first, second = Budget(1.0, 1e-5).split([0.1, 0.9])
    assert (first.epsilon, first.delta) == pytest.approx((0.1, 1e-6))
    assert (second.epsilon, second.delta) == pytest.approx((0.9, 9e-6))
    assert Budget(1.0, 1e-5).split([1.0]) == [Budget(1.0, 1e-5)]


def test_shares_within_the_tolerance_are_accepted_and_scaled_down():
    parts = Budget(1.0, 1e-5).split([1 / 3 + 2e-10] * 3)
    assert math.fsum(part.epsilon for part in parts) <= 1.0


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
        (1.0, 0.999999, "delta must lie between 1e-200 and 0.1, got 0.999999"),
        (50.0, 0.1000001, "delta must lie between 1e-200 and 0.1, got 0.1000001"),
        (1.0, 1e-320, "delta must lie between 1e-200 and 0.1, got 1e-320"),
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
        ([0.5, 0.4], r"--budget_split shares must sum to 1, got \[0\.5, 0\.4\] with sum 0\.9"),
        ([0.5, 0.5 + 1e-8], "--budget_split shares must sum to 1"),
        ([1.5, -0.5], "--budget_split needs positive shares"),
        ([1.0, 0.0], "--budget_split needs positive shares"),
        ([math.nan, 1.0], "--budget_split needs positive shares"),
        ([], "--budget_split needs positive shares"),
        (["0.1", 0.9], "--budget_split must be a number, got str"),
    ],
)
def test_bad_shares(shares, message):
    with pytest.raises(InputError, match=message):
        Budget(1.0, 1e-5).split(shares)


def test_part_that_underflows():
    with pytest.raises(InputError, match="leaves nothing for one of its parts"):
        Budget(5e-324, 1e-5).split([0.5, 0.5])


def test_frozen():
    with pytest.raises(AttributeError):
        Budget(1.0, 1e-5).epsilon = 2.0
