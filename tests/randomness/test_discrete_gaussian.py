"""Discrete Gaussian noise: exact total variation, the bound for every sigma, and draws with power."""

import math
import pickle
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpbeam.kernels.grid import UNITS
from dpbeam.randomness.discrete import DiscreteGaussian, gaussian
from dpbeam.randomness.discrete.gaussian import (
    LARGEST_SIGMA,
    SMOOTHING,
    Part,
    gaussian_parts,
    half_width,
    part_table,
)
from dpbeam.randomness.discrete.tables import CHUNK, MASS_BITS, AliasTable, draw_tables, gaussian_masses
from tests.support.exact import ChosenBits, convolve, gaussian_law, item_bits, scaled, variation
from tests.support.statistics import FALSE_ALARM, distribution_p, variance_p

CLAIM = 2.0**-130
SIGMAS = [1.0, 3.3, 511.9, 512.0, 1024.0, 4000.7, 2.0**20, 3.73 * UNITS, 19.3 * UNITS, 2.0**45 + 0.5, 2.0**58]


def law_of_parts(parts) -> dict[int, int]:
    return convolve([scaled(part_table(p.variance).masses(), MASS_BITS, p.shift) for p in parts])


def distance(parts, variance: Fraction) -> float:
    """Exact total variation of the sum of these parts' tables from the discrete Gaussian of a variance."""
    return variation(law_of_parts(parts), gaussian_law(variance, half_width(variance)))


def smoothed(parts) -> mpmath.mpf:
    """The bound of docs/explanation/noise.md for two parts: e^(-2 pi^2 kappa) times the mean |cos|, at last 2/pi."""
    fine, coarse = (p.variance * 4**p.shift for p in parts)
    kappa = fine * coarse / (fine + coarse) / 4 ** parts[1].shift
    with mpmath.workdps(50):
        return mpmath.exp(-2 * mpmath.pi**2 * kappa.numerator / kappa.denominator) * 2 / mpmath.pi


@pytest.mark.parametrize("sigma", [1.0, 2.5, 37.0, 511.5])
def test_one_table_is_exact_up_to_rounding_and_tail(sigma):
    parts = gaussian_parts(Fraction(sigma))
    assert [p.shift for p in parts] == [0]
    assert distance(parts, Fraction(sigma) ** 2) <= 2.0**-143


TWO_TABLES = Fraction(534.56789)  # a sigma


def test_full_convolution_of_two_tables():
    """The distance is below the claim, and is the smoothing term to within 1 %: nothing else adds up."""
    parts = gaussian_parts(TWO_TABLES)
    assert len(parts) == 2
    off = distance(parts, TWO_TABLES**2)
    assert off <= CLAIM
    assert off == pytest.approx(float(smoothed(parts)), rel=0.01)


def test_full_convolution_of_three_tables():
    """Three lattices, with steps of 2^3 to keep the convolution small."""
    parts = [Part(SMOOTHING * 4**3, 0), Part(SMOOTHING * 4**3, 3), Part(Fraction(12**2), 6)]
    total = sum(p.variance * 4**p.shift for p in parts)
    assert distance(parts, total) <= CLAIM


def faulty_parts(fault: str, sigma: Fraction) -> list[Part]:
    fine, coarse = gaussian_parts(sigma)
    return {
        "no coarse part": [fine],
        "no fine part": [coarse],
        "variance not split": [fine, Part(sigma**2 / 4**coarse.shift, coarse.shift)],
        "coarse lattice twice as wide": [fine, Part(coarse.variance / 4, coarse.shift + 1)],
        "too little smoothing": [
            Part(fine.variance / 4, 0),
            Part(coarse.variance + fine.variance * 3 / 4 / 4**coarse.shift, coarse.shift),
        ],
        "variance off by 2^-60": [fine, Part(coarse.variance * (1 + Fraction(1, 2**60)), coarse.shift)],
    }[fault]


@pytest.mark.parametrize(
    "fault",
    [
        "no coarse part",
        "no fine part",
        "variance not split",
        "coarse lattice twice as wide",
        "too little smoothing",
        "variance off by 2^-60",
    ],
)
def test_faulty_splits_break_the_claim(fault):
    assert distance(faulty_parts(fault, TWO_TABLES), TWO_TABLES**2) > 1000 * CLAIM


