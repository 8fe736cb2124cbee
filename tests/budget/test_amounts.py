"""Sums are those of the typed decimals, exactly."""

from decimal import Decimal
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from dpbeam.budget.amounts import cost, exact, room, spell, text, total

POSITIVE = st.floats(1e-300, 1e300)


def test_ten_tenths_are_one():
    assert sum([exact(0.1)] * 10) == 1 < sum([Fraction(0.1)] * 10)
    assert total([{"delta": exact(1e-8)}] * 3, ["delta", "epsilon"]) == {
        "delta": Fraction(3, 10**8),
        "epsilon": 0,
    }


@given(st.decimals(Decimal("1e-12"), Decimal("1e6"), places=12))
def test_what_was_typed_is_what_counts(typed):
    """Up to 15 digits every decimal survives the double."""
    digits = typed.normalize()
    if len(digits.as_tuple().digits) <= 15:
        assert exact(float(str(digits))) == Fraction(digits)


@given(POSITIVE)
def test_computed_amounts_move_to_the_safe_side(value):
    assert exact(cost(value)) >= Fraction(value) >= exact(room(value))
    assert abs(exact(value) - Fraction(value)) * 2**53 <= Fraction(value)


def test_amounts_for_people():
    assert text(Fraction(1, 3)) == "0.333333333333"
    assert spell({"epsilon": exact(0.5), "delta": exact(1e-8)}) == "epsilon 0.5, delta 1e-08"
