"""Discrete Laplace noise: exact law by convolution and point by point, and draws with power."""

import math
import pickle
from fractions import Fraction
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dpbeam.kernels.grid import UNITS
from dpbeam.randomness.discrete import DiscreteLaplace, laplace
from dpbeam.randomness.discrete.laplace import LARGEST_SCALE, digit_groups, group_tables
from dpbeam.randomness.discrete.tables import CHUNK, MASS_BITS, draw_tables
from tests.support.exact import ChosenBits, exact_law, item_bits, scaled, variation
from tests.support.statistics import FALSE_ALARM, distribution_p

CLAIM = 2.0**-130
SCALES = [1.0, 2.7, 9.5, 700.25, 2.0**20, 5.1 * UNITS, 2.0**45 + 0.5, 2.0**56]


def laplace_law(scale: Fraction, reach: int) -> dict[int, int]:
    return exact_law(
        lambda x: mpmath.exp(-mpmath.mpf(abs(x) * scale.denominator) / scale.numerator),
        range(-reach, reach + 1),
    )


def realised(scale: Fraction) -> dict[int, int]:
    """The law of a draw, from all pairs of lower digits and top digit; for at most one lower group."""
    shifts, tables = digit_groups(scale), group_tables(scale)
    *lower, top = (table.masses() for table in tables)
    assert len(lower) <= 1
    digits = lower[0] if lower else {0: 1 << MASS_BITS}
    law: dict[int, int] = {}
    for t, mass in top.items():
        for d, other in digits.items():
            x = (t << shifts[-1]) + d if t >= 0 else -1 - ((~t << shifts[-1]) + d)
            assert x not in law  # every integer has one representation
            law[x] = (mass * other) >> MASS_BITS
    return law


@pytest.mark.parametrize("scale", [1.0, 2.7, 20.25])
def test_full_convolution(scale):
    scale = Fraction(scale)
    law = realised(scale)
    reach = max(map(abs, law))
    assert variation(scaled(law, MASS_BITS), laplace_law(scale, reach)) <= CLAIM
    for wrong in (scale * (1 + Fraction(1, 2**60)), scale * 2):
        assert variation(scaled(law, MASS_BITS), laplace_law(wrong, reach)) > 1000 * CLAIM
    shifted = {x + 1: mass for x, mass in law.items()}
    assert variation(scaled(shifted, MASS_BITS), laplace_law(scale, reach)) > 1e-4


def test_no_minus_zero():
    """A sign and a magnitude drawn apart would give zero twice its mass."""
    scale = Fraction(9.5)
    law, exact = realised(scale), laplace_law(scale, 1000)
    assert abs(scaled(law, MASS_BITS)[0] - exact[0]) < exact[0] * 2.0**-130
    assert abs(scaled(law, MASS_BITS)[-1] - exact[1]) < exact[1] * 2.0**-130


@settings(max_examples=50)
@given(
    st.one_of(
        st.floats(1, LARGEST_SCALE), st.builds(lambda e, m: m * 2.0**e, st.integers(0, 55), st.floats(1, 2))
    ),
    st.floats(-20, 20),
)
def test_point_masses_of_every_scale(scale, place):
    """P(x) as the product of its digits' masses equals (1 - q)/(1 + q) q^|x| to 2^-105, x up to 20 scales out."""
    b = Fraction(scale)
    x = math.floor(place * scale)
    shifts, tables = digit_groups(b), group_tables(b)
    g = x if x >= 0 else -1 - x
    top = g >> shifts[-1]
    probability = Fraction(mass_of(tables[-1], top if x >= 0 else -1 - top), 1 << MASS_BITS)
    for table, (start, end) in zip(tables, pairwise(shifts)):
        probability *= Fraction(mass_of(table, (g >> start) & ((1 << (end - start)) - 1)), 1 << MASS_BITS)
    with mpmath.workdps(80):
        q = mpmath.exp(-mpmath.mpf(b.denominator) / b.numerator)
        exact = (1 - q) / (1 + q) * q ** abs(x)
        assert (
            abs(mpmath.mpf(probability.numerator) / probability.denominator / exact - 1)
            < mpmath.mpf(2) ** -105
        )


def mass_of(table, value: int) -> int:
    return cached_masses(table)[value]


_MASSES: dict[int, tuple[object, dict[int, int]]] = {}


def cached_masses(table) -> dict[int, int]:
    if id(table) not in _MASSES:
        _MASSES[id(table)] = (table, table.masses())  # holds the table, so that its id stays its own
    return _MASSES[id(table)][1]


@pytest.mark.parametrize("scale", SCALES)
def test_tables_are_small_and_draws_fit_into_64_bits(scale):
    tables, shifts = group_tables(Fraction(scale)), digit_groups(Fraction(scale))
    assert all(table.column_bits <= 14 for table in tables)
    assert (max(tables[-1].masses()) + 1) << shifts[-1] < 2**63
    assert shifts[0] == 0 and all(0 < b - a <= 9 for a, b in pairwise(shifts))


@pytest.mark.parametrize("scale", SCALES[5::2])
def test_distribution_of_many_draws(scale):
    """Body and tails; false alarm below 1e-9 for each of 7 p-values. Scale x 0.7 and 1.3 fail."""
    n = 300_000
    values = DiscreteLaplace(scale).draw(item_bits(n), n) / scale
    assert distribution_p(values, stats.laplace) > FALSE_ALARM
    for wrong in (values * 0.7, values * 1.3, values + 0.02, np.abs(values)):
        assert distribution_p(wrong, stats.laplace) < FALSE_ALARM