@pytest.mark.parametrize("level", [0, 1])
def test_a_table_off_by_one_lattice_step_breaks_the_claim(level, monkeypatch):
    true = part_table

    def shifted(variance):
        reach = half_width(variance)
        if variance == gaussian_parts(TWO_TABLES)[level].variance:
            return AliasTable.of(gaussian_masses(variance, reach), 1 - reach)
        return true(variance)

    monkeypatch.setitem(globals(), "part_table", shifted)
    assert distance(gaussian_parts(TWO_TABLES), TWO_TABLES**2) > 1e-4


sigmas = st.one_of(
    st.integers(1, LARGEST_SIGMA),
    st.floats(1, LARGEST_SIGMA),
    st.builds(
        lambda e, m: Fraction(m) * 2**e, st.integers(0, 105), st.floats(1, 2)
    ),  # with fraction_bits = 48
)


@given(sigmas)
def test_the_bound_holds_for_every_sigma(sigma):
    """The proof's sum, term by term with 50 digits: smoothing of every lattice, rounding and tails of every table."""
    sigma = Fraction(sigma)
    parts = gaussian_parts(sigma)
    assert sum(p.variance * 4**p.shift for p in parts) == sigma**2  # exactly this sigma
    assert parts[0].shift == 0
    with mpmath.workdps(50):
        bound = mpmath.mpf(0)
        below = Fraction(0)
        for part in parts:
            step = 4**part.shift
            if below:
                kappa = below * part.variance / (below + part.variance * step)
                theta = 2 * mpmath.exp(-2 * mpmath.pi**2 * kappa.numerator / kappa.denominator)
                bound += 2 * theta / (1 - 2 * theta)
            reach = half_width(part.variance)
            assert 2 * reach + 1 <= 1 << 15
            bound += mpmath.mpf(2 * reach + 1) / 2**MASS_BITS
            tail = mpmath.erfc(
                reach / mpmath.sqrt(2 * mpmath.mpf(part.variance.numerator) / part.variance.denominator)
            )
            bound += tail + mpmath.mpf(10) ** -60
            below += part.variance * step
        assert bound <= CLAIM
    if sigma <= LARGEST_SIGMA:
        assert sum(half_width(p.variance) << p.shift for p in parts) < 2**63


def test_tables_of_all_sigmas_but_their_own_are_few_and_shared():
    variances = {p.variance for e in range(106) for p in gaussian_parts(Fraction(1.7 * 2**e))[:-1]}
    assert len(variances) <= 9
    coarsest = max(2 * half_width(gaussian_parts(Fraction(s))[-1].variance) for s in SIGMAS)
    assert coarsest < 15_000
    assert part_table(Fraction(39, 8) * 4**9) is part_table(Fraction(39, 8) * 4**9)


@pytest.mark.parametrize(
    "variance", sorted({p.variance for s in SIGMAS for p in gaussian_parts(Fraction(s))})[::5]
)
def test_tables_in_use_are_the_definition(variance):
    """Read back from the columns: a shift, a wrong scale or a swapped column would show at 2^-60 of what it is."""
    law = scaled(part_table(variance).masses(), MASS_BITS)
    assert variation(law, gaussian_law(variance, half_width(variance))) <= 2.0**-144


@pytest.mark.parametrize("sigma", SIGMAS[6::2])
def test_distribution_of_many_draws(sigma):
    """Body, tails and variance; false alarm below 1e-9 for each of 8 p-values. Scale x 0.7 and 1.3 fail."""
    n = 300_000
    values = DiscreteGaussian(sigma).draw(item_bits(n), n) / sigma
    assert distribution_p(values, stats.norm) > FALSE_ALARM
    assert variance_p(values, 1.0) > FALSE_ALARM
    for wrong in (values * 0.7, values * 1.3, values + 0.02):
        assert distribution_p(wrong, stats.norm) < FALSE_ALARM
    for scale in (0.7, 0.98, 1.02, 1.3):
        assert variance_p(values * scale, 1.0) < FALSE_ALARM


@pytest.mark.parametrize("sigma", [1.0, 3.3, 40.0])
def test_frequencies_of_small_sigmas(sigma):
    """Chi-square against the exact law; false alarm below 1e-9, and sigma x 0.7 and x 1.3 fail."""
    n = 500_000
    values = DiscreteGaussian(sigma).draw(item_bits(n), n)
    law = {
        x: p / 2.0**400
        for x, p in gaussian_law(Fraction(sigma) ** 2, half_width(Fraction(sigma) ** 2)).items()
    }
    assert frequency_p(values, law) > FALSE_ALARM
    for scale in (0.7, 1.3):
        other = gaussian_law(Fraction(sigma * scale) ** 2, half_width(Fraction(sigma) ** 2))
        assert frequency_p(values, {x: p / 2.0**400 for x, p in other.items()}) < FALSE_ALARM


