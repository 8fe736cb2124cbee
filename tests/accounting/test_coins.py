"""Coins: their table, their divergences, and what the accountant makes of them, against independent computations."""

import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from dp_accounting.rdp import rdp_privacy_accountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dpbeam.accounting import coins
from dpbeam.accounting.accountant import OverspentError, account
from dpbeam.accounting.coins import BadCurveError, CoinCurve, CoinNoise, WeightCurve, pure_curve, weight_curve
from dpbeam.accounting.events import (
    BernoulliEvent,
    ComposedEvent,
    GaussianEvent,
    InconsistentEventError,
    LaplaceEvent,
    PureEvent,
    ThresholdEvent,
    UnknownEventError,
    WeightedBernoulliEvent,
    event_from_dict,
    event_to_dict,
)
from dpbeam.accounting.ledger import Ledger
from dpbeam.accounting.limits import release_probability_limit
from dpbeam.accounting.noise import NoiseSpec, check_same_noise
from dpbeam.accounting.renyi import ORDERS, renyi_budget, renyi_delta
from dpbeam.accounting.tables import ONE, NoTableError
from tests.support.coins import refined, renyi_curve

EPSILON = 1.0


def curve(d0: int = 8, delta: float = 1e-3, order: float = 8.0, epsilon: float = EPSILON) -> CoinCurve:
    """A curve of which d0 steps cost (epsilon, delta), four tenths of it for novel items, at an order near `order`."""
    order = float(ORDERS[np.abs(ORDERS - order).argmin()])
    return renyi_curve(order, renyi_budget(order, epsilon, 0.6 * delta) / d0, 0.4 * delta / d0)


def total(event: BernoulliEvent, epsilon: float = EPSILON) -> float:
    return account(ComposedEvent("renyi", (event,), epsilon=epsilon)).delta


# The table.


def test_the_table_follows_the_curve_in_exact_fractions():
    release_curve = curve()
    corners = [(Fraction(x), Fraction(y)) for x, y in release_curve.corners]
    points = [*corners, *((1 - y, 1 - x) for x, y in reversed(corners))]
    p = [Fraction(value, ONE) for value in release_curve.law.cumulative]
    assert p[0] == 0 and p[1] == Fraction(release_curve.novel) and p[-1] == 1
    for before, after in itertools.pairwise(p[1:]):
        if before >= 1 - corners[0][0]:
            wanted = Fraction(1)
        elif before >= points[-1][0]:
            wanted = 1 - corners[0][0]
        else:
            (x, y), (x2, y2) = next(
                pair for pair in itertools.pairwise(points) if pair[0][0] <= before < pair[1][0]
            )
            wanted = y + (before - x) * (y2 - y) / (x2 - x)
        assert wanted - Fraction(1, ONE) < after <= wanted


@pytest.mark.parametrize(("d0", "users"), [(3, (18, 28, 38)), (10, (25, 43, 61)), (100, (45, 96, 148))])
def test_users_needed_at_epsilon_1(d0, users):
    """As simulated when the idea was tried, with another program, to one user."""
    best = min(
        (
            renyi_curve(order, renyi_budget(order, 1.0, 0.7e-5) / d0, 0.3e-5 / d0).law
            for order in map(float, ORDERS)
            if 10 < order < 20
        ),
        key=lambda law: law.threshold,
    )
    for wanted, probability in zip(users, (0.05, 0.5, 0.95)):
        assert abs(best.users_needed(probability) - wanted) <= 1


