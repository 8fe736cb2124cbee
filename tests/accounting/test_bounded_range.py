"""Choices of bounded range: against brute force, closed forms, real exponential mechanisms, another accountant."""

import itertools
import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from dpbeam.accounting import bounded_range
from dpbeam.accounting.accountant import account, largest_choice_range
from dpbeam.accounting.bounded_range import Losses, choice_losses, choices_delta, largest_range
from dpbeam.accounting.events import (
    ComposedEvent,
    GaussianEvent,
    LaplaceEvent,
    LimitedDomainEvent,
    PeelingEvent,
    PureEvent,
    ZCDPEvent,
)
from dpbeam.accounting.gaussian import gaussian_delta, gaussian_sigma
from dpbeam.accounting.zcdp import zcdp_delta, zcdp_rho


def one_choice(u, e):
    """V_1 in closed form: the supremum is at e^t = sqrt(u e^eps_0)."""
    r, inside = math.exp(e), np.clip(u, math.exp(-e), math.exp(e))
    middle = (math.sqrt(r) - np.sqrt(inside)) ** 2 / (r - 1)
    return np.where(u < 1 / r, 1 - u, np.where(u > r, 0.0, middle))


def brute_force(rounds, u, e, steps):
    """The recursion with the supremum over `steps` + 1 values of t: never above the true value."""
    if rounds == 1:
        return one_choice(u, e)
    t = np.linspace(0, e, steps + 1)
    q = (math.exp(e) - np.exp(t)) / math.expm1(e)
    u = np.asarray(u)[..., None]
    each = q * brute_force(rounds - 1, u * np.exp(-t), e, steps)
    return np.max(each + (1 - q) * brute_force(rounds - 1, u * np.exp(e - t), e, steps), axis=-1)


def fixed_pair(rounds, epsilon, e):
    """The best t that is the same in all rounds: an attack, never above the true value."""
    n, best = np.arange(rounds + 1), 0.0
    for t in np.linspace(0.3 * e, 0.99 * e, 139):
        q = (math.exp(e) - math.exp(t)) / math.expm1(e)
        gain = np.maximum(-np.expm1(epsilon - (n * t + (rounds - n) * (t - e))), 0)
        best = max(best, float(stats.binom.pmf(n, rounds, q) @ gain))
    return best


def any_gaussian_delta(epsilon, sigma):
    """At any real epsilon, by the symmetry of the pair."""
    if epsilon >= 0:
        return gaussian_delta(epsilon, sigma)
    return -math.expm1(epsilon) + math.exp(epsilon) * gaussian_delta(-epsilon, sigma)


@pytest.mark.parametrize("e", [0.01, 0.3, 1.0, 5.0])
@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_few_rounds_are_the_supremum(rounds, e):
    """At most half a percent above in terms of eps_0, and never below."""
    for share in (0.0, 0.3, 0.6, 0.9):
        epsilon = share * rounds * e
        true = brute_force(rounds, math.exp(epsilon), e, 240)
        bound = choices_delta(epsilon, e, rounds)
        assert true <= bound <= choices_delta(epsilon, e * 1.002, rounds) and bound <= true * 1.02


@pytest.mark.parametrize(
    ("rounds", "epsilon", "e"), [(5, 1, 0.23), (20, 1, 0.1), (100, 1, 0.047), (1000, 1, 0.0149)]
)
def test_many_rounds_are_above_the_best_fixed_choice_and_close(rounds, epsilon, e):
    """What adaptivity adds is small, so this holds the bound from both sides, about 1 % of eps_0."""
    attack = fixed_pair(rounds, epsilon, e)
    assert 0 < attack <= choices_delta(epsilon, e, rounds) <= fixed_pair(rounds, epsilon, e * 1.015)