def frequency_p(values: np.ndarray, law: dict[int, float]) -> float:
    """Chi-square p-value over values expected at least 20 times, the others taken together."""
    n = len(values)
    common = [x for x, p in law.items() if p * n >= 20]
    counts = [int((values == x).sum()) for x in common]
    expected = [law[x] * n for x in common]
    counts.append(n - sum(counts))
    expected.append(max(n - sum(expected), 1e-300))
    return float(stats.chisquare(counts, np.array(expected) * n / sum(expected)).pvalue)


@pytest.mark.parametrize("sigma", SIGMAS[6::2])
def test_low_bits_are_uniform_and_independent(sigma):
    """Eight bits at every lattice boundary and between; false alarm below 1e-9 for each of at most 12."""
    n = 300_000
    values = DiscreteGaussian(sigma).draw(item_bits(n, "noise/low"), n)
    highest = math.floor(math.log2(sigma)) - 10
    for shift in range(0, highest, 5):
        assert stats.chisquare(np.bincount((values >> shift) & 255, minlength=256)).pvalue > FALSE_ALARM
    table = np.histogram2d(values & 15, values > 0, bins=[np.arange(17), [0, 0.5, 1]])[0]
    assert stats.chi2_contingency(table).pvalue > FALSE_ALARM


@pytest.mark.parametrize("left_out", [0, 1, 2, 3])
def test_a_missing_level_is_seen_in_the_draws(left_out, monkeypatch):
    """Without the coarsest part the variance is wrong; without a finer one some bits are constant."""
    sigma, n = Fraction(3.73 * UNITS), 100_000
    parts = gaussian_parts(sigma)
    assert len(parts) == 4
    monkeypatch.setattr(gaussian, "gaussian_parts", lambda _: (*parts[:left_out], *parts[left_out + 1 :]))
    values = DiscreteGaussian(sigma).draw(item_bits(n), n)
    body = distribution_p(values / float(sigma), stats.norm)
    start = parts[left_out].shift
    low = stats.chisquare(np.bincount((values >> start) & 255, minlength=256)).pvalue
    assert min(body, low) < FALSE_ALARM
    assert (body < FALSE_ALARM) == (left_out == 3)


def test_items_and_labels_are_independent():
    n, sigma = 200_000, 4.0 * UNITS
    first = DiscreteGaussian(sigma).draw(item_bits(n), n) / sigma
    second = DiscreteGaussian(sigma).draw(item_bits(n, "noise/round 2"), n) / sigma
    for a, b in ((first, second), (first[1:], first[:-1])):
        assert variance_p(a + b, 2.0) > FALSE_ALARM / 2
        assert variance_p(a + a, 2.0) < FALSE_ALARM


@pytest.mark.parametrize("sigma", [700.0, 4.0 * UNITS, 2.0**55])
def test_a_draw_belongs_to_its_item(sigma):
    """The same words give the same noise in any order, subset and chunk, and after pickling."""
    n = CHUNK + 5000
    law = DiscreteGaussian(sigma)
    bits = item_bits(n)
    values = law.draw(bits, n)
    assert values.dtype == np.int64
    order = np.random.default_rng(1).permutation(n)[: CHUNK + 100]
    again = pickle.loads(pickle.dumps(law)).draw(lambda use, rows: bits(use, order[rows]), len(order))
    assert (again == values[order]).all()
    assert law.draw(bits, 0).shape == (0,)


def test_only_the_uses_announced_are_read():
    for sigma in (5.0, 4.0 * UNITS, 2.0**58):
        law, asked, n = DiscreteGaussian(sigma), set(), 3 * CHUNK
        bits = item_bits(n)

        def watched(use, rows, asked=asked, bits=bits):
            asked.add(use)
            return bits(use, rows)

        law.draw(watched, n)
        assert asked <= set(range(law.uses))
        assert max(asked) >= len(gaussian_parts(law.sigma)) // 4


