"""Bisection for the largest parameter that fits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpbeam.accounting.search import largest_fitting


@given(limit=st.floats(0.01, 3.99))
def test_the_largest_that_fits_and_what_it_gave(limit):
    largest, given_back = largest_fitting(lambda x: ("at", x) if x <= limit else None, 0.0, 4.0)
    assert largest <= limit and largest == pytest.approx(limit, abs=4 * 2.0**-50)
    assert given_back == ("at", largest)


def test_nothing_fits_above_the_low_end():
    assert largest_fitting(lambda x: None, 0.0, 4.0) == (0.0, None)
    assert largest_fitting(lambda x: None, 1.0, 4.0, "low") == (1.0, "low")