@pytest.mark.parametrize(("epsilon", "e", "rounds"), [(1.0, 0.05, 40), (2.0, 0.3, 12), (0.5, 0.2, 3)])
def test_the_grid_costs_little(epsilon, e, rounds, monkeypatch):
    """Four times finer, without blocks: lower, but by no more than .3 % of eps_0."""
    bound, dearer = choices_delta(epsilon, e, rounds), choices_delta(epsilon, e * 1.003, rounds)
    monkeypatch.setattr(bounded_range, "_cells", lambda rounds: 64)
    choice_losses.cache_clear()
    fine = choices_delta(epsilon, e, rounds)
    choice_losses.cache_clear()
    assert fine * (1 - 1e-9) <= bound <= dearer and (fine < bound or rounds <= 8)


def test_blocks_cost_little(monkeypatch):
    """1,000 rounds as blocks of 63 and of 125 against 250: each above the next, all within 1 % of eps_0."""
    deltas = []
    for most in (64, 128, 256):
        monkeypatch.setattr(bounded_range, "_MOST_STEPS", most)
        choice_losses.cache_clear()
        deltas.append(choices_delta(1.0, 0.0149, 1000))
    dearer = choices_delta(1.0, 0.0149 * 1.01, 1000)
    choice_losses.cache_clear()
    assert deltas[2] <= deltas[1] <= deltas[0] <= dearer


def peeling(counts, rounds, epsilon0):
    """{sequence: probability} of `rounds` exponential mechanisms without replacement."""
    law = {}
    for sequence in itertools.permutations(range(len(counts)), rounds):
        probability, left = 1.0, dict(enumerate(counts))
        for x in sequence:
            top = max(left.values())
            weights = {y: math.exp(epsilon0 * (c - top)) for y, c in left.items()}
            probability *= weights[x] / sum(weights.values())
            del left[x]
        law[sequence] = probability
    return law


@pytest.mark.parametrize("rounds", [1, 2, 3])
@pytest.mark.parametrize("e", [0.2, 1.5])
def test_real_peeling_stays_below(rounds, e):
    """All small histograms and all users, both directions, alone and beside Gaussian noise; and it comes near."""
    nearest = 0.0
    for counts in [(0, 0, 0, 0), (3, 1, 0, 0), (2, 2, 1, 0), (4, 0, 0, 0)]:
        for user in itertools.product((0, 1), repeat=4):
            p, q = (peeling(c, rounds, e) for c in (counts, tuple(np.add(counts, user))))
            for first, second in ((p, q), (q, p)):
                for epsilon in (0.0, 0.2 * e, 0.7 * e * rounds):
                    alone = sum(max(0.0, first[o] - math.exp(epsilon) * second[o]) for o in first)
                    bound = choices_delta(epsilon, e, rounds)
                    assert alone <= bound
                    nearest = max(nearest, alone / bound)
                epsilon = 0.4 * e * rounds
                losses = {o: math.log(first[o] / second[o]) for o in first}
                beside = sum(first[o] * any_gaussian_delta(epsilon - losses[o], 1 / e) for o in first)
                assert beside <= choices_delta(epsilon, e, rounds, 1 / e)
    assert nearest > 0.4


def test_beside_a_gaussian_part_by_quadrature():
    """E_z V_1(e^(eps - mu^2/2 - mu z)) for one choice, whose V_1 is known."""
    epsilon, e, mu = 1.0, 0.6, 0.3
    true, _ = integrate.quad(
        lambda z: stats.norm.pdf(z) * one_choice(math.exp(epsilon - mu * mu / 2 - mu * z), e),
        -12,
        12,
        limit=400,
        epsabs=1e-16,
    )
    bound = choices_delta(epsilon, e, 1, 1 / mu)
    assert true * (1 - 1e-9) <= bound <= true * 1.005


