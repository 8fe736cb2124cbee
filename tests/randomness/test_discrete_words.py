"""Keyed words and exact coins."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpbeam.randomness import RunKey, prf_bits
from dpbeam.randomness.discrete import KeyedBits, coins
from dpbeam.randomness.discrete.words import below, exp_fixed
from tests.support.exact import item_bits
from tests.support.statistics import FALSE_ALARM, binomial_p

words_128 = st.one_of(
    st.integers(0, 2**128 - 1),
    st.sampled_from([0, 1, 2**64 - 1, 2**64, 2**64 + 1, 2**128 - 2**64, 2**128 - 1]),
)
probabilities = st.one_of(
    st.floats(0, 1),
    st.fractions(0, 1),
    words_128.map(lambda word: Fraction(word, 2**128)),
    words_128.map(lambda word: Fraction(2 * word + 1, 2**129)),
)


def rows(numbers) -> np.ndarray:
    return np.array([(n >> 64, n & (2**64 - 1)) for n in numbers], np.uint64).reshape(-1, 2)


def test_words_are_the_prf_of_label_use_and_fingerprint():
    run = RunKey.insecure_fixed("words")
    fingerprint = np.random.default_rng(1).integers(0, 2**64, (50, 2), np.uint64)
    bits = KeyedBits(run, "noise/round 2", fingerprint)
    assert len(bits) == 50
    for use in (0, 1, 9):
        expected = prf_bits(run.derive(f"noise/round 2/use {use}"), fingerprint)
        assert (bits(use, slice(0, 50)) == expected).all()
        some = np.array([40, 3, 3])
        assert (bits(use, some) == expected[some]).all()
    other = KeyedBits(run, "noise/round 3", fingerprint)
    assert (bits(0, slice(0, 50)) != other(0, slice(0, 50))).any(axis=1).all()
    assert (bits(0, slice(0, 50)) != bits(1, slice(0, 50))).any(axis=1).all()


@given(st.lists(st.tuples(words_128, words_128), max_size=8))
def test_comparison_is_that_of_128_bit_integers(pairs):
    smaller = below(rows([a for a, _ in pairs]), rows([b for _, b in pairs]))
    assert smaller.tolist() == [a < b for a, b in pairs]


@given(probabilities, st.lists(words_128, max_size=4))
def test_coins_show_true_for_as_many_words_as_the_probability_says_rounded_down(probability, words):
    threshold = math.floor(Fraction(probability) * 2**128)
    words = [*words, *(word for word in (threshold - 1, threshold) if 0 <= word < 2**128)]
    assert coins(rows(words), probability).tolist() == [word < threshold for word in words]


def test_only_a_probability_of_one_is_certain():
    extremes = rows([0, 2**128 - 1])
    assert coins(extremes, 1).tolist() == coins(extremes, 1.0).tolist() == [True, True]
    assert coins(extremes, 0).tolist() == coins(extremes, 5e-324).tolist() == [False, False]
    assert coins(extremes, 1 - Fraction(1, 10**60)).tolist() == [True, False]
    assert coins(rows([]), 1).shape == coins(rows([]), 0.5).shape == (0,)


@pytest.mark.parametrize("probability", [0.25, Fraction(1, 3)])
def test_frequencies_of_coins(probability):
    """False alarm below 1e-9; a probability a tenth larger fails."""
    n = 100_000
    shown = int(coins(item_bits(n)(0, slice(0, n)), probability).sum())
    assert binomial_p(shown, n, float(probability)) > FALSE_ALARM
    assert binomial_p(shown, n, float(probability) * 1.1) < FALSE_ALARM


@pytest.mark.parametrize("probability", [-0.1, 1.5, math.nan, Fraction(-1, 10**60), 1 + Fraction(1, 10**60)])
def test_what_is_no_probability_is_refused(probability):
    with pytest.raises(ValueError, match=r"a probability must lie in \[0, 1\], got"):
        coins(rows([5]), probability)


@pytest.mark.parametrize("bits", [128, 256])
@pytest.mark.parametrize(
    "x", [Fraction(0), Fraction(1, 10**40), Fraction(1, 3), Fraction(87), Fraction(700, 3)]
)
def test_fixed_point_exponential(bits, x):
    with mpmath.workdps(150):
        exact = mpmath.ldexp(mpmath.exp(-mpmath.mpf(x.numerator) / x.denominator), bits)
        assert abs(exp_fixed(x, bits) - exact) <= 1
