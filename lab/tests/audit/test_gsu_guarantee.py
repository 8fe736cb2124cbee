"""Facts that the proof in docs/explanation/gsu.md leans on, checked on the calibrations and kernels that run."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dpbeam.accounting.discrete import threshold_surcharge
from dpbeam.accounting.noise import NoiseSpec
from dpbeam.kernels.grid import UNITS
from dpbeam.kernels.shards import Shard
from dpbeam.randomness.discrete.gaussian import gaussian_parts, half_width
from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.plan import make_plan
from dpbeam.selectors.gsu.calibration import crossing_bound
from dpbeam.selectors.gsu.kernels import Checkpoint, score_units

LARGEST_VARIATE = 16.01
SLACK = 1e-9
SETTINGS = [
    (rounds, epsilon, delta, max_items)
    for rounds in (2, 4, 8, 16)
    for epsilon, delta, max_items in (
        (0.05, 1e-5, 100),
        (1.0, 1e-5, 300),
        (1.0, 1e-15, 5000),
        (10.0, 1e-10, 10),
    )
]


def program(rounds: int, epsilon: float, delta: float, max_items: int):
    config = SelectionConfig(epsilon, delta, "gsu", max_items_per_user=max_items, rounds=rounds)
    return make_plan(config).program


@pytest.mark.parametrize("setting", SETTINGS)
def test_crossing_probability_is_within_the_allowance_of_every_degree(setting):
    """Inequality (1), with scipy's normal tail, for the caps and thresholds that run."""
    p, (_, _, delta, _) = program(*setting), setting
    share = make_plan(
        SelectionConfig(setting[1], delta, "gsu", rounds=setting[0])
    ).config.settings.gsu_delta_share
    degrees = np.arange(1, len(p.caps))
    deviations = p.sigma * np.sqrt(p.variances)
    caps = p.caps[1:]
    crossing = sum(
        stats.norm.sf((rho - caps * gain) / deviation)
        for rho, gain, deviation in zip(p.thresholds, p.drifts, deviations)
    )
    allowed = -np.expm1(np.log1p(-delta * (1 - share)) / degrees)
    assert (crossing <= allowed * (1 - SLACK / 2)).all()
    assert crossing[-1] > 0.99 * allowed[-1]  # nothing is given away at full degree
    assert np.allclose(crossing, crossing_bound(p.thresholds, p.drifts, deviations, caps), rtol=1e-9)
    assert (np.diff(caps) <= 0).all() and caps.max() <= 1


@pytest.mark.parametrize("setting", SETTINGS)
def test_an_item_is_released_from_its_threshold_on(setting):
    """Step 2 asks of every checkpoint that nothing below rho_k is released; the rounding of integers adds few units.

    The statistic of three items ends below, below and above, whatever they weighed in the rounds before.
    """
    p, rng = program(*setting), np.random.default_rng(12)
    gains = np.multiply(p.coefficients, p.fractions)
    tested = [k for k in range(p.trips) if math.isfinite(p.thresholds[k])]
    assert tested[-1] == p.trips - 1
    for k in tested:
        rounding = (threshold_surcharge(gains[: k + 1]) + 3) / UNITS
        wanted = p.thresholds[k] + np.array([-p.sigma / 4, -4 / UNITS, rounding])
        before = -rng.uniform(0, p.sigma, (k, 3))
        last = (wanted - gains[:k] @ before) / gains[k]
        shard = Shard(0, np.zeros((3, 2), np.uint64), *[np.zeros(0, np.int64)] * 3)
        for trip, weight in enumerate([*before, last]):
            noisy = np.rint(weight * UNITS).astype(np.int64)
            shard = p.threshold(trip, p.observe(trip, shard, noisy, np.ones(3, bool)))
            assert shard.state["released"].tolist() == [False, False, trip == k]
            if trip < k:
                shard, _ = p.reply(trip, shard)


