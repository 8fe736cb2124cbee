"""Keyed words and exact coins."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpbeam.randomness import RunKey, prf_bits
from dpbeam.randomness.discrete import Coins, KeyedBits, bernoulli, exponential_threshold, threshold_128
from dpbeam.randomness.discrete.words import CERTAIN, below, exp_fixed
from tests.support.exact import item_bits
from tests.support.statistics import FALSE_ALARM, binomial_p

words_128 = st.one_of(
    st.integers(0, 2**128 - 1),
    st.sampled_from([0, 1, 2**64 - 1, 2**64, 2**64 + 1, 2**128 - 2**64, 2**128 - 1]),
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


@given(words_128, st.one_of(words_128, st.just(CERTAIN)))
def test_a_coin_shows_true_below_its_threshold_and_nowhere_else(word, threshold):
    assert bernoulli(rows([word]), Coins.of([threshold])).tolist() == [word < threshold]
    if threshold:
        assert bernoulli(rows([threshold - 1]), Coins.of([threshold])).all()
    if threshold < CERTAIN:
        assert not bernoulli(rows([threshold]), Coins.of([threshold])).any()


def test_certain_and_impossible_coins():
    extremes = rows([0, 2**128 - 1])
    assert bernoulli(extremes, Coins.of([CERTAIN, CERTAIN])).all()
    assert not bernoulli(extremes, Coins.of([0, 0])).any()


def test_coins_by_index_and_their_frequencies():
    """Items share a public sequence of probabilities; false alarm below 1e-9 for each of four counts."""
    shared = Coins.of([threshold_128(p, "down") for p in (0.0, 0.25, Fraction(1, 3), 1)])
    n = 200_000
    index = np.arange(n) % 4
    shown = bernoulli(item_bits(n)(0, slice(0, n)), shared.take(index))
    counts = np.bincount(index[shown], minlength=4)
    assert counts[0] == 0 and counts[3] == n // 4
    for i, p in ((1, 0.25), (2, 1 / 3)):
        assert binomial_p(int(counts[i]), n // 4, p) > FALSE_ALARM
        assert binomial_p(int(counts[i]), n // 4, p * 1.1) < FALSE_ALARM


def test_coins_refuse_what_is_no_probability():
    for threshold in (-1, CERTAIN + 1):
        with pytest.raises(ValueError, match=r"a coin's threshold must lie in \[0, 2\^128\]"):
            Coins.of([threshold])
    with pytest.raises(ValueError, match="2 words for 1 coins"):
        bernoulli(rows([1, 2]), Coins.of([5]))
    for p in (-0.1, 1.5, float("nan")):
        with pytest.raises(ValueError, match=r"a probability must lie in \[0, 1\], got"):
            threshold_128(p, "down")
    with pytest.raises(ValueError, match="rounding must be 'down' or 'up', got 'nearest'"):
        threshold_128(0.5, "nearest")
    for x in (-1, float("nan")):
        with pytest.raises(ValueError, match="exp\\(-x\\) is a probability for x >= 0 only"):
            exponential_threshold(x, "up")


@given(st.one_of(st.floats(0, 1), st.fractions(0, 1)))
def test_thresholds_enclose_the_probability(p):
    down, up = threshold_128(p, "down"), threshold_128(p, "up")
    assert Fraction(down, CERTAIN) <= Fraction(p) <= Fraction(up, CERTAIN)
    assert up - down <= 1
    assert (up == down) == (Fraction(p) * CERTAIN == int(Fraction(p) * CERTAIN))


@given(st.one_of(st.floats(0, 150), st.fractions(0, 150), st.floats(0, 1e-30), st.just(0)))
def test_exponential_thresholds_enclose_the_exact_number(x):
    x = Fraction(x)
    with mpmath.workdps(120):
        exact = mpmath.exp(-mpmath.mpf(x.numerator) / x.denominator) * CERTAIN
        down, up = exponential_threshold(x, "down"), exponential_threshold(x, "up")
        assert 0 <= down <= exact <= up <= CERTAIN
        assert up - down <= 3


@pytest.mark.parametrize("bits", [128, 256])
@pytest.mark.parametrize(
    "x", [Fraction(0), Fraction(1, 10**40), Fraction(1, 3), Fraction(87), Fraction(700, 3)]
)
def test_fixed_point_exponential(bits, x):
    with mpmath.workdps(150):
        exact = mpmath.ldexp(mpmath.exp(-mpmath.mpf(x.numerator) / x.denominator), bits)
        assert abs(exp_fixed(x, bits) - exact) <= 1
