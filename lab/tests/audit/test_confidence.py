"""Bounds of the audit: they cover, and they are close enough to be of use."""

import math

import numpy as np
import pytest
from scipy import stats

from dpbeam_lab.audit.confidence import (
    event_excess,
    gaussian_spread_factor,
    mean_lower_bound,
    proportion_bounds,
    stakes,
)


@pytest.mark.parametrize(("hits", "trials"), [(0, 50), (1, 50), (25, 50), (50, 50), (3, 10_000)])
def test_proportion_bounds_are_the_exact_binomial_tails(hits, trials):
    low, high = proportion_bounds(hits, trials, 1e-3)
    assert 0 <= low <= hits / trials <= high <= 1
    if hits:
        assert stats.binom.sf(hits - 1, trials, low) == pytest.approx(1e-3)
    if hits < trials:
        assert stats.binom.cdf(hits, trials, high) == pytest.approx(1e-3)


@pytest.mark.parametrize("mean", [0.02, 0.3, 0.9])
def test_mean_lower_bound_covers(mean):
    """At alpha = 0.05 the bound exceeds the mean in at most 5 % of 2,000 repetitions.

    False alarm: 144 or more of Binomial(2000, 0.05), below 1e-5 even at the nominal level; the fixed seed decides.
    """
    rng = np.random.default_rng(1)
    wrong = sum(mean_lower_bound((rng.random(400) < mean) * 1.0, 0.05) > mean for _ in range(2_000))
    assert wrong < 144


def test_mean_lower_bound_is_close():
    """Within a fifth of the distance that the normal limit would give, and never far above it."""
    rng = np.random.default_rng(2)
    values = np.where(rng.random(20_000) < 0.08, rng.random(20_000), 0.0)
    limit = values.std() / math.sqrt(len(values)) * math.sqrt(2 * math.log(1e7))
    distance = values.mean() - mean_lower_bound(values, 1e-7)
    assert 0.8 * limit < distance < 1.2 * limit


def test_stakes_are_placed_before_the_value_is_seen():
    """Other values from round t on leave the stakes of rounds up to t as they are; else the bound would be false."""
    rng = np.random.default_rng(6)
    values, others = rng.random(200), rng.random(200)
    for t in (0, 1, 50, 199):
        changed = np.concatenate((values[:t], others[t:]))
        assert (stakes(values, 0.01)[: t + 1] == stakes(changed, 0.01)[: t + 1]).all()
    assert (stakes(values, 0.01)[100:] != stakes(others, 0.01)[100:]).all()


def test_mean_lower_bound_of_zeros_and_ones():
    assert mean_lower_bound(np.zeros(100), 1e-6) == pytest.approx(0.0, abs=1e-9)
    assert 0.6 < mean_lower_bound(np.ones(100), 1e-6) < 1.0


@pytest.mark.parametrize("dimensions", [1, 8])
def test_widened_covariance_dominates(dimensions):
    """In all of 200 draws: a failure has probability 200 * 1e-6."""
    rng = np.random.default_rng(3)
    mix = rng.normal(size=(dimensions, dimensions)) + 2 * np.eye(dimensions)
    truth = mix @ mix.T
    for _ in range(200):
        sample = mix @ rng.normal(size=(dimensions, 3_000))
        wide = sample @ sample.T / 3_000 * gaussian_spread_factor(3_000, dimensions, 1e-6)
        assert np.linalg.eigvalsh(wide - truth).min() > 0


def test_too_few_samples_for_a_covariance():
    with pytest.raises(ValueError, match="10 samples are too few to bound a covariance of 8 rounds"):
        gaussian_spread_factor(10, 8, 1e-6)


def outcomes(rng, probability: float, trials: int, items: int = 3) -> np.ndarray:
    return rng.random((trials, items)) < np.array([probability, *[0.5] * (items - 1)])


def test_event_excess_finds_the_event_and_bounds_it():
    """P(item 0) = .4 against .05 at eps 1: the excess is .4 - e .05 = .264."""
    rng = np.random.default_rng(4)
    first, second = outcomes(rng, 0.4, 20_000), outcomes(rng, 0.05, 20_000)
    estimate, lower, event = event_excess(first, second, 1.0, 1e-6)
    assert estimate == pytest.approx(0.4 - math.e * 0.05, abs=0.03)
    assert 0.15 < lower < estimate
    assert event != "none"


def test_event_excess_of_equal_laws_is_nothing():
    rng = np.random.default_rng(5)
    for _ in range(20):
        estimate, lower, _ = event_excess(outcomes(rng, 0.3, 2_000), outcomes(rng, 0.3, 2_000), 0.1, 1e-6)
        assert lower == 0.0
        assert estimate < 0.05


def test_event_is_not_tested_on_the_half_that_chose_it():
    """Of 2^14 equally likely outcomes 500 trials see each once or never: the chosen event fits its own half only."""
    rng = np.random.default_rng(7)
    first, second = outcomes(rng, 0.5, 500, 14), outcomes(rng, 0.5, 500, 14)
    estimate, lower, _ = event_excess(first, second, 0.1, 1e-6)
    assert estimate < 0.2
    assert lower == 0.0