@pytest.mark.parametrize("rounds", [30, 400])
def test_what_the_ends_cut_off_is_charged(rounds, monkeypatch):
    """Knots from near the middle alone: dearer at every epsilon than with all that have any mass."""
    e = 1.6 / math.sqrt(rounds)
    whole = choice_losses(e, rounds, -60)
    monkeypatch.setattr(bounded_range, "_LOW_END", 0.5)
    choice_losses.cache_clear()
    few = choice_losses(e, rounds, -1)
    choice_losses.cache_clear()
    assert len(few.masses) < 0.5 * len(whole.masses)
    for epsilon in np.linspace(-3, 6, 37):
        assert few.delta(epsilon) >= whole.delta(epsilon) * (1 - 1e-6)
    assert few.delta(2.0) > 1.02 * whole.delta(2.0)


@pytest.mark.parametrize("pure", [(0.3,), (0.3, 0.1)])
def test_beside_pure_parts(pure):
    """Randomised response for each part, by enumeration of its outcomes; more than eight parts are merged upwards."""
    epsilon, e, sigma = 0.9, 0.15, 9.0
    true = 0.0
    for signs in itertools.product((1, -1), repeat=len(pure)):
        loss = math.fsum(sign * value for sign, value in zip(signs, pure))
        probability = math.prod(1 / (1 + math.exp(-sign * value)) for sign, value in zip(signs, pure))
        losses = choice_losses(e, 4, -40)
        true += probability * sum(
            m * any_gaussian_delta(epsilon - loss - x, sigma) for m, x in zip(losses.masses, losses.losses)
        )
    assert choices_delta(epsilon, e, 4, sigma, pure) == pytest.approx(true, rel=1e-6)
    assert choices_delta(epsilon, e, 4, sigma, pure) > choices_delta(epsilon, e, 4, sigma)
    many = choices_delta(epsilon, e, 4, sigma, [0.01] * 20)
    assert (
        choices_delta(epsilon, e, 4, sigma, [0.01] * 8) < many <= choices_delta(epsilon, e, 4, sigma, [0.2])
    )


def test_another_accountant_never_finds_more():
    """dp-accounting's lower bound for a Gaussian and 20 equal choices with t = .6 eps_0: not above, and near."""
    e, sigma, rounds, epsilon = 0.075, 7.0, 20, 1.0

    def attack(e):
        q = (math.exp(e) - math.exp(0.6 * e)) / math.expm1(e)
        upper, lower = {0: q, 1: 1 - q}, {0: q * math.exp(-0.6 * e), 1: (1 - q) * math.exp(0.4 * e)}
        options = {
            "value_discretization_interval": 1e-4,
            "pessimistic_estimate": False,
        }
        choice = pld.from_two_probability_mass_functions(
            {k: math.log(v) for k, v in lower.items()}, {k: math.log(v) for k, v in upper.items()}, **options
        )
        noise = pld.from_gaussian_mechanism(sigma, **options)
        return choice.self_compose(rounds).compose(noise).get_delta_for_epsilon(epsilon)

    bound = choices_delta(epsilon, e, rounds, sigma)
    assert 0 < attack(e) <= bound <= attack(e * 1.03)


def test_pure_at_the_ends():
    """Nothing is lost at k eps_0, and all of it below -k eps_0 is the chord."""
    for rounds in (1, 4, 20):
        assert choices_delta(rounds * 0.05 * (1 + 1e-9), 0.05, rounds) <= 1e-13
        assert choices_delta(0.0, 0.05, rounds) >= fixed_pair(rounds, 0.0, 0.05)
    for e in (1e-12, 1e-6, 49.0, 51.0, 1e6):  # far ends of the range are charged, if dearly
        assert 0 <= choices_delta(1.0, e, 2) <= 1
    assert choices_delta(1.0, 0.1, 2, 1e300) == pytest.approx(choices_delta(1.0, 0.1, 2), abs=1e-15)
    assert choices_delta(1.0, 0.1, 1 << 50) == zcdp_delta((1 << 50) * 0.01 / 8 * (1 + 1e-14), 1.0)


