"""The law of truncated geometric noise: exact privacy, the physical limit, exact draws."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dpbeam.accounting import geometric
from dpbeam.accounting.accountant import Guarantee, account
from dpbeam.accounting.events import (
    ComposedEvent,
    CountEvent,
    GaussianEvent,
    PureEvent,
    UnknownEventError,
    event_from_dict,
    event_to_dict,
)
from dpbeam.accounting.geometric import (
    ONE,
    CountNoise,
    TruncatedGeometric,
    exponential_below,
    truncated_geometric,
)
from dpbeam.accounting.limits import half_limit_users, release_probability_limit
from dpbeam.accounting.noise import NoiseMismatchError, NoiseSpec, check_same_noise

BUDGETS = [
    (1.0, 1e-5),
    (1.0, 1e-10),
    (0.1, 1e-6),
    (0.003, 1e-9),
    (4.0, 1e-5),
    (30.0, 1e-3),
    (1.0, 0.4),
    (0.5, 1e-25),
]


def bits_of(values: list[int]) -> np.ndarray:
    return np.array([[v >> 64, v & (1 << 64) - 1] for v in values], np.uint64)


def hockey_stick(law: TruncatedGeometric, shift: int) -> Fraction:
    """delta at epsilon of n + Z against n + shift + Z, from the masses by value; exp(eps) from below, as a Fraction."""
    factor = Fraction(exponential_below(min(law.epsilon, 30.0)), 1 << 256)
    mass = {
        law.threshold - k: Fraction(law.cumulative[k] - law.cumulative[k - 1], ONE)
        for k in range(1, len(law.cumulative))
    }
    assert sum(mass.values()) == 1
    values = {*mass, *(z + shift for z in mass)}
    return sum(max(Fraction(0), mass.get(z, 0) - factor * mass.get(z - shift, 0)) for z in values)


@settings(max_examples=60, deadline=None)
@given(epsilon=st.floats(0.02, 40.0), exponent=st.floats(0.1, 42.0))
def test_the_budget_is_kept_and_used_up(epsilon, exponent):
    """In exact fractions, both directions, whatever the budget; and all but 2^-9 of delta is used one way."""
    delta = math.exp(-exponent)
    law = TruncatedGeometric.create(epsilon, delta)
    more, less = hockey_stick(law, -1), hockey_stick(law, 1)
    assert more <= Fraction(delta)
    assert less <= Fraction(delta)
    assert max(more, less) >= Fraction(delta) * (1 - Fraction(1, 1 << 9))


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
def test_no_algorithm_releases_more(epsilon, delta):
    law = truncated_geometric(epsilon, delta)
    counts = np.arange(len(law.cumulative) + 3)
    chances = law.release_probability(counts)
    assert chances[0] == 0.0 and chances[-1] == 1.0
    limit = release_probability_limit(counts, epsilon, delta)
    assert (chances <= limit * (1 + 1e-9)).all()  # the limit is computed in floats
    assert (chances >= limit * (1 - 2.0**-9)).all()
    assert law.threshold == math.ceil(half_limit_users(epsilon, delta))
    assert law.users_needed(0.5) == law.threshold


@pytest.mark.parametrize("step", [1, 5, 12, 20, 23])
def test_one_unit_more_anywhere_is_refused(step, monkeypatch):
    """The check that every law passes sees a release probability that is larger by a millionth of delta."""
    right = geometric._fastest

    def faster(factor, unit):
        p = list(right(factor, unit))
        p[step] += unit >> 20 if step < 23 else unit
        return tuple(p)

    monkeypatch.setattr(geometric, "_fastest", faster)
    with pytest.raises(ArithmeticError, match="the noise exceeds its delta"):
        TruncatedGeometric.create(1.0, 1e-5)


def test_exp_is_a_lower_bound():
    """Against mpmath at 700 bits, where its own error is far below both sides."""
    for epsilon in (1e-4, 0.1, 1.0, math.pi, 99.9):
        with mpmath.workprec(700):
            below, exact = mpmath.mpf(exponential_below(epsilon)) / 2**256, mpmath.exp(mpmath.mpf(epsilon))
            assert exact * (1 - mpmath.mpf(2) ** -200) < below < exact


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-5), (0.5, 1e-25)])
def test_draws_at_every_edge(epsilon, delta):
    """Z is theta - k exactly for the bits in [p_(k-1), p_k), to the last of 128; also where high words are equal."""
    law = truncated_geometric(epsilon, delta)
    steps = range(1, len(law.cumulative))
    first = law.draw(bits_of([law.cumulative[k - 1] for k in steps]))
    last = law.draw(bits_of([law.cumulative[k] - 1 for k in steps]))
    wanted = [law.threshold - k for k in steps]
    assert first.tolist() == wanted
    assert last.tolist() == wanted
    assert law.draw(bits_of([0])).tolist() == [law.threshold - 1]  # an item without votes stays below theta


@pytest.mark.parametrize("scale", [1.0, 0.7, 1.3])
def test_draws_follow_the_law(scale):
    """Chi-square over all values with an expected count of 20 and more; the law at 0.7 and 1.3 epsilon fails."""
    law = truncated_geometric(1.0, 1e-5)
    drawn = law.draw(np.random.default_rng(5).integers(0, 1 << 64, (200_000, 2), dtype=np.uint64))
    other = truncated_geometric(scale, 1e-5)
    values, counts = np.unique(drawn, return_counts=True)
    mass = dict(zip(other.threshold - np.arange(1, len(other.cumulative)), np.diff(other._floats)))
    expected = np.array([mass.get(v, 0.0) for v in values]) * len(drawn)
    enough = expected >= 20
    observed = np.append(counts[enough], len(drawn) - counts[enough].sum())
    wanted = np.append(expected[enough], len(drawn) - expected[enough].sum())
    p = stats.chisquare(observed, wanted).pvalue
    assert (p > 1e-6) if scale == 1.0 else (p < 1e-20)


def test_stated_noise_agrees_with_its_draws():
    noise = CountNoise(1.0, 1e-5, 2)
    drawn = noise.law.draw(np.random.default_rng(6).integers(0, 1 << 64, (400_000, 2), dtype=np.uint64))
    assert abs(np.sqrt(np.mean(drawn**2.0)) / noise.deviation - 1) < 0.01  # eight standard errors
    for x in (-20, -3, -0.5, 0, 1, 2.5, 11, 12):
        # six standard errors of a share of 400,000
        assert abs(np.mean(drawn >= x) - noise.tail(x)) <= 0.005
    assert noise.tail(np.array([-100.0, 100.0])).tolist() == [1.0, 0.0]
    assert np.abs(drawn).max() <= noise.largest
    assert str(noise) == "truncated geometric noise of epsilon 1 and delta 1.0000000000000001e-05 in round 2"


@pytest.mark.parametrize(
    ("epsilon", "delta", "message"),
    [
        (0.0, 1e-5, "epsilon must be"),
        (1.0, 0.0, "delta must"),
        (1e-5, 1e-10, "noise over 2.16e[+]06 counts, more than the 1048576 of a table"),
        (1.0, 1e-36, "probabilities in steps finer than"),
    ],
)
def test_what_is_refused(epsilon, delta, message):
    with pytest.raises(ValueError, match=message):
        TruncatedGeometric.create(epsilon, delta)
    with pytest.raises(ValueError, match="round"):
        CountNoise(1.0, 1e-5, 0)


def test_the_event_costs_its_budget():
    """Alone and beside others it costs epsilon, and delta outside; a Gaussian composition does not know it."""
    event = CountEvent(0.75, 1e-6, label="vote")
    assert account(ComposedEvent("pure", (event,))) == Guarantee(0.75, 1e-6)
    assert account(ComposedEvent("basic", (event, PureEvent(0.25)))) == Guarantee(1.0, 1e-6)
    alone = account(ComposedEvent("zcdp", (PureEvent(0.75),)), 1.0).delta
    assert account(ComposedEvent("zcdp", (event,)), 1.0).delta == pytest.approx(alone + 1e-6, rel=1e-12)
    with pytest.raises(UnknownEventError, match="a gaussian composition cannot hold"):
        account(ComposedEvent("gaussian", (event, GaussianEvent(3.0, round=2))), 1.0)


def test_the_event_states_the_noise():
    event = CountEvent(0.75, 1e-6, 2, "vote")
    assert event_from_dict(event_to_dict(event)) == event
    check_same_noise([event.noise], [CountNoise(0.75, 1e-6, 2)])
    for other in (CountNoise(0.8, 1e-6, 2), CountNoise(0.75, 1e-5, 2), CountNoise(0.75, 1e-6, 1)):
        with pytest.raises(NoiseMismatchError, match="the ledger states truncated geometric noise"):
            check_same_noise([event.noise], [other])
    with pytest.raises(NoiseMismatchError, match="the program draws laplace"):
        check_same_noise([event.noise], [NoiseSpec("laplace", 1 / 0.75, 2)])
