"""Alias tables: the law read back from the columns, decisions at every boundary, masses against 60 digits."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbeam.randomness.discrete.tables import (
    CHUNK,
    MASS_BITS,
    ONE,
    AliasTable,
    chunks,
    draw_tables,
    gaussian_masses,
    geometric_weights,
    normalise,
    uses_of,
)
from tests.support.exact import PRECISION, ChosenBits, exact_law, gaussian_law, item_bits, scaled, variation

REST = MASS_BITS - 32


def draw_numbers(table: AliasTable, numbers: list[int]) -> tuple[list[int], list[int]]:
    """Values of uniform numbers of 160 bits, and which of them needed more than their first 32."""
    asked: list[int] = []

    def more(positions):
        asked.extend(positions.tolist())
        low = [numbers[i] & ((1 << REST) - 1) for i in positions]
        return np.array([(n >> 64, n & (2**64 - 1)) for n in low], np.uint64)

    first = np.array([n >> REST for n in numbers], np.uint32)
    return table.draw(first, more).tolist(), asked


weights = st.lists(st.one_of(st.integers(0, 2**200), st.just(0), st.just(1)), min_size=1, max_size=40)


@given(weights.filter(any), st.integers(-50, 50))
def test_a_table_has_exactly_the_masses_it_was_given(weights, lowest):
    masses = normalise(weights, 0)
    table = AliasTable.of(masses, lowest)
    assert table.masses() == {lowest + i: mass for i, mass in enumerate(masses) if mass}


@given(weights.filter(any))
@settings(max_examples=50)
def test_every_boundary_is_decided_by_all_160_bits(weights):
    """Below a column's cut its own value, from the cut on the alias; ties of the first 32 bits read the rest."""
    table = AliasTable.of(normalise(weights, 0), 0)
    k = table.column_bits
    width = ONE >> k
    numbers, expected = [], []
    for i in range(1 << k):
        high, low = map(int, table.rest[i])
        cut = int(table.first[i]) << REST | high << 64 | low
        for number in (
            i * width,
            cut - 1,
            cut,
            cut + 1,
            cut ^ 1,
            cut | ((1 << REST) - 1),
            (i + 1) * width - 1,
        ):
            if i * width <= number < (i + 1) * width:
                numbers.append(number)
                expected.append(int(table.values[i if number < cut else i + (1 << k)]))
    values, asked = draw_numbers(table, numbers)
    assert values == expected
    assert asked == [i for i, n in enumerate(numbers) if n >> REST == int(table.first[n // width])]
    assert asked


def test_a_uniform_grid_of_numbers_realises_the_masses():
    """All 2^8 equally spaced numbers of a law on multiples of 2^-8: exact frequencies through `draw`."""
    counts = [100, 0, 7, 1, 64, 84]
    table = AliasTable.of([c << (MASS_BITS - 8) for c in counts], -2)
    values, _ = draw_numbers(table, [i << (MASS_BITS - 8) for i in range(256)])
    assert np.bincount(np.array(values) + 2, minlength=6).tolist() == counts


def test_impossible_masses_are_refused():
    for masses in ([ONE - 1], [ONE + 1], [ONE + 1, -1]):
        with pytest.raises(ValueError, match="masses must not be negative and must sum to 2\\^160"):
            AliasTable.of(masses, 0)
    with pytest.raises(ValueError, match="a table has at most 2\\^16 values, got 65537"):
        AliasTable.of([ONE] + [0] * 65536, 0)


@pytest.mark.parametrize(
    ("variance", "reach"), [(Fraction(9, 4), 22), (Fraction(39, 8) * 4**4, 510), (Fraction(10**7, 3333), 800)]
)
def test_gaussian_masses_are_the_definition_rounded_down(variance, reach):
    """Each mass within one step of 2^-160 of the exact one; the middle takes what the others lost."""
    masses = gaussian_masses(variance, reach)
    exact = gaussian_law(variance, reach)
    assert sum(masses) == ONE
    assert masses == masses[::-1]
    step = 1 << (PRECISION - MASS_BITS)
    for x in range(-reach, reach + 1):
        error = (masses[x + reach] << (PRECISION - MASS_BITS)) - exact[x]
        if x:
            assert -1.001 * step <= error <= 0.001 * step
        else:
            assert 0 <= error <= 2 * reach * step
    table = AliasTable.of(masses, -reach)
    assert variation(scaled(table.masses(), MASS_BITS), exact) <= (2 * reach + 1) * 2.0**-MASS_BITS
    shifted = AliasTable.of(masses, -reach + 1)  # off by one lattice step
    assert variation(scaled(shifted.masses(), MASS_BITS), exact) > 1e-3
    wider = AliasTable.of(gaussian_masses(variance * Fraction(10**12 + 1, 10**12), reach), -reach)
    assert variation(scaled(wider.masses(), MASS_BITS), exact) > 1e-13


@pytest.mark.parametrize(
    ("rate", "count"), [(Fraction(1, 7), 800), (Fraction(1, 2**40), 512), (Fraction(2), 60)]
)
def test_geometric_weights_are_powers(rate, count):
    masses = normalise(geometric_weights(rate, count), 0)
    exact = exact_law(lambda x: mpmath.exp(-mpmath.mpf(rate.numerator) * x / rate.denominator), range(count))
    assert variation(scaled(dict(enumerate(masses)), MASS_BITS), exact) <= count * 2.0**-MASS_BITS


def test_tables_share_words_and_ties_have_words_of_their_own():
    """Table i reads word i mod 4 of use i div 4; its ties read use (first words) + i, whatever the slice."""
    tables = [AliasTable.of([1 << 159, 1 << 159], 0)] * 5  # two columns without own mass beyond the first bit
    assert uses_of(5) == 2 + 5
    bits = item_bits(1000)
    uses = []

    def watched(use, rows):
        uses.append(use)
        return bits(use, rows)

    drawn = list(draw_tables(tables, watched, slice(100, 900)))
    assert set(uses) <= set(range(uses_of(5))) and {0, 1} <= set(uses)
    for i, values in enumerate(drawn):
        words = bits(i // 4, slice(100, 900)).view(np.uint32).reshape(-1, 4)[:, i % 4]
        assert (values == words >> 31).all()
    forced = list(draw_tables(tables, lambda use, rows: np.zeros_like(bits(use, rows)), slice(0, 10)))
    assert all((values == 0).all() for values in forced)


def test_a_tie_among_draws_from_one_table_reads_the_word_of_its_own():
    """Five draws of one table at once, all of which tie for item 500: words of every other one sit below the cut."""
    table, column = AliasTable.of(gaussian_masses(Fraction(50), 110), -110), 37
    first, cut = int(table.first[column]), int(table.rest[column][0]) << 64 | int(table.rest[column][1])
    twice = first | first << 32
    bits = ChosenBits(1000, {0: {500: twice << 64 | twice}, 1: {500: first << 64}})
    bits.uses.update({2 + i: {500: cut - i % 2} for i in range(5)})
    for rows in (slice(100, 900), np.arange(900)[100:]):
        drawn = [values[400] for values in draw_tables([table] * 5, bits, rows)]
        assert drawn == [table.values[column + (i % 2 == 0) * (1 << table.column_bits)] for i in range(5)]
        some = [values[400] for values in draw_tables([table] * 5, bits, rows, range(1, 4))]
        assert some == drawn[1:4]


@pytest.mark.parametrize("side", [-1, 0])
def test_a_tie_reads_the_word_of_its_item_and_table(side):
    """Item 500 of a slice that starts at 100 ties in all five tables; only the right further words sit at the cut."""
    tables = [AliasTable.of(gaussian_masses(Fraction(50 + i), 110), -110) for i in range(5)]
    column = 37
    firsts = [int(table.first[column]) for table in tables]
    cuts = [int(table.rest[column][0]) << 64 | int(table.rest[column][1]) for table in tables]
    low, high = (firsts[0] | firsts[1] << 32), (firsts[2] | firsts[3] << 32)  # native order of the four words
    bits = ChosenBits(1000, {0: {500: low << 64 | high}, 1: {500: firsts[4] << 64}})
    bits.uses.update({2 + i: {500: cut + side} for i, cut in enumerate(cuts)})
    drawn = list(draw_tables(tables, bits, slice(100, 900)))
    for table, values in zip(tables, drawn):
        expected = table.values[column + (side == 0) * (1 << table.column_bits)]
        assert values[400] == expected
    for i in range(5):
        assert any(use == 2 + i and 500 in rows for use, rows in bits.asked)
    assert all(len(rows) < 10 for use, rows in bits.asked if use >= 2)


def test_chunks_cover_everything_in_order():
    for n in (0, 1, CHUNK, CHUNK + 1, 3 * CHUNK - 1):
        covered = np.concatenate([np.arange(n)[rows] for rows in chunks(n)] or [np.arange(0)])
        assert covered.tolist() == list(range(n))
