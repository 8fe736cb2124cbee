"""The cost of choices up to the first hit, against the mechanism itself: sequences of chances to be hit, summed up."""

import json
import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbeam.accounting.accountant import account
from dpbeam.accounting.events import (
    ComposedEvent,
    FirstHitEvent,
    GaussianEvent,
    PeelingEvent,
    PureEvent,
    ThresholdEvent,
    UnknownEventError,
    event_from_dict,
    event_to_dict,
)
from dpbeam.accounting.first_hit import first_hit_delta
from dpbeam.accounting.gaussian import gaussian_delta
from dpbeam.accounting.zcdp import zcdp_delta


def outcomes(chances, epsilon0):
    """P and Q of the round of the hit, and of none: `chances` p_j under P, p e^e0 / (1 + p (e^e0 - 1)) under Q."""
    p = np.asarray(chances, float)
    q = p * math.exp(epsilon0) / (1 + p * math.expm1(epsilon0))
    parts = []
    for chance in (p, q):
        miss = np.cumprod(1 - chance)
        parts.append(np.append(np.append(1.0, miss[:-1]) * chance, miss[-1]))
    return parts


def hockey_stick(p, q, epsilon):
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


def both_ways(p, q, epsilon):
    return max(hockey_stick(p, q, epsilon), hockey_stick(q, p, epsilon))


def sampled(p, q, rate):
    """P, and the run with the user, who takes part with probability `rate`."""
    return p, (1 - rate) * p + rate * q


def beside_gaussian(p, q, epsilon, mu):
    """The same after noise of mu = 1/sigma: an average over its loss, by the trapezoidal rule."""
    z = np.linspace(-10, 10, 4001)
    weight = np.exp(-z * z / 2) / np.exp(-z * z / 2).sum()
    loss = mu * mu / 2 + mu * z
    removed = [hockey_stick(p, q, epsilon - x) for x in loss]
    added = [hockey_stick(q, p, epsilon - x) for x in loss]
    return max(weight @ removed, weight @ added)


chances = st.lists(st.floats(0, 1), min_size=1, max_size=12)


class TestNoSequenceCostsMore:
    @given(chances, st.floats(0.01, 2), st.floats(0, 3), st.floats(0.01, 1))
    @settings(max_examples=80, deadline=None)
    def test_alone(self, chances, epsilon0, epsilon, rate):
        p, q = outcomes(chances, epsilon0)
        assert both_ways(p, q, epsilon) <= first_hit_delta(epsilon, epsilon0) + 1e-15
        delta = both_ways(*sampled(p, q, rate), epsilon)
        assert delta <= first_hit_delta(epsilon, epsilon0, rate=rate) + 1e-15

    @given(
        st.lists(st.floats(0, 0.3), min_size=1, max_size=6),
        st.floats(0.02, 1),
        st.floats(0, 2),
        st.floats(0.05, 1),
        st.sampled_from([1.0, 0.7, 0.3]),
    )
    @settings(max_examples=20, deadline=None)
    def test_beside_gaussian_noise(self, chances, epsilon0, epsilon, mu, rate):
        delta = beside_gaussian(*sampled(*outcomes(chances, epsilon0), rate), epsilon, mu)
        assert delta <= first_hit_delta(epsilon, epsilon0, 1 / mu, rate=rate) * (1 + 1e-7) + 1e-12

    def test_an_adversary_who_plans_every_round_stays_below(self):
        """Value iteration over the chances: V_n of the proof, on a grid that can only lose."""
        epsilon0, step = 0.3, 0.01
        a = math.expm1(epsilon0)
        grid = np.arange(-1.0, 2.0, step)
        value = np.maximum(-np.expm1(grid), 0)
        bound = np.array(
            [
                -math.expm1(-epsilon0) * math.exp(-(e + epsilon0) / a) if e >= -epsilon0 else -math.expm1(e)
                for e in grid
            ]
        )
        p = np.linspace(0, 1, 101)[:, None]
        hit = p * np.maximum(1 - np.exp(grid) * (1 + a) / (1 + p * a), 0)
        reached = []
        for _ in range(60):
            left = np.maximum(np.interp(grid - np.log1p(p * a), grid, value) - step * 0.01, 0)
            value = np.maximum(value, (hit + (1 - p) * left).max(axis=0))
            inside = (grid > -0.6) & (grid < 1.5)
            assert (
                value[inside] <= bound[inside] * (1 + 2e-3)
            ).all()  # V is convex: interpolation lies above it
            reached.append(value[np.searchsorted(grid, 0.5)])
        assert reached[-1] > reached[0]


@pytest.mark.parametrize("epsilon, epsilon0", [(1.0, 0.1), (0.5, 0.3), (0.1, 0.015)])
def test_many_rounds_of_small_chances_reach_it(epsilon, epsilon0):
    total = (epsilon + epsilon0) / math.expm1(epsilon0)
    p, q = outcomes(np.full(20_000, total / 20_000), epsilon0)
    delta, claimed = both_ways(p, q, epsilon), first_hit_delta(epsilon, epsilon0)
    assert 0.99 * claimed < delta <= claimed


