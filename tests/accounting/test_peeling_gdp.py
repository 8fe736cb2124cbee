"""Choices of bounded range as Gaussian DP: against closed forms, enumerated policies and the law of peeling itself."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from dpbeam.accounting.accountant import account
from dpbeam.accounting.events import (
    ComposedEvent,
    GaussianEvent,
    InconsistentEventError,
    RankEvent,
    event_from_dict,
    event_to_dict,
)
from dpbeam.accounting.gaussian import gaussian_delta
from dpbeam.accounting.peeling_gdp import (
    _divergences,
    _pure_mu,
    gaussian_divergence,
    gdp_epsilon0,
    peeling_mu,
)

LOG_U = np.linspace(-6, 6, 241)


def hockey_stick(p, q, log_u):
    """max(0, p - u q) summed, for every u."""
    return np.maximum(0.0, p[None, :] - np.exp(log_u)[:, None] * q[None, :]).sum(axis=1)


def gaussian_curve(mu, log_u):
    """From the normal distribution function, whatever the sign of log_u."""
    return stats.norm.cdf(-log_u / mu + mu / 2) - np.exp(log_u) * stats.norm.cdf(-log_u / mu - mu / 2)


def two_point(t, e):
    """(P, Q) of the choice with losses t and t - e."""
    p = (math.exp(e) - math.exp(t)) / (math.exp(e) - 1)
    return np.array([p, 1 - p]), np.array([p * math.exp(-t), (1 - p) * math.exp(e - t)])


def test_the_gaussian_curve():
    for mu in (0.01, 0.3, 2.0, 8.0):
        np.testing.assert_allclose(
            gaussian_divergence(LOG_U[LOG_U >= 0], mu),
            gaussian_curve(mu, LOG_U[LOG_U >= 0]),
            rtol=1e-6,
            atol=1e-15,
        )


@pytest.mark.parametrize("e", [0.01, 0.5, 3.0])
def test_one_choice_has_a_closed_form(e):
    """Total variation tanh(e/4) at t = e/2 is the binding point of one choice."""
    binding = 2 * stats.norm.ppf((1 + math.tanh(e / 4)) / 2)
    assert binding <= peeling_mu(e, 1) <= binding * 1.005


@pytest.mark.parametrize("e", [0.05, 0.5, 2.0])
@pytest.mark.parametrize("rounds", [1, 3, 10])
def test_repeated_choices_stay_below(e, rounds):
    """The k-fold product of any two-point choice, exactly, in both orders of the neighbours."""
    mu = peeling_mu(e, rounds)
    j = np.arange(rounds + 1)
    for t in np.linspace(0, e, 9)[1:-1]:
        p, q = two_point(t, e)
        here, there = stats.binom.pmf(j, rounds, p[0]), stats.binom.pmf(j, rounds, q[0])
        for a, b in ((here, there), (there, here)):
            assert np.all(hockey_stick(a, b, LOG_U) <= gaussian_curve(mu, LOG_U) + 1e-13)


def test_adaptive_policies_stay_below():
    """Three choices whose t depends on what came before: 200 random trees, every leaf enumerated."""
    e, rng = 0.8, np.random.default_rng(5)
    curve = gaussian_curve(peeling_mu(e, 3), LOG_U)
    largest = np.zeros(len(LOG_U))
    for _ in range(200):
        p = q = np.ones(1)
        for _ in range(3):
            steps = [two_point(t, e) for t in rng.choice([0.2, 0.5, 0.8, rng.random()], len(p)) * e]
            p = np.concatenate([p[i] * steps[i][0] for i in range(len(p))])
            q = np.concatenate([q[i] * steps[i][1] for i in range(len(q))])
        largest = np.maximum(largest, hockey_stick(p, q, LOG_U))
    assert np.all(largest <= curve + 1e-13)
    assert np.max(largest / curve) > 0.98  # the bound is nearly met


def test_the_recursion_is_above_its_definition_and_close():
    """V_2 by plain search over both choices, off the grid of the bound."""
    e = 0.7
    u, bound = _divergences(e, 2)

    def first(v):
        """V_1, by search over t."""
        t = np.linspace(0, e, 1601)[1:-1]
        q = (math.exp(e) - np.exp(t)) / (math.exp(e) - 1)
        a, b = np.maximum(0, 1 - v[:, None] * np.exp(-t)), np.maximum(0, 1 - v[:, None] * np.exp(e - t))
        return (q * a + (1 - q) * b).max(axis=1)

    for i in range(0, len(u) - 1, 7):
        t = np.linspace(0, e, 801)[1:-1]
        q = (math.exp(e) - np.exp(t)) / (math.exp(e) - 1)
        value = (q * first(u[i] * np.exp(-t)) + (1 - q) * first(u[i] * np.exp(e - t))).max()
        assert value <= bound[i] * (1 + 1e-12) and bound[i] <= value * 1.05 + 1e-5


def test_peeling_itself_stays_below():
    """All ordered answers of three out of five items, for neighbours whose counts differ by a user's set."""
    e, k = 0.9, 3
    counts = np.array([7.0, 6.0, 6.0, 4.0, 3.0])

    def law(h):
        chances = []
        for s in itertools.permutations(range(5), k):
            left, probability = list(range(5)), 1.0
            for item in s:
                weights = np.exp(e * h[left])
                probability *= np.exp(e * h[item]) / weights.sum()
                left.remove(item)
            chances.append(probability)
        return np.array(chances)

    curve = gaussian_curve(peeling_mu(e, k), LOG_U)
    for held in itertools.product((0, 1), repeat=5):
        here, there = law(counts + np.array(held)), law(counts)
        assert abs(here.sum() - 1) < 1e-12
        for a, b in ((here, there), (there, here)):
            assert np.all(hockey_stick(a, b, LOG_U) <= curve + 1e-13)