def test_one_item_per_user_gets_the_best_release_there_is():
    law = pure_curve(1.0, 1e-5).law
    n = np.arange(22)  # the last step but one is to 1 - delta, not beyond
    np.testing.assert_allclose(
        law.release_probability(n), release_probability_limit(n, 1.0, 1e-5), rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize(("epsilon", "novel"), [(1.0, 0.4), (1e-3, 0.35), (0.1, 0.499)])
def test_a_large_novel_takes_one_step_to_its_mirror_image(epsilon, novel):
    """Where exp(epsilon) p_1 would be beyond the middle: p_2 = 1 - p_1, and p_3 = 1. The definition, by differences."""
    release = [number / ONE for number in pure_curve(epsilon, novel).law.cumulative]
    distinct = sorted({round(p, 9) for p in release})
    np.testing.assert_allclose(distinct, [0, novel, 1 - novel, 1], rtol=1e-8)
    for p, q in itertools.pairwise(release):
        assert q <= math.exp(epsilon) * p + novel * (1 + 1e-9)
        assert 1 - p <= math.exp(epsilon) * (1 - q) + novel * (1 + 1e-9)


@settings(max_examples=25, deadline=None)
@given(
    order=st.floats(1.5, 60.0),
    divergence=st.floats(1e-5, 1.0),
    novel=st.floats(1e-20, 1e-2),
    corners=st.integers(4, 80),
)
def test_a_curve_keeps_its_divergence(order, divergence, novel, corners):
    """What a divergence bounds is convex in (p, q): chords cost no more than their corners, and p_n never falls."""
    release_curve = renyi_curve(order, divergence, novel, corners)
    table = release_curve.law.cumulative
    assert all(before < after for before, after in itertools.pairwise(table))
    assert table[-1] == ONE
    least = max(
        divergence, -math.log1p(-novel)
    )  # an item of nobody else's tells as much when it is not released
    assert release_curve.divergence(order) <= least * (1 + 1e-9) + 1e-12
    assert release_curve.missing() <= release_curve.novel


def test_draws_release_exactly_when_the_uniform_number_is_below():
    law = curve().law
    for n in (1, 2, len(law.cumulative) // 2, len(law.cumulative) - 2):
        limit = law.cumulative[n]
        words = [[v >> 64, v & (2**64 - 1)] for v in (limit - 1, limit)]
        drawn = law.draw(np.array(words, np.uint64))
        assert ((n + drawn) >= law.threshold).tolist() == [True, False]
    assert (law.draw(np.zeros((1, 2), np.uint64)) < law.threshold).all()  # nobody's item stays


@pytest.mark.parametrize(
    "corners",
    [
        (),
        ((0.1, 0.05),),
        ((0.1, 0.2), (0.05, 0.3)),
        ((0.1, 0.3), (0.2, 0.25)),
        ((0.3, 0.8),),
        ((0.0, 0.5),),
        ((0.1, math.nan),),
        ((2.0**-130, 0.5),),
        ((0.1, 1.0),),
    ],
)
def test_what_is_no_curve_is_refused(corners):
    with pytest.raises(BadCurveError):
        CoinCurve(corners)


def test_tables_have_limits(monkeypatch):
    monkeypatch.setattr(coins, "MAX_STEPS", 1000)
    with pytest.raises(NoTableError, match=r"finer than 2\^-128"):
        renyi_curve(8.0, 0.1, 1e-35)
    with pytest.raises(NoTableError, match="of more than"):
        _ = renyi_curve(40.0, 1e-9, 1e-9).law


# Divergences.


def exact_divergence(p: Fraction, q: Fraction, order: int) -> float:
    """D(B(p) || B(q)) of the values that both have, in fractions up to the logarithm."""
    terms = [(a, b) for a, b in ((p, q), (1 - p, 1 - q)) if a and b]
    moment = sum(a**order / b ** (order - 1) for a, b in terms)
    # ln of a fraction near 1 without loss: ln(1 + x)
    return math.log1p(float(moment - 1)) / (order - 1)


# Of the first, users to come are dearer than users to go, of the second the other way round; a curve's mirror image is
# its own, but the p_n on it are not.
UNEVEN = (((2.0**-10, 2.0**-3),), ((8 / 128, 11 / 128), (14 / 128, 38 / 128), (42 / 128, 51 / 128)))


@pytest.mark.parametrize("release_curve", [curve(d0=30), *map(CoinCurve, UNEVEN)])
@pytest.mark.parametrize("order", [2, 3, 8, 30])
def test_divergences_are_those_of_fractions(order, release_curve):
    p = [Fraction(value, ONE) for value in release_curve.law.cumulative]
    wanted = max(
        max(exact_divergence(a, b, order), exact_divergence(b, a, order)) for a, b in itertools.pairwise(p)
    )
    stated = release_curve.divergence(order)
    assert wanted <= stated <= wanted * (1 + 1e-9)


def test_conversion_is_that_of_dp_accounting():
    for order, divergence in ((3.0, 0.2), (14.0, 0.4), (200.0, 0.01)):
        for epsilon in (1.0, 1.5):
            wanted = rdp_privacy_accountant.compute_delta([order], [divergence], epsilon)[0]
            result = float(renyi_delta(divergence, order, epsilon))
            assert result == pytest.approx(wanted, rel=1e-9)
            assert renyi_budget(order, epsilon, result) == pytest.approx(divergence, rel=1e-9)


def test_conversion_holds_at_tiny_deltas_without_underflow():
    assert 0 < float(renyi_delta(0.01, 800.0, 0.9)) < 1e-290
    assert float(renyi_delta(5.0, 2.0, 0.1)) <= 1


# The composition.


def levels_delta(p: np.ndarray, levels: tuple[int, ...], epsilon: float) -> float:
    """The exact delta, by definition, of items at these levels that all move up, or all down, by one."""
    worst = 0.0
    for more, fewer in ((1, 0), (0, 1)):
        delta = 0.0
        for bits in itertools.product((0, 1), repeat=len(levels)):
            here, there = (
                math.prod(p[n + move] if bit else 1 - p[n + move] for n, bit in zip(levels, bits))
                for move in (more, fewer)
            )
            delta += max(0.0, here - math.exp(epsilon) * there)
        worst = max(worst, delta)
    return worst


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_every_mixture_of_levels_of_two_and_three_items_stays_below_delta(epsilon):
    """All levels, novel items and the last one included, both directions, by the definition of (epsilon, delta)."""
    for d0, delta, step in ((2, 1e-2, 1), (3, 5e-2, 2)):
        release_curve = curve(d0, delta, order=1 + 5.0 / epsilon, epsilon=epsilon)
        p, _ = release_curve.law.probabilities
        levels = [*range(0, len(p) - 1, step), len(p) - 2]
        stated = total(BernoulliEvent(release_curve.corners, d0), epsilon)
        assert 0.9 * delta < stated < 1.000001 * delta
        worst = max(
            levels_delta(p, mixed, epsilon) for mixed in itertools.combinations_with_replacement(levels, d0)
        )
        assert 0.2 * stated < worst <= stated


def adaptive_delta(p: np.ndarray, d0: int, epsilon: float, *, add: bool) -> float:
    """Upper bound on the delta where every level is chosen knowing the losses so far, novel items apart.

    V_k(x) = the largest over n of E[V_(k-1)(x + loss)], by chords in the likelihood ratio.
    """
    here, there = (p[2:-1], p[1:-2]) if add else (1 - p[1:-2], 1 - p[2:-1])
    yes, no = np.log(here / there), np.log((1 - here) / (1 - there))
    grid = np.linspace(-4.0, 4.0, 1601)
    ratio = np.exp(grid)
    value = np.maximum(ratio - math.exp(epsilon), 0.0)
    for _ in range(d0):
        best = value
        for n in range(len(here)):
            moved = [np.interp(ratio * math.exp(loss), ratio, value) for loss in (yes[n], no[n])]
            moved = [
                v + np.maximum(ratio * math.exp(loss) - ratio[-1], 0)
                for v, loss in zip(moved, (yes[n], no[n]))
            ]
            best = np.maximum(best, there[n] * moved[0] + (1 - there[n]) * moved[1])
        value = best
    return float(np.interp(1.0, ratio, value))


def test_levels_chosen_one_after_the_other_stay_below_delta():
    """Adaptivity is what rounds allow. It takes nearly all of what the Renyi bound leaves."""
    release_curve = curve(8, 1e-3)
    p, _ = release_curve.law.probabilities
    stated = total(BernoulliEvent(release_curve.corners, 8)) - 8 * release_curve.missing()
    worst = max(adaptive_delta(p, 8, EPSILON, add=add) for add in (True, False))
    assert 0.6 * stated < worst <= stated


@pytest.mark.parametrize(("d0", "delta"), [(10, 1e-5), (100, 1e-5), (100, 1e-12)])
def test_equal_levels_by_their_binomial_likelihood_ratio(d0, delta):
    order = 14.0 if delta > 1e-6 else 33.0
    release_curve = curve(d0, delta, order)
    p, _ = release_curve.law.probabilities
    stated, k = total(BernoulliEvent(release_curve.corners, d0)), np.arange(d0 + 1)
    worst = 0.0
    for n in range(1, len(p) - 2):
        one, two = (stats.binom.pmf(k, d0, q) for q in (p[n + 1], p[n]))
        worst = max(
            worst, *(np.maximum(a - math.exp(EPSILON) * b, 0).sum() for a, b in ((one, two), (two, one)))
        )
    assert 0.05 * stated < worst < stated - d0 * release_curve.missing()


def test_equal_levels_by_dp_accounting():
    """Composed numerically and pessimistically by an independent library."""
    d0 = 20
    release_curve = curve(d0, 1e-4, 10.0)
    p, rest = release_curve.law.probabilities
    stated = total(BernoulliEvent(release_curve.corners, d0)) - d0 * release_curve.missing()
    for n in range(2, len(p) - 2, 9):
        upper, lower = ({0: math.log(rest[m]), 1: math.log(p[m])} for m in (n + 1, n))
        both = privacy_loss_distribution.from_two_probability_mass_functions(
            lower, upper, pessimistic_estimate=True, value_discretization_interval=1e-4, symmetric=False
        )
        assert both.self_compose(d0).get_delta_for_epsilon(EPSILON) < stated


def test_rounds_add_and_the_best_order_counts():
    parts = tuple(BernoulliEvent(curve(d0, 1e-4, 9.5).corners, d0, round=r) for r, d0 in ((1, 5), (2, 20)))
    whole = account(ComposedEvent("renyi", parts, epsilon=2.0)).delta
    divergence = [sum(part.max_items * part.curve.divergence(order) for part in parts) for order in ORDERS]
    outside = sum(part.max_items * part.curve.novel for part in parts)
    wanted = min(
        rdp_privacy_accountant.compute_delta([order], [d], 2.0)[0] for order, d in zip(ORDERS, divergence)
    )
    assert whole == pytest.approx(wanted + outside, rel=1e-6)
    assert whole >= wanted + outside


def test_weights_in_steps_of_a_table():
    """A user of n items gives s steps to each: the worst of the moves counts, by fractions, mirror and all."""
    fine = refined(curve(16, 1e-3), 4)
    p = [Fraction(value, ONE) for value in fine.law.cumulative]
    assert p[1] == p[4] == Fraction(fine.novel) < p[5] < p[6] < p[7] < p[8] == Fraction(fine.corners[0][1])
    for steps in (1, 3, 4):
        moved = [(a, (p + [p[-1]] * steps)[n + steps]) for n, a in enumerate(p[:-1])]
        wanted = max(max(exact_divergence(a, b, 3), exact_divergence(b, a, 3)) for a, b in moved)
        assert wanted <= fine.divergence(3.0, steps) <= wanted * (1 + 1e-9)
        alone = max(max(b for a, b in moved if a == 0), max(1 - a for a, b in moved if b == 1))
        assert fine.missing(steps) == pytest.approx(float(alone), rel=1e-12)
    assert fine.divergence(8.0, 4) == pytest.approx(curve(16, 1e-3).divergence(8.0), rel=1e-2)
    moves = ((16, 4), (40, 2), (90, 1))
    event = BernoulliEvent(fine.corners, 90, start=fine.start, moves=moves)
    assert event.renyi_divergence(8.0) == pytest.approx(max(n * fine.divergence(8.0, s) for n, s in moves))
    assert event.outside_delta() == pytest.approx(90 * fine.novel)
    assert [event.steps(n) for n in (1, 16, 17, 41, 90)] == [4, 4, 2, 1, 1]
    assert event_from_dict(json.loads(json.dumps(event_to_dict(event)))) == event


def test_moves_are_checked():
    fine = refined(curve(16, 1e-3), 4)
    for moves in ((), ((17, 1),), ((4, 0),)):
        with pytest.raises(ValueError, match="moves"):
            BernoulliEvent(fine.corners, 16, start=fine.start, moves=moves)
    for start in ((0.9,), (*fine.start, fine.start[-1]), fine.start[::-1]):
        with pytest.raises(BadCurveError, match="the start of a curve"):
            CoinCurve(fine.corners, start)


# Weights of bounded l2 norm.


def weights(order: float = 9.5, grid: int = 8, full: int = 4, delta: float = 1e-3) -> WeightCurve:
    """The fastest curve of which users of `full` items of weight 1 cost (1, delta), four tenths of it set aside."""
    order = float(ORDERS[np.abs(ORDERS - order).argmin()])
    return weight_curve(order, renyi_budget(order, EPSILON, 0.6 * delta) / full, 0.4 * delta / full, grid)


HOSTILE = (
    WeightCurve(((1, 2.0**-20), (2, 2.0**-4), (5, 0.25), (6, 0.5)), 4, 2.0**-9),
    WeightCurve(((3, 0.5),), 4, 2.0**-3),
    WeightCurve(((1, 0.5),), 4, 2.0**-30),
    WeightCurve(((2, 2.0**-100), (40, 2.0**-6), (41, 0.5)), 16, 2.0**-100),
)


@pytest.mark.parametrize("release_curve", [weights(), *HOSTILE])
def test_knots_give_the_table_in_exact_fractions(release_curve):
    table = [Fraction(value, ONE) for value in release_curve.law.cumulative]
    knots = [(0, Fraction(0)), *((n, Fraction(p)) for n, p in release_curve.knots)]
    assert table[0] == 0 and table[-1] == 1 and len(table) == 2 * knots[-1][0] + 1
    for (n, p), (n2, p2) in itertools.pairwise(knots):
        for m in range(n, n2 + 1):
            line = p + (p2 - p) * Fraction(m - n, n2 - n)
            assert line - Fraction(1, ONE) < table[m] <= line
            assert table[-1 - m] == 1 - table[m]


def left_of(p: Fraction, q: Fraction, t: Fraction) -> tuple[tuple[Fraction, Fraction], ...]:
    """For 1 and 0, what is left of B(p) and B(q), p <= q, when a mass of at most t is taken off at 0 and at 1."""
    off = min(t, q - p)
    return (p, q - off), (1 - p - off, 1 - q)


@pytest.mark.parametrize("release_curve", [weights(), weights(13.0, 2, 3), weights(grid=1), *HOSTILE])
@pytest.mark.parametrize("order", [2, 3, 8, 30])
def test_costs_of_weights_are_those_of_fractions(order, release_curve):
    """All n, both directions, several steps: mass set aside, mass of one side alone, divergence of the rest."""
    p = [Fraction(value, ONE) for value in release_curve.law.cumulative]
    for steps in {1, release_curve.grid // 2 or 1, max(1, 3 * release_curve.grid // 4), release_curve.grid}:
        t = Fraction(release_curve.outside) * steps**2 / release_curve.grid**2
        worst, missing = 0.0, t
        for n in range(len(p) - 1):
            pair = left_of(p[n], p[min(n + steps, len(p) - 1)], t)
            off = 1 - pair[0][0] - pair[1][0]
            for side in (0, 1):
                alone = sum(sides[side] for sides in pair if not sides[1 - side])
                missing = max(missing, off + alone)
                terms = [(sides[side], sides[1 - side]) for sides in pair if all(sides)]
                moment = sum((a**order / b ** (order - 1) for a, b in terms), Fraction(0))
                if moment:
                    big = moment > 2  # math.log of a fraction would make a float of it first
                    log = (
                        math.log(moment.numerator) - math.log(moment.denominator)
                        if big
                        else math.log1p(moment - 1)
                    )
                    worst = max(worst, log / (order - 1))
        stated = release_curve.divergence(order, steps)
        assert worst * (1 - 1e-12) <= stated <= worst * (1 + 1e-9) + 1e-15
        assert float(missing) * (1 - 1e-15) <= release_curve.missing(steps) <= float(missing) * (1 + 1e-15)


@pytest.mark.parametrize("release_curve", [weights(), *HOSTILE[:2]])
def test_what_is_left_of_a_bit_is_that_of_fractions(release_curve):
    """Each number by itself: where the worst n is another one, a wrong side would not be seen in the cost."""
    p = [Fraction(value, ONE) for value in release_curve.law.cumulative]
    for steps in (1, release_curve.grid):
        t = Fraction(release_curve.outside) * steps**2 / release_curve.grid**2
        logs = coins._moved_logs(release_curve, steps)
        for n in range(len(logs[0][0])):
            yes, no = left_of(p[n], p[min(n + steps, len(p) - 1)], t)
            for side, exact in zip(logs, (yes, no)):
                for log, value in zip(side, exact):
                    assert math.exp(log[n]) == pytest.approx(float(value), rel=1e-12)


@settings(max_examples=60, deadline=None)
@given(
    rises=st.lists(st.tuples(st.integers(1, 3), st.floats(1e-6, 1.0)), min_size=1, max_size=5),
    grid=st.sampled_from([1, 2, 4]),
    outside=st.floats(1e-6, 0.3),
    items=st.integers(1, 3),
    epsilon=st.floats(0.1, 3.0),
    data=st.data(),
)
def test_whatever_the_knots_say_the_cost_holds_by_definition(rises, grid, outside, items, epsilon, data):
    """Items of one user at any levels, moved by what the event says: the sum over all bits, both directions."""
    total_rise, n, p, knots = sum(rise for _, rise in rises), 0, 0.0, []
    for step, rise in rises:
        n, p = n + step, p + 0.5 * rise / total_rise
        knots.append((n, math.ldexp(math.floor(math.ldexp(p, 60)), -60)))
    knots[-1] = (n, 0.5)
    outside = math.ldexp(math.floor(math.ldexp(outside, 60)), -60)
    event = WeightedBernoulliEvent(tuple(knots), grid, outside, ((items, grid),))
    stated = account(ComposedEvent("renyi", (event,), epsilon=epsilon), epsilon).delta
    table, _ = event.curve.law.probabilities
    levels = data.draw(st.lists(st.integers(0, len(table) - 1), min_size=items, max_size=items))
    fewer = [float(table[at]) for at in levels]
    more = [float(table[min(at + grid, len(table) - 1)]) for at in levels]
    for here, there in ((more, fewer), (fewer, more)):
        delta = 0.0
        for bits in itertools.product((0, 1), repeat=items):
            a, b = (math.prod(q if bit else 1 - q for q, bit in zip(side, bits)) for side in (here, there))
            delta += max(0.0, a - math.exp(epsilon) * b)
        assert delta <= stated * (1 + 1e-9)


def test_users_of_many_items_cost_no_more_than_users_of_few():
    """Items at mixed levels, by the definition of (epsilon, delta): 2 of weight 1, 3 of 3/4, 8 of 1/2."""
    release_curve = weights(7.0, grid=4, full=2, delta=1e-2)
    table, _ = release_curve.law.probabilities
    moves = ((2, 4), (3, 3), (8, 2))
    event = WeightedBernoulliEvent(release_curve.knots, release_curve.grid, release_curve.outside, moves)
    stated = account(ComposedEvent("renyi", (event,), epsilon=EPSILON)).delta
    rng, worst = np.random.default_rng(7), 0.0
    for _ in range(300):
        items, steps = moves[rng.integers(len(moves))]
        at = rng.integers(0, len(table) - 1, items) * rng.integers(0, 2)
        fewer, more = table[at], table[np.minimum(at + steps, len(table) - 1)]
        for here, there in ((more, fewer), (fewer, more)):
            a = b = np.ones(1)
            for q, r in zip(here, there):
                a, b = np.concatenate([a * q, a * (1 - q)]), np.concatenate([b * r, b * (1 - r)])
            worst = max(worst, float(np.maximum(a - math.exp(EPSILON) * b, 0).sum()))
    assert 0.3 * stated < worst <= stated


@pytest.mark.parametrize(
    "arguments",
    [
        ((), 4, 1e-3),
        (((1, 0.25),), 4, 2.0**-9),
        (((2, 0.25), (2, 0.5)), 4, 2.0**-9),
        (((1, 0.25), (2, 0.125), (3, 0.5)), 4, 2.0**-9),
        (((0, 0.25), (3, 0.5)), 4, 2.0**-9),
        (((1, 0.25), (10**9, 0.5)), 4, 2.0**-9),
        (((1, 0.25), (3, 0.5)), 3, 2.0**-9),
        (((1, 0.25), (3, 0.5)), 4, 0.0),
        (((1, 0.25), (3, 0.5)), 4, 1.0),
        (((1, 0.25), (3, 0.5)), 4, 2.0**-129),
        (((1, math.nan), (3, 0.5)), 4, 2.0**-9),
    ],
)
def test_what_is_no_curve_of_weights_is_refused(arguments):
    with pytest.raises(ValueError):
        WeightCurve(*arguments)


def test_a_ledger_of_weights_is_verified_from_its_numbers():
    release_curve = weights()
    moves = ((4, 8), (7, 6), (16, 4))
    event = WeightedBernoulliEvent(release_curve.knots, 8, release_curve.outside, moves, label="bits")
    spent = account(ComposedEvent("renyi", (event,)), EPSILON).delta
    values = json.loads(ledger(event, spent * (1 + 1e-9)).to_json())
    assert Ledger.from_json(json.dumps(values)).events.parts == (event,)
    changes = (
        lambda e: e["moves"][-1].__setitem__(0, 24),
        lambda e: e["moves"][0].__setitem__(0, 5),
        lambda e: e.update(outside=e["outside"] * 2),
        lambda e: e.update(outside=e["outside"] / 64),
        lambda e: e["knots"].__setitem__(slice(6, 12), [[12, e["knots"][11][1]]]),
        lambda e: [knot.__setitem__(0, knot[0] // 2 + 1 if i else 1) for i, knot in enumerate(e["knots"])],
    )
    for change in changes:
        tampered = json.loads(json.dumps(values))
        change(tampered["events"]["parts"][0])
        with pytest.raises(ValueError):
            Ledger.from_json(json.dumps(tampered))


def test_other_mechanisms_beside_coins():
    """Gaussian noise costs alpha/(2 sigma^2) in every order; what has no rho cannot be added."""
    event = BernoulliEvent(curve(5).corners, 5)
    both = account(ComposedEvent("renyi", (event, GaussianEvent(4.0, round=2)), epsilon=2.0)).delta
    divergence = 5 * np.array([event.curve.divergence(order) for order in ORDERS]) + ORDERS / 32
    assert both == pytest.approx(renyi_delta(divergence, ORDERS, 2.0).min() + 5 * event.curve.novel, rel=1e-9)
    assert account(ComposedEvent("renyi", (event, LaplaceEvent(4.0, round=2)), epsilon=2.0)).delta < 1
    assert event.zcdp_rho() is None and event.pure_epsilon() is None and event.gaussian_sigma() is None
    for kind in ("zcdp", "gaussian", "pure"):
        with pytest.raises(UnknownEventError, match=f"a {kind} composition cannot hold"):
            account(ComposedEvent(kind, (event,)), 1.0)
    basic = ComposedEvent("basic", (ComposedEvent("renyi", (event,), epsilon=1.0), PureEvent(0.5)))
    spent = account(basic)
    assert spent.epsilon == pytest.approx(1.5) and spent.delta == pytest.approx(total(event))
    with pytest.raises(UnknownEventError, match="a basic composition cannot hold"):
        account(ComposedEvent("basic", (ComposedEvent("renyi", (event,)),)))


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-5), (0.1, 1e-15), (4.0, 1e-2)])
def test_one_item_and_one_round_cost_their_exact_delta(epsilon, delta):
    release_curve = pure_curve(epsilon, delta)
    stated = total(BernoulliEvent(release_curve.corners, 1), epsilon * (1 + 1e-9))
    assert stated == pytest.approx(delta, rel=1e-6)
    assert total(BernoulliEvent(release_curve.corners, 1), 0.9 * epsilon) > 1.5 * delta


# The ledger.


def ledger(event: BernoulliEvent, delta: float) -> Ledger:
    return Ledger("bits", EPSILON, delta, "renyi", ComposedEvent("renyi", (event,), epsilon=EPSILON))


def test_a_ledger_is_verified_from_its_numbers():
    event = BernoulliEvent(curve().corners, 8, label="bits")
    assert event_from_dict(json.loads(json.dumps(event_to_dict(event)))) == event
    text = ledger(event, 1.000001e-3).to_json()
    assert Ledger.from_json(text).events.parts == (event,)
    assert len(text) < 12_000


@pytest.mark.parametrize(
    "tamper",
    [
        lambda e: e.update(max_items=9),
        lambda e: e["corners"][0].__setitem__(1, e["corners"][1][1]),
        lambda e: e["corners"].__setitem__(slice(3, 7), [[e["corners"][3][0], e["corners"][6][1]]]),
    ],
)
def test_a_tampered_ledger_is_refused(tamper):
    """More items, a step that is larger than it says: the cost follows, and exceeds the budget."""
    event = BernoulliEvent(curve().corners, 8)
    values = json.loads(ledger(event, 1.000001e-3).to_json())
    tamper(values["events"]["parts"][0])
    with pytest.raises(OverspentError):
        Ledger.from_json(json.dumps(values))


def fine_ledger() -> dict:
    """A ledger of coins whose users of 16, 40 and 90 items give each 4, 2 and 1 steps."""
    fine = refined(curve(90), 4)
    event = BernoulliEvent(fine.corners, 90, start=fine.start, moves=((16, 4), (40, 2), (90, 1)))
    spent = account(ComposedEvent("renyi", (event,)), 3.0)
    return json.loads(Ledger("bits", 3.0, spent.delta, "renyi", ComposedEvent("renyi", (event,))).to_json())


@pytest.mark.parametrize(
    "change",
    [
        {"max_items": 10**6},
        {"max_items": 89},
        {"moves": [[16, 4]]},
        {"moves": [[40, 2]]},
        {"moves": [[90, 1]]},
        {"moves": [[16, 4], [40, 2]]},
        {"moves": [[40, 2], [90, 1]]},
        {"moves": [[16, 4], [40, 4], [90, 1]]},
        {"moves": [[16, 4], [16, 2], [90, 1]]},
        {"moves": [[16, 5], [40, 2], [90, 1]]},
        {"moves": []},
    ],
)
def test_the_moves_of_a_ledger_are_tied_to_its_items(change):
    """What a ledger says of users of up to max_items items covers all of them: nothing is raised or dropped unseen."""
    values = fine_ledger()
    Ledger.from_json(json.dumps(values))
    values["events"]["parts"][0].update(change)
    with pytest.raises(ValueError, match="moves must say for every number of counts"):
        Ledger.from_json(json.dumps(values))


def test_coins_are_held_against_what_a_program_draws():
    event = BernoulliEvent(curve().corners, 8, round=2)
    moves = ((8, 1),)
    check_same_noise([event.noise], [CoinNoise(curve(), 2, moves)])
    others = (CoinNoise(curve(), 1, moves), CoinNoise(curve(9), 2, moves), CoinNoise(curve(), 2, ((9, 1),)))
    for other in (*others, CoinNoise(curve(), 2), NoiseSpec("gaussian", 1.0, 2)):
        with pytest.raises(ValueError, match="the ledger states coins"):
            check_same_noise([event.noise], [other])


def test_a_threshold_finds_no_noise_in_coins():
    event = BernoulliEvent(curve().corners, 8)
    threshold = ThresholdEvent(5.0, 1e-3, 1.0, 8)
    with pytest.raises(InconsistentEventError, match="needs noise on weights, not coins"):
        account(ComposedEvent("renyi", (event, threshold), epsilon=1.0))