@pytest.mark.parametrize("scale", SCALES[:4])
def test_frequencies_of_small_scales(scale):
    """Chi-square on |x| < 4 b and the rest; false alarm below 1e-9. Scale x 0.7 and 1.3 fail."""
    n = 500_000
    values = DiscreteLaplace(scale).draw(item_bits(n), n)
    edge = max(3, int(4 * scale))
    counts = np.bincount(np.clip(values, -edge, edge) + edge, minlength=2 * edge + 1)

    def p_value(b: float) -> float:
        x = np.arange(-edge, edge + 1)
        q = math.exp(-1 / b)
        law = (1 - q) / (1 + q) * q ** np.abs(x)
        law[[0, -1]] = q**edge / (1 + q)
        return stats.chisquare(counts, law / law.sum() * n).pvalue

    assert p_value(scale) > FALSE_ALARM
    for wrong in (0.7, 0.9, 1.1, 1.3):
        assert p_value(wrong * scale) < FALSE_ALARM


@pytest.mark.parametrize("scale", SCALES[4:])
def test_low_bits_are_uniform(scale):
    n = 300_000
    values = DiscreteLaplace(scale).draw(item_bits(n, "noise/low"), n)
    for shift in range(0, math.floor(math.log2(scale)) - 18, 5):
        assert stats.chisquare(np.bincount((values >> shift) & 255, minlength=256)).pvalue > FALSE_ALARM


def test_a_missing_group_of_digits_is_seen(monkeypatch):
    n, scale = 100_000, 5.1 * UNITS
    true = group_tables(Fraction(scale))
    nothing = type(true[0]).of([1 << MASS_BITS], 0)
    for i in range(len(true)):
        monkeypatch.setattr(laplace, "group_tables", lambda _, i=i: (*true[:i], nothing, *true[i + 1 :]))
        values = DiscreteLaplace(scale).draw(item_bits(n), n)
        start = digit_groups(Fraction(scale))[i]
        bits = stats.chisquare(np.bincount((values >> start) & 255, minlength=256)).pvalue
        assert min(bits, distribution_p(values / scale, stats.laplace)) < FALSE_ALARM


def test_a_draw_belongs_to_its_item():
    n, law = CHUNK + 1000, DiscreteLaplace(5.1 * UNITS)
    bits = item_bits(n)
    values = law.draw(bits, n)
    assert values.dtype == np.int64
    order = np.random.default_rng(2).permutation(n)[:2000]
    again = pickle.loads(pickle.dumps(law)).draw(lambda use, rows: bits(use, order[rows]), 2000)
    assert (again == values[order]).all()


@pytest.mark.parametrize("scale", [1.0, 77.7, 5.1 * UNITS, 2.0**56])
@pytest.mark.parametrize("fraction_bits", [1, 9, 46, 48])
def test_noise_on_a_finer_grid_is_added_before_rounding_down(scale, fraction_bits):
    """floor(noise + fraction) with noise on multiples of 2^-f, in Python integers from the same tables."""
    n = 3000
    law, bits = DiscreteLaplace(scale, fraction_bits), item_bits(n)
    fraction = np.random.default_rng(4).integers(0, 1 << fraction_bits, n)
    fraction[:2] = 0, (1 << fraction_bits) - 1
    fine = Fraction(scale) * 2**fraction_bits
    *lower, top = (v.tolist() for v in draw_tables(group_tables(fine), bits, slice(0, n)))
    shifts = digit_groups(fine)
    exact = []
    for i, t in enumerate(top):
        g = (t if t >= 0 else -1 - t) << shifts[-1]
        g += sum(digits[i] << shift for digits, shift in zip(lower, shifts))
        exact.append(g if t >= 0 else -1 - g)
    assert law.draw(bits, n, fraction).tolist() == [
        x + int(c) >> fraction_bits for x, c in zip(exact, fraction)
    ]
    assert law.draw(bits, n).tolist() == [x >> fraction_bits for x in exact]
    if fine <= LARGEST_SCALE:
        assert DiscreteLaplace(fine).draw(bits, n).tolist() == exact


def test_ties_are_decided_by_the_further_word():
    law = DiscreteLaplace(5.0)
    table = group_tables(Fraction(5))[0]
    column = 300
    cut = int(table.rest[column][0]) << 64 | int(table.rest[column][1])
    bits = ChosenBits(
        2, {0: dict.fromkeys(range(2), int(table.first[column]) << 64), 1: {0: cut - 1, 1: cut}}
    )
    size = 1 << table.column_bits
    assert law.draw(bits, 2).tolist() == [int(table.values[column]), int(table.values[column + size])]
    assert max(use for use, _ in bits.asked) < law.uses


@pytest.mark.parametrize("scale", [0.5, -1, math.nan, math.inf, 2.0**57])
def test_scale_out_of_range_is_refused(scale):
    with pytest.raises(ValueError, match="scale must lie between 1 and 2\\^56 grid units, got"):
        DiscreteLaplace(scale)
    with pytest.raises(ValueError, match="fraction_bits must lie between 0 and 48, got 49"):
        DiscreteLaplace(5.0, 49)