def test_little_is_lost_against_the_limit():
    """sqrt(k) e/2 is what k choices come to for large k, and no fewer."""
    for e, k, most in ((0.3, 10, 1.035), (0.1, 64, 1.01), (0.02, 1000, 1.01), (0.05, 70, 1.02)):
        assert 1 <= peeling_mu(e, k) / (math.sqrt(k) * e / 2) <= most


@pytest.mark.parametrize("mu,rounds", [(0.01, 50), (0.3, 1), (0.25, 10), (0.2, 1000), (5.0, 2), (9.0, 64)])
def test_the_inverse(mu, rounds):
    e = gdp_epsilon0(mu, rounds)
    assert mu * (1 - 1e-4) <= peeling_mu(e, rounds) <= mu


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("e, rounds", [(10.0, 10), (15.0, 10), (20.0, 30), (20.0, 100)])
def test_choices_that_hide_nothing_have_a_mu_too(e, rounds):
    """Total variation is 1 but for rounding: no curve of a finite mu is above that by any margin."""
    mu = peeling_mu(e, rounds)
    assert 12 < mu < 3 * math.sqrt(rounds) * e
    assert 0.5 * mu < peeling_mu(gdp_epsilon0(mu, rounds), rounds) <= mu


def test_whatever_is_epsilon_dp_has_the_mu_of_randomised_response():
    for epsilon in (0.01, 1.0, 5.0, 30.0):
        log_u = np.linspace(0, epsilon, 101)
        response = np.maximum(0, np.exp(epsilon) - np.exp(log_u)) / (1 + math.exp(epsilon))
        mu = _pure_mu(epsilon)
        assert (response <= gaussian_divergence(log_u, mu) * (1 + 1e-12)).all()
        assert (response > gaussian_divergence(log_u, 0.999 * mu)).any()
    assert _pure_mu(1200.0) < 100


def test_arguments():
    for wrong in ((0.0, 3), (21.0, 3), (0.1, 0)):
        with pytest.raises(ValueError):
            peeling_mu(*wrong)


def test_the_event_is_believed_only_if_its_choices_fit():
    sigma, k = 4.0, 20
    e = gdp_epsilon0(1 / sigma, k)
    event = RankEvent(sigma, e, k, round=3, label="rank")
    assert event_from_dict(event_to_dict(event)) == event
    assert event.noise.scale == sigma and event.noise.round == 3 and event.noise.kind == "gaussian"
    with pytest.raises(InconsistentEventError, match=r"are 0\.25\d+-GDP"):
        RankEvent(sigma, e * 1.001, k)
    with pytest.raises(InconsistentEventError):
        RankEvent(sigma, e, k + 1)
    composed = ComposedEvent("gaussian", (GaussianEvent(3.0), event), epsilon=0.7)
    sigma_all = (3.0**-2 + sigma**-2) ** -0.5
    assert account(composed).delta == pytest.approx(gaussian_delta(0.7, sigma_all), rel=1e-9)
    assert event.zcdp_rho() == pytest.approx(1 / 32, rel=1e-12) and event.pure_epsilon() is None