def test_beside_gaussian_noise_it_is_reached_within_a_third():
    """The worst chances depend on what the noise has cost already, which a fixed sequence cannot follow."""
    epsilon, epsilon0, mu = 1.0, 0.2, 0.2
    total = (epsilon + epsilon0) / math.expm1(epsilon0)
    best = max(
        beside_gaussian(*outcomes(np.full(400, share * total / 400), epsilon0), epsilon, mu)
        for share in (0.8, 1.0)
    )
    claimed = first_hit_delta(epsilon, epsilon0, 1 / mu)
    assert 0.67 * claimed < best <= claimed


@pytest.mark.parametrize("rate, epsilon0", [(0.7, 0.3), (0.64, 0.8)])
def test_a_sample_of_users_reaches_it_too(rate, epsilon0):
    """At the chances that are worst for what the sample leaves."""
    claimed = first_hit_delta(1.0, epsilon0, rate=rate)
    left = 1 + math.log(rate / (1 - (1 - rate) * math.e))
    total = (left + epsilon0) / math.expm1(epsilon0)
    delta = both_ways(*sampled(*outcomes(np.full(20_000, total / 20_000), epsilon0), rate), 1.0)
    assert 0.98 * claimed < delta <= claimed


def test_a_small_sample_is_pure():
    rate = -math.expm1(-1.0) - 1e-9
    most = math.log1p(math.expm1(1.0) / rate)
    assert first_hit_delta(1.0, most * (1 - 1e-9), rate=rate) == 0
    assert first_hit_delta(1.0, most * 1.01, rate=rate) > 1e-6


def in_decimals(epsilon, epsilon0, rate):
    """The claim's formulas as they are written, in 60 digits."""
    with localcontext() as context:
        context.prec = 60
        e, e0, r = Decimal(epsilon), Decimal(epsilon0), Decimal(rate)

        def v(x):
            return (1 - (-e0).exp()) * (-(x + e0) / (e0.exp() - 1)).exp() if x >= -e0 else 1 - x.exp()

        kept, more = 1 - (1 - r) * e.exp(), e.exp() - (1 - r)
        removed = kept * v(e + (r / kept).ln()) if kept > 0 else Decimal(0)
        x = (more / r).ln()
        return float(max(removed, r * (1 - x.exp() + x.exp() * v(-x))))


@pytest.mark.parametrize("rate", [1.0, 0.9, 0.5, 0.01])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 3.0, 8.0, 20.0, 37.0])
def test_rounding_makes_nothing_cheaper(epsilon, rate):
    """A range slightly above the pure one, where the formulas as written are differences of numbers like e^epsilon."""
    pure = math.log1p(math.expm1(epsilon) / rate)
    for more in (1e-7, 1e-6, 1e-4, 1e-2, 0.3):
        exact = in_decimals(epsilon, pure + more, rate)
        assert exact <= first_hit_delta(epsilon, pure + more, rate=rate) <= exact * (1 + 2e-9) + 1e-15


class TestLimits:
    @pytest.mark.parametrize("sigma", [1.0, 4.0])
    def test_no_choice_at_all_is_the_gaussian_mechanism(self, sigma):
        exact = gaussian_delta(1.0, sigma)
        assert exact <= first_hit_delta(1.0, 1e-7, sigma) < 1.01 * exact

    def test_no_noise_at_all_is_the_closed_form(self):
        exact = -math.expm1(-0.1) * math.exp(-1.1 / math.expm1(0.1))
        assert exact < first_hit_delta(1.0, 0.1) < exact * (1 + 2e-9)
        assert first_hit_delta(1.0, 0.1, 1e9) == pytest.approx(exact, rel=1e-5)

    def test_pure_stages_take_their_epsilon(self):
        assert first_hit_delta(1.0, 0.1, 5.0, 0.25) == first_hit_delta(0.75, 0.1, 5.0)
        assert 0.15 < first_hit_delta(0.5, 0.1, pure=0.8) < 1  # more than there is: about 1 - e^-0.3

    def test_it_grows_with_every_cost(self):
        base = first_hit_delta(1.0, 0.1, 6.0)
        assert first_hit_delta(0.9, 0.1, 6.0) > base
        assert first_hit_delta(1.0, 0.11, 6.0) > base
        assert first_hit_delta(1.0, 0.1, 5.0) > base

    @given(st.floats(0, 50), st.floats(1e-12, 1e3), st.floats(1e-3, 1e12))
    @settings(max_examples=80, deadline=None)
    def test_it_is_a_probability_wherever_it_is_asked(self, epsilon, epsilon0, sigma):
        bound = first_hit_delta(epsilon, epsilon0, sigma)
        assert 0 <= bound <= 1
        assert bound >= gaussian_delta(epsilon, sigma) * (1 - 1e-9) - 1e-300

    @pytest.mark.parametrize(
        "arguments, message",
        [
            ((1.0, 0.0), "epsilon0 must be finite and positive"),
            ((-1.0, 0.1), "epsilon must be finite and not negative"),
            ((1.0, 0.1, 0.0), "sigma must be positive"),
            ((1.0, 0.1, math.nan), "sigma must be positive"),
            ((1.0, 0.1, 1.0, -1.0), "epsilon must be finite and not negative"),
            ((1.0, 0.1, 1.0, 0.0, 0.0), "rate must be above 0 and at most 1"),
            ((1.0, 0.1, 1.0, 0.0, 1.5), "rate must be above 0 and at most 1"),
        ],
    )
    def test_arguments(self, arguments, message):
        with pytest.raises(ValueError, match=message):
            first_hit_delta(*arguments)