@settings(max_examples=12)
@given(
    st.floats(-2, 1.5).map(lambda x: 10.0**x),
    st.integers(1, 40),
    st.floats(0.05, 3.0),
    st.one_of(st.just(math.inf), st.floats(0.3, 3.0)),
)
def test_bounds_and_monotone(epsilon, rounds, relative, noise):
    """Increasing in rounds, range and Gaussian part, decreasing in epsilon, never above zCDP."""
    e = relative * epsilon / math.sqrt(rounds)
    sigma = noise / epsilon if noise < math.inf else noise
    bound = choices_delta(epsilon, e, rounds, sigma)
    rho = rounds * e * e / 8 + (0 if sigma == math.inf else 1 / (2 * sigma**2))
    assert 0 <= bound <= zcdp_delta(rho * (1 + 1e-12), epsilon)
    assert choices_delta(epsilon, e * 1.05, rounds, sigma) >= bound
    assert choices_delta(epsilon, e, 2 * rounds, sigma) >= bound
    assert choices_delta(epsilon * 1.05, e, rounds, sigma) <= bound
    assert choices_delta(epsilon, e, rounds, sigma * 0.9 if sigma < math.inf else 20 / epsilon) >= bound * (
        1 - 1e-9
    )


@pytest.mark.parametrize(
    ("rounds", "gain"), [(5, 0.164), (10, 0.098), (100, 0.071), (1000, 0.067), (1, 0.0002)]
)
def test_gain_over_zcdp(rounds, gain):
    """The figures of docs/explanation/topk.md: epsilon 1, delta 1e-6, over the larger of zCDP and epsilon/k."""
    before = max(1.0 / rounds, math.sqrt(8 * zcdp_rho(1.0, 1e-6) / rounds))
    epsilon0 = largest_range(1.0, 1e-6, rounds)
    assert epsilon0 / before - 1 == pytest.approx(gain, abs=0.002)
    assert 1e-6 * (1 - 2e-3) <= choices_delta(1.0, epsilon0, rounds) <= 1e-6


@pytest.mark.parametrize(("epsilon", "delta"), [(0.01, 1e-3), (1.0, 1e-12), (10.0, 1e-3)])
@pytest.mark.parametrize("rounds", [1, 3, 60])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.98])
def test_the_largest_range_fits_and_a_larger_does_not(epsilon, delta, rounds, share):
    sigma = gaussian_sigma(epsilon, delta) / math.sqrt(share) if share else math.inf
    epsilon0 = largest_range(epsilon, delta, rounds, sigma)
    assert choices_delta(epsilon, epsilon0, rounds, sigma) <= delta or (
        not share and epsilon0 * rounds <= epsilon
    )
    assert choices_delta(epsilon, epsilon0 * 1.001, rounds, sigma) > delta


def test_no_range_fits_where_nothing_is_left():
    sigma = gaussian_sigma(1.0, 1e-6)
    assert largest_range(1.0, 1e-6, 5, sigma) == 0.0
    assert largest_range(1.0, 1e-6, 5, pure=(1.2,)) == 0.0
    assert largest_range(1.0, 1e-6, 5, pure=(0.5,)) >= 0.1 * (1 - 1e-12)


def test_composition_of_losses_is_that_of_the_pairs():
    """Randomised response twice, coarser, cut: closed forms, and always above."""
    p = 1 / (1 + math.exp(-0.5))
    response = Losses(0.5, -1, np.array([1 - p, 0.0, p]), 0.0)
    assert response.delta(0.2) == pytest.approx(p - math.exp(0.2) * (1 - p), rel=1e-11)
    assert response.twice().delta(0.2) == pytest.approx(p * p - math.exp(0.2) * (1 - p) ** 2, rel=1e-11)
    for epsilon in np.linspace(-2, 2, 41):
        for losses in (response, response.twice()):
            assert losses.coarser().delta(epsilon) >= losses.delta(epsilon)
            assert losses.cut(0, 0).delta(epsilon) >= losses.delta(epsilon)
    for first in (-2, -1):  # odd and even ends keep all mass, and the mean of 1/ratio
        masses = np.array([0.1, 0.2, 0.3, 0.25, 0.15])
        for size in (4, 5):
            losses = Losses(0.1, first, masses[:size], 0.0)
            halved = losses.coarser()
            assert halved.masses.sum() == pytest.approx(masses[:size].sum(), rel=1e-12)
            assert halved.masses @ np.exp(-halved.losses) == pytest.approx(
                losses.masses @ np.exp(-losses.losses), rel=1e-12
            )


