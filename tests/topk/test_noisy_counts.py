"""Noisy counts: distribution, sensitivity of k counts, choice of the noise, determinism."""

import math

import numpy as np
import pytest
from scipy import stats

from dpbeam.accounting.accountant import account
from dpbeam.accounting.events import ComposedEvent, GaussianEvent, PureEvent
from dpbeam.accounting.gaussian import gaussian_delta, gaussian_sigma
from dpbeam.randomness import RunKey
from dpbeam.topk.noisy_counts import NoisyCounts

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
        both = [NoisyCounts.calibrate(k, 1.0, 1e-6, noise=noise) for noise in ("laplace", "gaussian")]
        best = NoisyCounts.calibrate(k, 1.0, 1e-6)
        assert best.deviation == min(release.deviation for release in both)
        assert best.noise == ("laplace" if k <= 8 else "gaussian")


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
    with pytest.raises(ValueError, match="noise must be 'gaussian' or 'laplace'"):
        NoisyCounts("uniform", 1, 1.0)
    with pytest.raises(ValueError, match="scale must be finite and positive"):
        NoisyCounts("laplace", 1, 0.0)
    with pytest.raises(ValueError, match="delta"):
        NoisyCounts.calibrate(1, 1.0, 0.0, noise="gaussian")
