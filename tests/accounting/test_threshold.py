"""Thresholds for novel items against high precision and simulation."""

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dpbeam.accounting import threshold as threshold_module
from dpbeam.accounting.noise import NoiseSpec
from dpbeam.accounting.threshold import item_allowance, novel_threshold


def quantile(delta, t):
    """z_t with P(max of t standard normals > z_t) = delta, as thresholds have it."""
    return NoiseSpec("gaussian", 1.0).quantile(item_allowance(delta, t))


def exact_quantile(delta, t):
    """Root of ln Q(z) = ln(1 - (1 - delta)^(1/t)) in 80 digits."""
    with mp.workdps(80):
        tail = -mp.expm1(mp.log1p(-mp.mpf(delta)) / mp.mpf(t))
        start = float(quantile(delta, t))
        return mp.findroot(lambda z: mp.log(mp.erfc(z / mp.sqrt(2)) / 2) - mp.log(tail), start)


def basic_weight(t):
    return 1 / np.sqrt(t)


@pytest.mark.parametrize("t", [1, 2, 100, 10**5, 10**9])
def test_quantile_is_accurate_in_the_tail(t):
    for delta in (0.9, 0.5, 1e-2, 1e-5, 1e-10, 1e-17, 1e-30, 1e-300):
        want = exact_quantile(delta, t)
        assert abs(quantile(delta, t) - want) <= 1e-13 * max(1, abs(want))


def test_shapes():
    assert isinstance(item_allowance(1e-5, 7), float)
    many = item_allowance(1e-5, np.array([1, 7, 300]))
    assert many.shape == (3,)
    assert many[1] == item_allowance(1e-5, 7)


def test_golden_quantiles():
    # Upper 1e-5 quantile of the standard normal, tables of the normal distribution.
    assert quantile(1e-5, 1) == pytest.approx(4.264890793922825, rel=1e-14)
    assert quantile(0.5, 1) == pytest.approx(0.0, abs=1e-15)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.floats(-30, -0.1).map(lambda e: 10.0**e), st.integers(1, 10**8))
def test_quantile_is_monotone(delta, t):
    assert quantile(delta, t + 1) >= quantile(delta, t)
    assert quantile(delta / 2, t) > quantile(delta, t)


@pytest.mark.parametrize("delta", [0.3, 5e-6, 1e-12, 1e-30])
@pytest.mark.parametrize("sigma", [0.01, 3.89, 200.0])
def test_threshold_is_the_exact_maximum_rounded_up(delta, sigma):
    for max_items in (1, 2, 100, 5000):
        rho = novel_threshold(sigma, delta, max_items, basic_weight)
        candidates = {t for t in (1, 2, 3, 10, 37, 100, 5000) if t <= max_items}
        with mp.workdps(60):
            best = max(1 / mp.sqrt(t) + mp.mpf(sigma) * exact_quantile(delta, t) for t in candidates)
        assert rho >= best
        t = np.arange(1, max_items + 1, dtype=float)
        literal = np.max(basic_weight(t) + sigma * quantile(delta, t))
        assert rho <= literal + 1e-12 * (1 + abs(literal))


def test_small_sigma_has_its_maximum_inside():
    """With little noise one item is the worst case; with more, many items are."""
    assert novel_threshold(0.01, 1e-5, 1000, basic_weight) == pytest.approx(1 + 0.01 * 4.264890793922825)
    many = novel_threshold(10.0, 1e-5, 1000, basic_weight)
    assert many == pytest.approx(1 / math.sqrt(1000) + 10 * quantile(1e-5, 1000))
    middle = novel_threshold(0.6, 1e-5, 1000, lambda t: np.where(t == 37, 5.0, 0.0))
    assert middle == pytest.approx(5 + 0.6 * quantile(1e-5, 37))


def test_chunks_agree_with_one_sweep(monkeypatch):
    whole = novel_threshold(1.3, 1e-9, 1000, lambda t: np.where(t == 700, 9.0, 1 / np.sqrt(t)))
    monkeypatch.setattr(threshold_module, "_CHUNK", 64)
    assert novel_threshold(1.3, 1e-9, 1000, lambda t: np.where(t == 700, 9.0, 1 / np.sqrt(t))) == whole


@pytest.mark.parametrize("items", [1, 4, 20])
def test_novel_items_are_released_with_probability_delta(items):
    """200,000 users with only novel items at the tight case of h: P(any released) is delta = 0.05.

    False alarm below 2e-7 per case (exact binomial interval); sigma times 0.95 or 1.05 falls outside.
    """
    sigma, delta, runs = 2.0, 0.05, 200_000
    rho = novel_threshold(sigma, delta, items, lambda t: np.where(t == items, 1 / math.sqrt(items), 0.0))
    normals = np.random.default_rng(20 + items).standard_normal((runs, items)).max(axis=1)
    low, high = stats.binom.ppf(1e-7, runs, delta), stats.binom.isf(1e-7, runs, delta)

    def released(scale):
        return np.count_nonzero(1 / math.sqrt(items) + sigma * scale * normals >= rho)

    assert low <= released(1.0) <= high
    assert released(0.95) < low
    assert released(1.05) > high


@pytest.mark.parametrize("delta", [0.5, 1e-5, 1e-20])
def test_item_allowance_composes_to_delta(delta):
    for t in (1, 3, 1000):
        each = mp.mpf(item_allowance(delta, t))
        with mp.workdps(60):
            assert abs((1 - (1 - each) ** t) / mp.mpf(delta) - 1) < 1e-13


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0, 1e-5, 10, basic_weight), "sigma must be finite and positive"),
        ((1.0, 0.0, 10, basic_weight), "delta must lie strictly between 0 and 1"),
        ((1.0, 1e-5, 0, basic_weight), "max_items must be an integer from 1"),
        ((1.0, 1e-5, 1.5, basic_weight), "max_items must be an integer from 1"),
        ((1.0, 1e-5, True, basic_weight), "max_items must be an integer from 1"),
        ((1.0, 1e-5, 10, lambda t: 1.0), "novel_linf must return one value per t"),
        ((1.0, 1e-5, 10, lambda t: -t), "novel_linf must return finite values"),
        ((1.0, 1e-5, 10, lambda t: np.where(t == 5, np.nan, t)), "novel_linf must return finite values"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        novel_threshold(*arguments)


def test_bad_t():
    with pytest.raises(ValueError, match="t must be at least 1"):
        item_allowance(1e-5, np.array([1.0, np.nan]))
    with pytest.raises(ValueError, match="t must be at least 1"):
        item_allowance(1e-5, 0)