def test_ties_are_decided_by_the_further_word():
    """The first 32 bits at a column's cut: a further word one below the cut takes the column, at the cut the alias."""
    law = DiscreteGaussian(40.0)
    table = part_table(Fraction(1600))
    column = 700
    high, low = map(int, table.rest[column])
    cut = high << 64 | low
    first = int(table.first[column]) << 0  # word 0: the low half of the first 64 bits
    bits = ChosenBits(3, {0: dict.fromkeys(range(3), first << 64), 1: {0: cut - 1, 1: cut, 2: cut + 1}})
    values = law.draw(bits, 3).tolist()
    size = 1 << table.column_bits
    assert values == [int(table.values[column]), *[int(table.values[column + size])] * 2]
    assert bits.asked == [(0, [0, 1, 2]), (1, [0, 1, 2])]


def test_the_largest_draws_fit_into_64_bits():
    """Every part at its end, for the largest sigma."""
    law = DiscreteGaussian(LARGEST_SIGMA)
    total = sum(half_width(p.variance) << p.shift for p in gaussian_parts(law.sigma))
    assert 14 * LARGEST_SIGMA < total < 2**62
    assert part_table(gaussian_parts(law.sigma)[-1].variance).values.max() < 2**31 - 1


def test_parameters_pickle_and_tables_do_not():
    law = DiscreteGaussian(3.73 * UNITS)
    law.draw(item_bits(10), 10)
    assert len(pickle.dumps(law)) < 300
    assert pickle.loads(pickle.dumps(law)) == law
    assert law.sigma == Fraction(3.73 * UNITS)
    assert DiscreteGaussian(7).sigma == 7


@pytest.mark.parametrize("sigma", [1.0, 77.7, 4000.0, 4.0 * UNITS, 2.0**58])
@pytest.mark.parametrize("fraction_bits", [1, 9, 46, 48])
def test_noise_on_a_finer_grid_is_added_before_rounding_down(sigma, fraction_bits):
    """floor(noise + fraction) with noise on multiples of 2^-f, in Python integers from the same tables."""
    n = 3000
    law, bits = DiscreteGaussian(sigma, fraction_bits), item_bits(n)
    fraction = np.random.default_rng(4).integers(0, 1 << fraction_bits, n)
    fraction[:2] = 0, (1 << fraction_bits) - 1
    assert sum(p.variance * 4**p.shift for p in law.parts) == (Fraction(sigma) * 2**fraction_bits) ** 2
    exact = [0] * n
    tables = [part_table(p.variance) for p in law.parts]
    for part, values in zip(law.parts, draw_tables(tables, bits, slice(0, n))):
        exact = [x + (int(v) << part.shift) for x, v in zip(exact, values)]
    assert law.draw(bits, n, fraction).tolist() == [
        x + int(c) >> fraction_bits for x, c in zip(exact, fraction)
    ]
    assert law.draw(bits, n).tolist() == [x >> fraction_bits for x in exact]
    assert law.draw(bits, n, fraction).dtype == np.int64
    fine = sigma * 2**fraction_bits
    if fine <= LARGEST_SIGMA:  # the same noise as on the grid of the finer unit
        assert DiscreteGaussian(fine).draw(bits, n).tolist() == exact


def test_fractions_out_of_range_are_refused():
    law, bits = DiscreteGaussian(5.0, 3), item_bits(2)
    for fraction in (np.array([0, 8]), np.array([-1, 0])):
        with pytest.raises(ValueError, match="fraction must lie in \\[0, 2\\^3\\)"):
            law.draw(bits, 2, fraction)
    for fraction in (np.zeros(3, np.int64), np.zeros(2), np.zeros(2, np.int32)):
        with pytest.raises(ValueError, match="fraction must be int64 of shape"):
            law.draw(bits, 2, fraction)
    with pytest.raises(ValueError, match="fraction must lie in \\[0, 2\\^0\\)"):
        DiscreteGaussian(5.0).draw(bits, 2, np.array([0, 1]))
    for bad in (-1, 49):
        with pytest.raises(ValueError, match="fraction_bits must lie between 0 and 48, got"):
            DiscreteGaussian(5.0, bad)


@pytest.mark.parametrize("sigma", [0, 0.99, -5, 2.0**58 * 1.01, math.inf, math.nan])
def test_sigma_out_of_range_is_refused(sigma):
    with pytest.raises(ValueError, match="sigma must lie between 1 and 2\\^58 grid units, got"):
        DiscreteGaussian(sigma)
