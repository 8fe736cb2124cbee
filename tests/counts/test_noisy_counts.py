"""Noisy counts: distribution, sensitivity of k counts, choice of the noise, determinism."""

import math

import numpy as np
import pytest
from scipy import stats

from dpbeam.accounting.accountant import account
from dpbeam.accounting.events import ComposedEvent, CorrelatedGaussianEvent, GaussianEvent, PureEvent
from dpbeam.accounting.gaussian import gaussian_delta, gaussian_sigma
from dpbeam.counts.noisy_counts import CORRELATED, NoisyCounts
from dpbeam.randomness import RunKey

KEY = RunKey.insecure_fixed("noisy")
N = 40_000


def noise_of(release, tools, n=N):
    many = NoisyCounts(release.noise, n, release.scale)  # the noise of n items at once
    counts = np.arange(n) % 1000
    return many.release(counts, tools.fingerprints_of(n), KEY) - counts


def test_gaussian_is_a_rounded_gaussian(tools):
    """Kolmogorov-Smirnov after smoothing the rounding, false alarm 1e-7; sigma times 0.9 or 1.1 fails."""
    noise = noise_of(NoisyCounts("gaussian", 100, 25.0), tools)
    assert noise.dtype == np.int64
    spread = noise + np.random.default_rng(0).uniform(-0.5, 0.5, N)

    def p_value(scale):
        return stats.kstest(spread / scale, "norm").pvalue

    assert p_value(25.0) > 1e-7
    assert p_value(25.0 * 0.9) < 1e-7 and p_value(25.0 * 1.1) < 1e-7


def test_laplace_is_a_two_sided_geometric(tools):
    """Chi-square against P(z) ~ exp(-|z|/scale), false alarm 1e-7; scale times 0.9 or 1.1 fails."""
    noise = noise_of(NoisyCounts("laplace", 3, 3.0), tools)
    values = np.arange(-12, 13)
    observed = np.array([np.sum(noise == z) for z in values])
    observed = np.append(observed, N - observed.sum())

    def p_value(scale):
        p = math.exp(-1 / scale)
        wanted = (1 - p) / (1 + p) * p ** np.abs(values)
        return stats.chisquare(observed, N * np.append(wanted, 1 - wanted.sum())).pvalue

    assert p_value(3.0) > 1e-7
    assert p_value(2.7) < 1e-7 and p_value(3.3) < 1e-7
    release = NoisyCounts("laplace", 3, 3.0)
    assert np.std(noise) == pytest.approx(release.deviation, rel=0.05)  # 9 standard errors


def test_laplace_is_pure_private_for_k_counts():
    """Shifting all k counts by 1 multiplies the probability by at most exp(k/scale) = exp(epsilon)."""
    release = NoisyCounts.calibrate(4, 0.5, 0.0)
    assert release.noise == "laplace" and release.scale == pytest.approx(8.0)
    assert 4 / release.scale <= 0.5 and release.event == PureEvent(4 / release.scale, label="noisy counts")


@pytest.mark.parametrize("k", [2, 10, 30, 1000])
def test_correlated_is_calibrated_to_lebedas_deviation(k):
    mu = 1 / gaussian_sigma(1.0, 1e-6)
    release = NoisyCounts.calibrate(k, 1.0, 1e-6, noise=CORRELATED)
    own, shared = release.parts
    assert release.scale == release.deviation == pytest.approx((1 + math.sqrt(k)) / (2 * mu), rel=1e-9)
    assert math.hypot(own, shared) == pytest.approx(release.scale, rel=1e-9)
    assert release.event == CorrelatedGaussianEvent(own, shared, k, label="noisy counts")
    assert mu * (1 - 1e-9) < 1 / release.event.gaussian_sigma() <= mu
    spent = account(ComposedEvent("gaussian", (release.event,), epsilon=1.0))
    assert 0.99e-6 < spent.delta <= 1e-6
    gain = NoisyCounts.calibrate(k, 1.0, 1e-6, noise="gaussian").deviation / release.deviation
    assert gain == pytest.approx(2 * math.sqrt(k) / (1 + math.sqrt(k)), rel=1e-9)


@pytest.mark.parametrize("k", [1, 2, 7, 30])
@pytest.mark.parametrize("own,shared", [(1.0, 1.0), (5.0, 0.3), (0.2, 3.0), (None, None)])
def test_no_user_moves_correlated_counts_by_more_than_is_charged(k, own, shared):
    """mu^2 = x' Sigma^-1 x for every number of items that a user may hold, Sigma = own^2 I + shared^2 11'.

    What is charged is met at the calibrated ratio where (k + sqrt k)/2 is a whole number, and nearly met elsewhere.
    """
    if own is None:
        own, shared = NoisyCounts(CORRELATED, k, 3.0).parts
    covariance = own**2 * np.eye(k) + shared**2 * np.ones((k, k))
    inverse = np.linalg.inv(covariance)
    loss = [float(x @ inverse @ x) for x in (np.arange(k) < held for held in range(1, k + 1))]
    charged = CorrelatedGaussianEvent(own, shared, k).gaussian_sigma() ** -2
    assert max(loss) <= charged * (1 + 1e-9)
    if (own, shared) == NoisyCounts(CORRELATED, k, 3.0).parts:
        assert max(loss) >= charged * (1 - 1.01 / (k + math.sqrt(k)) ** 2)
        assert k == 1 or charged < 0.9 * (k / 3.0**2)  # independent noise of this width would be dearer


