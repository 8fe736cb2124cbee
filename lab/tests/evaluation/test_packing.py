"""The algorithms of the comparison."""

import math

import numpy as np
import pytest
from scipy import stats

from dpbeam_lab.evaluation.packing import (
    fixed_steps,
    gradient_descent,
    online,
    optimum,
    over,
    published,
    truncated_laplace,
)
from tests.support.markets import random_rows


def slow_published(values, demands, b, epsilon, delta, alpha, rng):
    """Algorithm 1 line by line, agent by agent."""
    n, m = len(values), len(demands[0])
    p_max = 2 * n / b
    p = [p_max / (m + 1)] * (m + 1)
    eta_sum = math.log(m + 1) / (alpha * b)
    bound = 3 * (m + 1) * math.log(m + 1) / alpha**2
    total, x, t = 0.0, [0.0] * n, 0
    while total < eta_sum:
        best = [1 if values[i] - sum(demands[i][j] * p[j] for j in range(m)) >= 0 else 0 for i in range(n)]
        g = [b - sum(demands[i][j] * best[i] for i in range(n)) for j in range(m)]
        eta = min([alpha / b] + [alpha / abs(gj) for gj in g if gj != 0])
        sigma = math.sqrt(m * eta_sum * eta * math.log(bound * m / delta)) / epsilon
        noise = truncated_laplace(sigma, 1 - alpha, m, rng)
        hat = [p[j] * math.exp(-(eta * g[j] + noise[j])) for j in range(m)] + [p[m]]
        p = [p_max * value / sum(hat) for value in hat]
        x = [old + eta * new for old, new in zip(x, best)]
        total += eta
        t += 1
    return [value / total for value in x], t


@pytest.mark.parametrize("seed", [1, 2])
def test_the_published_algorithm_is_that_of_the_slow_transcription(seed):
    values, demands = random_rows(60, 3, seed)
    arguments = (12.0, 5.0, 1e-3, 0.2)
    solved = published(values, demands, *arguments, np.random.default_rng(seed))
    expected, rounds = slow_published(
        values.tolist(), demands.tolist(), *arguments, np.random.default_rng(seed)
    )
    assert solved.rounds == rounds > 10
    assert solved.allocation == pytest.approx(expected, abs=1e-9)


def test_truncated_laplace_has_its_law():
    """False alarm 1e-6; a scale of 0.8 is seen."""
    draws = truncated_laplace(0.5, 0.9, 20_000, np.random.default_rng(1))
    assert np.abs(draws).max() <= 0.9

    def law(x, scale=0.5):
        whole = stats.laplace(scale=scale)
        return (whole.cdf(np.clip(x, -0.9, 0.9)) - whole.cdf(-0.9)) / (whole.cdf(0.9) - whole.cdf(-0.9))

    assert stats.kstest(draws, law).pvalue > 1e-6
    assert stats.kstest(draws, lambda x: law(x, 0.4)).pvalue < 1e-6


def test_without_noise_all_come_near_the_optimum():
    values, demands = random_rows(2_000, 2, 3)
    b, best = 600.0, optimum(values, demands, 600.0)
    rng = np.random.default_rng(4)
    many = 1e9
    for solved in (
        published(values, demands, b, many, 1e-6, 0.1, rng),
        gradient_descent(values, demands, b, many, 1e-6, 2_000, rng),
        fixed_steps(values, demands, b, many, 1e-6, 2_000, rng),
        online(values, demands, b, many, 1e-6, rng),
    ):
        assert ((solved.allocation >= 0) & (solved.allocation <= 1)).all()
        scaled = solved.allocation * min(1, 1 / over(demands, b, solved.allocation))
        assert 0.8 * best <= values @ scaled <= best * (1 + 1e-9)


def test_the_optimum_of_a_market_that_can_be_seen():
    values, demands = np.array([0.9, 0.5, 0.4]), np.array([[1.0], [0.5], [1.0]])
    assert optimum(values, demands, 1.5) == pytest.approx(1.4)
    assert optimum(values, demands, 1.25) == pytest.approx(0.5 + 0.75 * 0.9)
    assert over(demands, 1.25, np.array([1, 1, 0])) == pytest.approx(1.2)
