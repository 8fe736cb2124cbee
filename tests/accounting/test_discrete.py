"""Safe sides of exact integer noise: curves and tails against the discrete laws themselves."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpbeam.accounting.discrete import (
    SMOOTHING,
    equivalent_sigma,
    threshold_surcharge,
)
from dpbeam.accounting.gaussian import gaussian_delta
from tests.support.exact import PRECISION, exact_law, gaussian_law

FLOAT = 1e-9  # relative error of the sums below in doubles
VARIATION = 2.0**-130  # that is allowed to a draw, and to a real Gaussian in its place


def discrete_delta(epsilon: float, sigma: float, shifts: tuple[int, ...]) -> float:
    """Smallest delta of independent discrete Gaussians under these integer shifts, from its definition."""
    law, shifted = np.ones(1), np.ones(1)
    for shift in shifts:
        x = np.arange(-math.ceil(9 * sigma), math.ceil(9 * sigma) + shift + 1)
        one, other = (np.exp(-((x - move) ** 2) / (2 * sigma**2)) for move in (0, shift))
        law = np.outer(law, one / one.sum()).ravel()
        shifted = np.outer(shifted, other / other.sum()).ravel()
    return float(np.maximum(law - math.exp(epsilon) * shifted, 0).sum())


@pytest.mark.parametrize("sigma", [8.0, 13.5, 40.0])
@pytest.mark.parametrize("shifts", [(1,), (2,), (8,), (30,), (3, 4), (1, 1), (7, 0)])
def test_no_discrete_curve_is_above_that_of_the_equivalent_sigma(sigma, shifts):
    norm = math.sqrt(sum(shift**2 for shift in shifts))
    for epsilon in np.linspace(0, 4 * norm / sigma, 9):
        bound = gaussian_delta(epsilon, equivalent_sigma(sigma) / norm)
        assert discrete_delta(epsilon, sigma, shifts) <= bound * (1 + FLOAT) + 1e-14


def test_the_same_sigma_would_not_be_safe():
    """Shifts of one unit: the discrete curve exceeds that of N(0, sigma^2), by about 1/sigma^2 and not by less."""
    for sigma in (8.0, 20.0, 40.0):
        excess = discrete_delta(2 / sigma, sigma, (1,)) / gaussian_delta(2 / sigma, sigma) - 1
        assert 0.1 / sigma**2 < excess < 10 / sigma**2


@given(st.floats(8, 2.0**58))
def test_equivalent_sigma_is_the_largest_double_below(sigma):
    exact = Fraction(sigma) ** 2 - SMOOTHING
    equivalent = equivalent_sigma(sigma)
    assert Fraction(equivalent) ** 2 <= exact < Fraction(math.nextafter(equivalent, math.inf)) ** 2


def test_the_step_to_a_real_gaussian_is_within_its_allowance():
    """2 theta / (1 - theta), theta = 2 exp(-2 pi^2 s^2) (1 + ...): the normaliser of a Gaussian of variance s^2."""
    with mpmath.workdps(60):
        variance = mpmath.mpf(SMOOTHING.numerator) / SMOOTHING.denominator
        theta = 2 * mpmath.nsum(lambda k: mpmath.exp(-2 * mpmath.pi**2 * k**2 * variance), [1, mpmath.inf])
        assert 2 * theta / (1 - theta) < VARIATION
        sums = [
            mpmath.nsum(lambda x, at=at: mpmath.exp(-((x - at) ** 2) / (2 * variance)), [-60, 60])
            / mpmath.sqrt(2 * mpmath.pi * variance)
            for at in (0, mpmath.mpf(1) / 3, mpmath.mpf(1) / 2)
        ]
        assert max(abs(total - 1) for total in sums) <= theta * (1 + mpmath.mpf(10) ** -15)


@pytest.mark.parametrize("sigma", [8.0, 13.5, 100.0])
def test_gaussian_tails_are_below_the_continuous_ones_with_the_surcharge(sigma):
    """P(D >= x) <= P(N >= x - 1) + 2^-130; without the surcharge of one unit it would not hold."""
    reach = math.ceil(13 * sigma)
    law = gaussian_law(Fraction(sigma) ** 2, reach)
    exact, unshifted = 0, 0
    x = np.arange(reach, -reach - 1, -1)
    shifted, continuous = (stats.norm.sf(at / sigma) * (1 + FLOAT) for at in (x - threshold_surcharge(), x))
    for place, above, below in zip(x.tolist(), shifted, continuous):
        exact += law[place]
        tail = Fraction(exact, 1 << PRECISION)
        assert tail <= Fraction(above) + Fraction(VARIATION)
        unshifted += tail > Fraction(below)
    assert unshifted > reach


@pytest.mark.parametrize("scale", [1.0, 2.7, 40.0])
def test_laplace_tails_are_below_the_continuous_ones_with_the_surcharge(scale):
    """P(L >= x) <= P(Laplace >= x - 1) for every x; without the surcharge of one unit it would not hold."""
    reach = math.ceil(80 * scale)
    b = Fraction(scale)
    law = exact_law(
        lambda x: mpmath.exp(-mpmath.mpf(abs(x) * b.denominator) / b.numerator), range(-reach, reach + 1)
    )
    exact, unshifted = 0, 0
    x = np.arange(reach, -reach - 1, -1)
    shifted, continuous = (
        stats.laplace.sf(at / scale) * (1 + FLOAT) for at in (x - threshold_surcharge(), x)
    )
    for place, above, below in zip(x.tolist(), shifted, continuous):
        exact += law[place]
        tail = Fraction(exact, 1 << PRECISION)
        assert tail <= Fraction(above)
        unshifted += tail > Fraction(below)
    assert unshifted > reach // 2


def test_surcharge_of_sums_of_rounds():
    assert threshold_surcharge() == 1
    assert threshold_surcharge([0.25, 0.5]) == 1
    assert threshold_surcharge([0.25, -0.5, 0.5]) == 2
    assert threshold_surcharge([1.0, 2.0**-60]) == 2


def test_a_weighted_sum_of_draws_is_below_the_continuous_one_with_the_surcharge():
    """0.6 X + 0.7 Y of sigma 8, exactly by enumeration, against N(0, 0.85 sigma^2) at every place on a fine grid."""
    sigma, a, b = 8.0, 0.6, 0.7
    law = gaussian_law(Fraction(64), 80)
    x = np.arange(-80, 81)
    p = np.array([float(law[i] / 2**PRECISION) for i in x])
    places, masses = (a * x[:, None] + b * x[None, :]).ravel(), np.outer(p, p).ravel()
    order = np.argsort(-places)
    tails = np.cumsum(masses[order])
    at = places[order]
    last = np.append(np.diff(at) != 0, True)
    limits = at[last] - threshold_surcharge([a, b])
    bound = stats.norm.sf(limits / (sigma * math.hypot(a, b)))
    assert (tails[last] <= bound + 1e-12).all()
    assert (tails[last] > stats.norm.sf(at[last] / (sigma * math.hypot(a, b))) + 1e-6).any()


def test_arguments_out_of_range_are_refused():
    for sigma in (7.9, math.nan, math.inf):
        with pytest.raises(ValueError, match="sigma must be"):
            equivalent_sigma(sigma)