@pytest.fixture(scope="module")
def correlated_noise(tools):
    """(3000, 8): the noise of eight counts under 3,000 keys, of deviation 20 and parts in the ratio of k = 4."""
    release = NoisyCounts(CORRELATED, 8, 20.0)
    counts, fp = np.arange(8) * 100, tools.fingerprints_of(8)
    keys = [RunKey.insecure_fixed(f"shared {i}") for i in range(3000)]
    return release, np.array([release.release(counts, fp, key) - counts for key in keys])


def test_correlated_noise_has_its_covariance(correlated_noise):
    """Variances, covariances and the worst user's direction, each within 6 standard errors (false alarm 1e-6)."""
    release, noise = correlated_noise
    n, k = noise.shape
    own, shared = release.parts
    observed = noise.T @ noise / n  # the mean is 0 by symmetry
    wanted = own**2 * np.eye(k) + shared**2 * np.ones((k, k))
    error = np.sqrt((np.outer(np.diag(wanted), np.diag(wanted)) + wanted**2) / n)
    assert np.all(np.abs(observed - wanted) < 6 * error + 1 / 12)
    assert np.all(np.abs(noise.mean(axis=0)) < 6 * release.deviation / math.sqrt(n))
    for x in (np.ones(k), np.arange(k) < 3, np.array([1, -1, 0, 0, 0, 0, 0, 0])):
        assert abs(np.mean((noise @ x) ** 2) / (x @ wanted @ x) - 1) < 6 * math.sqrt(2 / n) + 0.01


def test_correlated_noise_is_gaussian_and_the_worst_user_keeps_its_bound(correlated_noise):
    """The likelihood ratio of a user of all, of half and of one item, on drawn noise, against the charged curve.

    P(L > eps) - e^eps P'(L > eps), L the loss: estimates of delta at eps = .05, .1 and .2, 5.5 standard errors.
    """
    release, noise = correlated_noise
    n, k = noise.shape
    own, shared = release.parts
    inverse = np.linalg.inv(own**2 * np.eye(k) + shared**2 * np.ones((k, k)))
    sigma = release.event.gaussian_sigma()
    for held in (k, 5, 1):
        x = (np.arange(k) < held).astype(float)
        mu2 = float(x @ inverse @ x)
        loss = -(noise @ inverse @ x) + mu2 / 2  # ln p(z)/p(z - x)
        assert stats.kstest((loss - mu2 / 2) / math.sqrt(mu2), "norm").pvalue > 1e-7
        for epsilon in (0.05, 0.1, 0.2):
            gain = np.maximum(-np.expm1(epsilon - loss), 0.0)
            assert gain.mean() - 5.5 * gain.std() / math.sqrt(n) <= gaussian_delta(epsilon, sigma)
        if held == 5:
            assert abs(mu2 / release.event.gaussian_sigma() ** -2 - 1) < 0.01


@pytest.mark.parametrize("k", [1, 30, 1000])
def test_gaussian_is_calibrated_to_sqrt_k(k):
    release = NoisyCounts.calibrate(k, 1.0, 1e-6, noise="gaussian")
    assert release.scale == pytest.approx(math.sqrt(k) * gaussian_sigma(1.0, 1e-6))
    assert release.event == GaussianEvent(release.scale, math.sqrt(k), label="noisy counts")
    spent = account(ComposedEvent("gaussian", (release.event,), epsilon=1.0))
    assert 0.99e-6 < spent.delta <= 1e-6
    if k > 1:  # sensitivity 1 would be far from private
        assert gaussian_delta(1.0, gaussian_sigma(1.0, 1e-6) / math.sqrt(k)) > 1e-4


def test_the_smaller_noise_is_taken():
    for k in range(1, 30):
        all_three = [
            NoisyCounts.calibrate(k, 1.0, 1e-6, noise=noise) for noise in ("laplace", "gaussian", CORRELATED)
        ]
        best = NoisyCounts.calibrate(k, 1.0, 1e-6)
        assert best.deviation == min(release.deviation for release in all_three)
        assert best.noise == ("laplace" if k <= 4 else CORRELATED)
    assert NoisyCounts.calibrate(1, 1.0, 0.5).noise == "gaussian"  # one count has nothing to share
    assert NoisyCounts.calibrate(20, 1e-16, 1e-17, noise="gaussian").scale > 2.0**54
    assert NoisyCounts.calibrate(20, 1e-16, 1e-17).noise == "gaussian"  # half counts would be off the grid


def test_a_retry_releases_the_same_numbers(tools):
    release, counts, fp = NoisyCounts.calibrate(20, 1.0, 1e-6), np.arange(20) * 10, tools.fingerprints_of(20)
    first = release.release(counts, fp, KEY)
    order = np.random.default_rng(0).permutation(20)
    np.testing.assert_array_equal(release.release(counts[order], fp[order], KEY), first[order])
    assert not np.array_equal(release.release(counts, fp, KEY, label="other"), first)
    assert len(release.release(counts[:0], fp[:0], KEY)) == 0


def test_refused(tools):
    release = NoisyCounts.calibrate(2, 1.0, 0.0)
    with pytest.raises(ValueError, match="counts are 3, but the noise was calibrated for k = 2"):
        release.release(np.array([1, 2, 3]), tools.fingerprints_of(3), KEY)
    with pytest.raises(ValueError, match="noise must be 'correlated gaussian', 'gaussian' or 'laplace'"):
        NoisyCounts("uniform", 1, 1.0)
    with pytest.raises(ValueError, match="scale must be finite and positive"):
        NoisyCounts("laplace", 1, 0.0)
    with pytest.raises(ValueError, match="too wide for correlated noise"):
        NoisyCounts(CORRELATED, 2, 2.0**54)
    with pytest.raises(ValueError, match="delta"):
        NoisyCounts.calibrate(1, 1.0, 0.0, noise="gaussian")