# The accountant.


def composed(*parts, epsilon=1.0):
    return account(ComposedEvent("zcdp", parts, epsilon=epsilon)).delta


def test_the_accountant_takes_the_cheaper_bound():
    peel, noise = PeelingEvent(0.05, 40), GaussianEvent(8.0)
    assert composed(peel, noise) == choices_delta(1.0, 0.05, 40, 8.0)
    assert composed(peel, noise) < zcdp_delta(40 * 0.05**2 / 8 + 1 / 128, 1.0)
    assert composed(peel, noise, PureEvent(0.1)) == choices_delta(1.0, 0.05, 40, 8.0, (0.1,))
    assert composed(peel, LaplaceEvent(5.0)) == choices_delta(
        1.0, 0.05, 40, math.inf, (LaplaceEvent(5.0).pure_epsilon(),)
    )
    several = composed(
        peel,
        GaussianEvent(16.0),
        GaussianEvent(16.0, round=2),
        GaussianEvent(16.0, round=3),
        GaussianEvent(16.0, round=4),
    )
    assert several == pytest.approx(composed(peel, noise), rel=1e-12)
    stopped = LimitedDomainEvent(0.05, 40, 1000.0, 1e-9, 40)
    assert composed(stopped, noise) == pytest.approx(choices_delta(1.0, 0.05, 40, 8.0) + 1e-9, rel=1e-12)


@pytest.mark.parametrize(
    "others",
    [(PeelingEvent(0.04, 3),), (ZCDPEvent(0.001),), (LimitedDomainEvent(0.05, 2, 1000.0, 1e-9, 40),)],
)
def test_what_the_exact_bound_does_not_cover_is_zcdp(others):
    peel, noise = PeelingEvent(0.05, 40), GaussianEvent(8.0)
    rho = math.fsum(part.zcdp_rho() for part in (peel, noise, *others)) * (1 + 1e-15)
    outside = math.fsum(part.outside_delta() for part in others)
    assert composed(peel, noise, *others) == pytest.approx(zcdp_delta(rho, 1.0) + outside, rel=1e-12)


def test_the_largest_choice_range_of_a_composition():
    noise = ComposedEvent("gaussian", (GaussianEvent(8.0),))
    for parts in ((noise,), (noise, PureEvent(0.2)), (PureEvent(0.2),), (ZCDPEvent(0.01), noise), ()):
        epsilon0 = largest_choice_range(parts, 40, 1.0, 1e-6)
        assert (
            composed(*parts, PeelingEvent(epsilon0, 40))
            <= 1e-6
            < composed(*parts, PeelingEvent(epsilon0 * 1.001, 40))
        )
    assert largest_choice_range((GaussianEvent(2.0),), 40, 1.0, 1e-6) == 0.0
    stopped = LimitedDomainEvent(0.01, 2, 1e6, 1e-6, 4)  # all of delta is spent already
    assert largest_choice_range((stopped, noise), 40, 1.0, 1e-6) == 0.0


def test_bad_arguments():
    for arguments, message in (
        ((-1, 0.1, 2), "epsilon"),
        ((1, 0.0, 2), "epsilon0"),
        ((1, 0.1, 0), "rounds"),
        ((1, 0.1, 2, 0.0), "sigma"),
        ((1, 0.1, 2, 1.0, (0.0,)), "pure"),
        ((1, math.nan, 2), "epsilon0"),
    ):
        with pytest.raises(ValueError, match=message):
            choices_delta(*arguments)
    with pytest.raises(ValueError, match="delta"):
        largest_range(1.0, 0.0, 2)