@pytest.mark.parametrize("setting", SETTINGS)
def test_noise_composes_to_sigma_and_fills_the_variance(setting):
    p = program(*setting)
    precision = sum((1 / Fraction(s) ** 2 for s in p.round_sigmas), Fraction(0))
    assert precision <= 1 / Fraction(p.sigma) ** 2
    exact = p.sigma / np.sqrt(p.fractions)
    assert (np.abs(np.array(p.round_sigmas) / exact - 1) < 1e-14).all()
    assert p.variances[-1] == 1.0
    assert all(a > 0 and f > 0 for a, f in zip(p.coefficients, p.fractions))
    gain = np.cumsum(np.multiply(p.coefficients, p.fractions))
    assert (gain <= np.sqrt(p.variances) * (1 + 1e-12)).all()


@pytest.mark.parametrize("sigma", [0.1, 4.0, 100.0])
def test_slack_covers_the_rounding_of_the_state(sigma):
    """The bound of the section on rounding, at 64 rounds and 12 standard deviations."""
    rounds, z = 64, 12.0
    relative = (z + 1) * 3 * rounds * 2.0**-53 * (1 / sigma + LARGEST_VARIATE * math.sqrt(rounds))
    assert math.expm1(relative) < SLACK
    for point in np.linspace(-2, z, 57):
        assert stats.norm.pdf(point) / stats.norm.sf(point) < max(point, 0) + 1


@pytest.mark.parametrize("sigma", [0.1, 4.0, 100.0])
def test_no_variate_exceeds_the_bound(sigma):
    """All tables at their ends at once."""
    parts = gaussian_parts(Fraction(NoiseSpec("gaussian", sigma).drawn_scale(UNITS)))
    largest = sum(2**part.shift * half_width(part.variance) for part in parts)
    assert 14.0 * sigma < largest / UNITS < LARGEST_VARIATE * sigma


@pytest.mark.parametrize("rounds", [2, 8, 16])
def test_score_does_not_depend_on_the_position_in_an_array(rounds):
    """Bit for bit: alone, shifted, reversed, or among others. Otherwise new items would move the scores of old ones."""
    p = program(rounds, 1.0, 1e-5, 300)
    rng = np.random.default_rng(rounds)
    z, y, a = rng.normal(0, 10, 5_003), rng.normal(0, 3, 5_003), rng.uniform(0.03, 1, 5_003)
    for k in range(rounds - 1):
        at = Checkpoint(p.drifts[k], p.variances[k], p.drifts[-1], p.thresholds[-1], p.sigma)

        def score(which, at=at):
            return score_units(z[which], y[which], a[which], at, p.score)

        whole = score(slice(None))
        assert 0 < np.count_nonzero(whole) < len(whole)
        for shift in range(1, 9):
            assert (score(slice(shift, None)) == whole[shift:]).all()
        assert (score(slice(None, None, -1)) == whole[::-1]).all()
        assert [score(slice(i, i + 1))[0] for i in range(300)] == whole[:300].tolist()


def test_loss_of_an_adaptive_chain_of_gaussians_has_the_law_of_one():
    """Step 1: norms chosen from the past, padded to a fixed sum of squares, give exactly N(0, mu^2).

    A chooser that stops spending once the loss is high, 200,000 chains, p-value above 1e-9; without the padding
    the law is another.
    """
    rng = np.random.default_rng(11)
    trials, mu, rounds = 200_000, 0.8, 6
    loss, spent = np.zeros(trials), np.zeros(trials)
    step = mu / math.sqrt(rounds)
    for _ in range(rounds):
        b = np.where(loss > 0.2, 0.0, step)
        loss += b * rng.standard_normal(trials)
        spent += b * b
    padded = loss + np.sqrt(mu * mu - spent) * rng.standard_normal(trials)
    assert stats.kstest(padded / mu, stats.norm.cdf).pvalue > 1e-9
    assert stats.kstest(loss / loss.std(), stats.norm.cdf).pvalue < 1e-9