class TestAccountant:
    SELECTION = ComposedEvent("gaussian", (GaussianEvent(8.0), ThresholdEvent(60.0, 1e-6, 1.0, 10)))

    def test_noises_and_choices_compose_exactly_and_thresholds_stand_outside(self):
        noises = (GaussianEvent(8.0), GaussianEvent(6.0, round=2))
        event = ComposedEvent("first-hit", (*noises, FirstHitEvent(0.1, 100)), epsilon=1.0)
        sigma = (8.0**-2 + 6.0**-2) ** -0.5
        assert account(event).delta == pytest.approx(first_hit_delta(1.0, 0.1, sigma), rel=1e-9)
        event = ComposedEvent("first-hit", (self.SELECTION, FirstHitEvent(0.1, 100)), epsilon=1.0)
        assert account(event).delta == pytest.approx(first_hit_delta(1.0, 0.1, 8.0) + 1e-6, rel=1e-9)
        event = ComposedEvent("first-hit", (GaussianEvent(8.0), FirstHitEvent(0.6, 100, 0.5)), epsilon=1.0)
        assert account(event).delta == first_hit_delta(1.0, 0.6, 8.0, rate=0.5)
        event = ComposedEvent("first-hit", (PureEvent(0.2), FirstHitEvent(0.1, 100)), epsilon=1.0)
        assert account(event).delta == pytest.approx(first_hit_delta(0.8, 0.1), rel=1e-9)

    def test_the_number_of_rounds_costs_nothing_beyond_the_bound(self):
        def spent(rounds):
            event = ComposedEvent("first-hit", (GaussianEvent(8.0), FirstHitEvent(0.1, rounds)))
            return account(event, 1.0).delta

        assert spent(100) == spent(100_000)
        assert account(
            ComposedEvent("zcdp", (GaussianEvent(8.0), PeelingEvent(0.1, 100))), 1.0
        ).delta > 20 * spent(100)

    def test_few_choices_cost_what_mere_choices_cost_in_zcdp(self):
        few = ComposedEvent("first-hit", (GaussianEvent(8.0), FirstHitEvent(0.1, 2)))
        rho = 1 / (2 * 8.0**2) + 2 * 0.1**2 / 8
        assert account(few, 1.0).delta == pytest.approx(zcdp_delta(rho, 1.0), rel=1e-9)
        assert account(few, 1.0).delta < first_hit_delta(1.0, 0.1, 8.0)
        assert account(ComposedEvent("first-hit", (FirstHitEvent(0.1, 9),)), 0.95).delta == 0

    def test_elsewhere_it_counts_as_choices(self):
        event = ComposedEvent("zcdp", (FirstHitEvent(0.1, 30), GaussianEvent(9.0)))
        rho = 1 / (2 * 9.0**2) + 30 * 0.1**2 / 8
        assert account(event, 1.0).delta == pytest.approx(zcdp_delta(rho, 1.0), rel=1e-9)

    @pytest.mark.parametrize(
        "parts",
        [
            (GaussianEvent(8.0),),
            (FirstHitEvent(0.1, 5), FirstHitEvent(0.1, 5)),
            (ComposedEvent("zcdp", (PureEvent(0.1),)), FirstHitEvent(0.1, 5)),
            (ComposedEvent("basic", (PureEvent(0.1),)), FirstHitEvent(0.1, 5)),
        ],
    )
    def test_what_it_does_not_know_is_refused(self, parts):
        with pytest.raises(UnknownEventError):
            account(ComposedEvent("first-hit", parts), 1.0)

    def test_as_part_of_a_basic_composition_it_states_its_epsilon(self):
        stage = ComposedEvent("first-hit", (FirstHitEvent(0.1, 50),), epsilon=0.5)
        spent = account(ComposedEvent("basic", (PureEvent(0.25), stage)))
        assert (spent.epsilon, spent.delta) == (0.75, account(stage).delta)
        with pytest.raises(UnknownEventError):
            account(ComposedEvent("basic", (ComposedEvent("first-hit", (FirstHitEvent(0.1, 50),)),)))

    def test_it_is_written_and_read(self):
        event = ComposedEvent(
            "first-hit", (self.SELECTION, FirstHitEvent(0.1, 100, 0.5, label="x")), epsilon=1.0
        )
        assert event_from_dict(json.loads(json.dumps(event_to_dict(event)))) == event
        with pytest.raises(ValueError, match="rounds must be an integer of at least 1"):
            FirstHitEvent(0.1, 0)
