"""Variates: exact quantiles for chosen bits, far tails, and distributions with power."""

import math

import mpmath
import numpy as np
import pytest
from scipy import stats

from dpbeam.randomness import exponential, gaussian, gumbel, prf_bits
from tests.support.statistics import FALSE_ALARM, distribution_p

TOP = 1 << 63
LAST = (1 << 64) - 1


def bits_of(*rows: tuple[int, int]) -> np.ndarray:
    return np.array(rows, np.uint64).reshape(-1, 2)


def normal_tail(z: float) -> mpmath.mpf:
    with mpmath.workdps(60):
        return mpmath.erfc(mpmath.mpf(z) / mpmath.sqrt(2)) / 2


WORDS = [1, 2, 3, 5, 1000, 1 << 20, 1 << 40, 1 << 55, 1 << 61, (1 << 62) + 12345, TOP - 2]


@pytest.mark.parametrize("low", [0, 1, 1 << 32, TOP, LAST])
def test_gaussian_is_the_quantile_of_its_tail_probability(low):
    """|z| = Q^-1(p/2) with p = (k + (low + 1/2) 2^-64) 2^-63, checked through the exact tail of the answer.

    A relative error e of z moves the tail by z^2 e; 200 (|z|^2 + 1) units in the last place are allowed.
    """
    for k in (0, *WORDS):
        with mpmath.workdps(60):
            p = (k + (mpmath.mpf(low) + 0.5) * mpmath.mpf(2) ** -64) * mpmath.mpf(2) ** -63
            positive, negative = gaussian(bits_of((k, low), (k | TOP, low)))
            assert positive == -negative >= 0
            tail = normal_tail(positive)
            allowed = 200 * (positive**2 + 1) * 2.0**-53 * max(p / 2, mpmath.mpf(2) ** -1 if p > 0.9 else 0)
            assert abs(tail - p / 2) <= allowed


def test_gaussian_extremes_are_finite_and_not_cut():
    """The smallest two-sided tail is 2^-128, far beyond 8.3 sigma where 64-bit floats of a uniform stop."""
    largest = gaussian(bits_of((TOP, 0), (0, 0)))
    assert largest.tolist() == [-largest[1], pytest.approx(stats.norm.isf(2.0**-129), rel=1e-13)]
    assert 13 < largest[1] < 13.2
    smallest = gaussian(bits_of((TOP - 1, LAST), (LAST, LAST)))
    assert np.abs(smallest).max() < 1e-15


def test_gaussian_falls_with_its_bits():
    """Monotone in the 127 magnitude bits, also where the second word takes over."""
    rows = [(k, low) for k in (0, 1, 2, 100, 1 << 50) for low in (0, 1, 1 << 40, TOP, LAST)]
    assert (np.diff(gaussian(bits_of(*rows))) <= 0).all()
    far = [(0, 0), (0, 1), (0, 1 << 40), (0, TOP), (1, TOP), (2, TOP), (100, TOP), (1 << 50, TOP)]
    assert (np.diff(gaussian(bits_of(*far))) < 0).all()


@pytest.mark.parametrize("low", [0, 1, TOP, LAST])
def test_exponential_and_gumbel_are_quantiles(low):
    """-ln U and -ln(-ln U) with U = (word + (low + 1/2) 2^-64) 2^-64, to full relative accuracy at both ends."""
    for word in (0, *WORDS, TOP - 1, TOP, TOP + 1, LAST - 1, LAST):
        with mpmath.workdps(60):
            u = (word + (mpmath.mpf(low) + 0.5) * mpmath.mpf(2) ** -64) * mpmath.mpf(2) ** -64
            expected = -mpmath.log(u)
            e = float(exponential(bits_of((word, low)))[0])
            assert e > 0
            assert abs(e - expected) <= 1e-15 * expected
            g = float(gumbel(bits_of((word, low)))[0])
            assert math.isfinite(g)
            assert abs(g + mpmath.log(expected)) <= 1e-14 * max(1, abs(mpmath.log(expected)))


def test_exponential_and_gumbel_extremes():
    e = exponential(bits_of((0, 0), (LAST, LAST)))
    assert e[0] == pytest.approx(129 * math.log(2), rel=1e-15)
    assert e[1] == pytest.approx(2.0**-129, rel=1e-15)
    g = gumbel(bits_of((0, 0), (LAST, LAST)))
    assert g[0] == pytest.approx(-math.log(129 * math.log(2)), rel=1e-14)
    assert g[1] == pytest.approx(129 * math.log(2), rel=1e-14)


@pytest.mark.parametrize("sampler", [gaussian, exponential, gumbel])
def test_types_and_empty_input(sampler):
    assert sampler(np.zeros((0, 2), np.uint64)).shape == (0,)
    values = sampler(bits_of((5, 6), (7, 8)))
    assert values.dtype == np.float64
    assert values.shape == (2,)


LAWS = [(gaussian, stats.norm), (exponential, stats.expon), (gumbel, stats.gumbel_r)]


@pytest.mark.parametrize(("sampler", "law"), LAWS)
def test_distribution_of_many_draws(sampler, law):
    """Body (Kolmogorov-Smirnov) and both tails down to 1e-4; false alarm below 1e-9 for each of 7 p-values.

    The scale off by a tenth in either direction fails, and so does a shift of 0.02.
    """
    counter = np.zeros((300_000, 2), np.uint64)
    counter[:, 0] = np.arange(len(counter))
    values = sampler(prf_bits(bytes(range(32)), counter))
    assert distribution_p(values, law) > FALSE_ALARM
    for wrong in (values * 0.9, values * 1.1, values + 0.02):
        assert distribution_p(wrong, law) < FALSE_ALARM


def test_signs_and_magnitudes_of_gaussians_are_independent():
    counter = np.zeros((200_000, 2), np.uint64)
    counter[:, 1] = np.arange(200_000)
    values = gaussian(prf_bits(bytes(32), counter))
    table = np.histogram2d(values > 0, np.abs(values), bins=[2, [0, 0.3, 0.7, 1.2, 2, 20]])[0]
    assert stats.chi2_contingency(table).pvalue > FALSE_ALARM
