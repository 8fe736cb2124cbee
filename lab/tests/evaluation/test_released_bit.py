"""The best curves under approximate Renyi DP against the definition, the known limit and exact sums over outputs."""

import itertools
import math

import numpy as np
import pytest
from dp_accounting.rdp.rdp_privacy_accountant import compute_delta
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from dpbeam.accounting.coins import weight_curve
from dpbeam.accounting.limits import release_probability_limit
from dpbeam.accounting.renyi import likely_order, renyi_budget
from dpbeam.selectors.mad.kernels import MadTables
from dpbeam_lab.evaluation import released_bit
from dpbeam_lab.evaluation.allocation import ReleaseCurve
from dpbeam_lab.evaluation.released_bit import (
    _equal_weights,
    _mad_weights,
    mad2r_bits,
    policy_bits,
    stages,
    uniform_bits,
    weight_of,
    weighted_curve,
)
from tests.support.instances import csr


def renyi(p: float, q: float, order: float) -> float:
    """The larger of both divergences between B(p) and B(q), by the definition."""

    def one(p: float, q: float) -> float:
        terms = [
            order * math.log(a) + (1 - order) * math.log(b) if a else -math.inf
            for a, b in ((p, q), (1 - p, 1 - q))
            if a or b
        ]
        top = max(terms)
        return (top + math.log(sum(math.exp(term - top) for term in terms))) / (order - 1)

    return max(one(p, q), one(q, p))


def best_by_search(p: float, order: float, divergence: float, t: float) -> float:
    """The largest chance next to p, over all mixtures with a part of mass t, p' on a grid."""
    best = 0.0
    for second in np.linspace(0, 1, 21):
        inside = (p - t * second) / (1 - t)
        if not 0 < inside < 1:
            continue
        high = 1 - 1e-15
        step = high
        if renyi(inside, high, order) > divergence:
            step = brentq(lambda y, x=inside: renyi(x, y, order) - divergence, inside, high, xtol=1e-15)
        best = max(best, (1 - t) * step + t)
    return best


@pytest.mark.parametrize(
    ("order", "divergence", "t"), [(2.0, 0.3, 1e-3), (8.0, 0.2, 1e-5), (17.0, 0.5, 1e-4)]
)
def test_a_step_is_the_best_of_all_mixtures(order, divergence, t):
    curve = weighted_curve(order, divergence, t, steps=1).chance
    assert curve[0] == 0 and curve[1] == t
    for p, q in itertools.pairwise(curve[1:-2]):
        assert q == pytest.approx(best_by_search(float(p), order, divergence, t), rel=1e-9)


def test_a_large_order_gives_the_best_of_epsilon_delta():
    epsilon, delta = 1.0, 1e-5
    curve = weighted_curve(1e5, epsilon, delta, steps=1).chance
    limit = np.asarray(release_probability_limit(np.arange(len(curve)), epsilon, delta))
    assert np.all(curve >= limit * (1 - 1e-9))  # a divergence of finite order asks less
    np.testing.assert_allclose(curve[:-1], limit[:-1], rtol=2e-3)


def reduced(low: float, high: float, t: float) -> tuple[float, float]:
    return low / (1 - t), (high - t) / (1 - t)


@pytest.mark.parametrize(("cap", "flat"), [(1.0, None), (0.25, None), (1.0, 100)])
def test_all_moves_on_the_grid_obey_and_each_point_is_as_high_as_it_can_be(cap, flat):
    order, budget, delta, steps = 14.0, 0.35, 4e-6, 6
    curve = weighted_curve(order, budget, delta, cap=cap, steps=steps, flat_items=flat)
    tight, end = 0, int(np.searchsorted(curve.chance, 1 - 1e-6))  # floats next to 1 say little
    for n in range(1, end):
        slack = math.inf
        for j in range(1, min(n, steps) + 1):
            t = delta / flat if flat else delta * (j * curve.step) ** 2
            p, q = reduced(float(curve.chance[n - j]), float(curve.chance[n]), t)
            if p == 0 or q <= p:
                assert p > 0 or q <= 1e-18
                slack = min(slack, abs(q) if p == 0 else slack)
                continue
            room = budget * (j * curve.step) ** 2 - renyi(p, q, order)
            slack = min(slack, room / (budget * (j * curve.step) ** 2))
        assert slack > -1e-7
        tight += slack < 1e-7
    assert tight == end - 1


def test_between_grid_points_the_middle_obeys_too():
    order, budget, delta, steps, fine = 17.0, 0.5, 5e-6, 16, 4
    curve = weighted_curve(order, budget, delta, steps=steps)
    angle = np.arcsin(np.sqrt(curve.chance))
    place = np.arange(0, len(angle) - 1, 1 / fine)
    values = np.sin(np.interp(place, np.arange(len(angle)), angle)) ** 2
    first, last = np.searchsorted(values, (1e-6, 1 - 1e-6))
    for n in range(first, last, 37):
        for j in range(1, steps * fine + 1, 3):
            x = j * curve.step / fine
            p, q = reduced(float(values[n - j]), float(values[n]), delta * x * x)
            assert q <= p or p < 1e-6 or renyi(p, q, order) <= 1.01 * budget * x * x


def hockey_stick(ps: list[float], qs: list[float], epsilon: float) -> float:
    """Exact delta of independent bits with chances ps next to qs."""
    a, b = np.ones(1), np.ones(1)
    for p, q in zip(ps, qs):
        a, b = np.concatenate((a * p, a * (1 - p))), np.concatenate((b * q, b * (1 - q)))
    return float(np.maximum(0.0, a - math.exp(epsilon) * b).sum())


def worst_delta(curve: ReleaseCurve, moves: list[int], epsilon: float, rng: np.random.Generator) -> float:
    """The largest exact delta over levels of the items that a user moves by so many steps: all alike, and mixed."""
    top = len(curve.chance) - 1
    levels = [[n] * len(moves) for n in range(0, top, 5)]
    levels += [rng.integers(0, top, len(moves)).tolist() for _ in range(30)]
    worst = 0.0
    for at in levels:
        low = [float(curve.chance[n]) for n in at]
        high = [float(curve.chance[min(n + k, top)]) for n, k in zip(at, moves)]
        worst = max(worst, hockey_stick(high, low, epsilon), hockey_stick(low, high, epsilon))
    return worst


@pytest.mark.parametrize("epsilon", [1.0, 3.0])
def test_users_of_any_weights_stay_within_the_budget_by_definition(epsilon):
    delta, steps = 1e-3, 8
    plan = stages(epsilon, delta)
    curve = weighted_curve(plan.order, plan.divergences[0], plan.deltas[0], steps=steps)
    rng = np.random.default_rng(5)
    for moves in ([8], [4, 4, 4, 4], [7, 3, 2, 1], [5, 5, 3, 2], [2] * 7):
        assert sum(move * move for move in moves) <= steps * steps
        assert worst_delta(curve, moves, epsilon, rng) <= delta
    # All of delta for each novel item, whatever its weight, is too much; so is a user of twice the norm.
    generous = weighted_curve(plan.order, plan.divergences[0], plan.deltas[0], steps=steps, flat_items=1)
    assert worst_delta(generous, [2] * 7, epsilon, rng) > delta
    assert worst_delta(curve, [8] * 4, epsilon, rng) > delta


@pytest.mark.parametrize("shares", [(1.0,), (0.3, 0.7)])
def test_stages_cost_what_the_budget_has_by_another_accountant(shares):
    plan = stages(1.0, 1e-5, shares)
    spent = compute_delta([plan.order], [sum(plan.divergences)], 1.0)[0]
    assert spent + sum(plan.deltas) == pytest.approx(1e-5, rel=1e-6)
    np.testing.assert_allclose(np.array(plan.deltas) / sum(plan.deltas), shares)
    np.testing.assert_allclose(np.array(plan.divergences) / sum(plan.divergences), shares)


def test_stages_refuse_a_budget_that_no_curve_meets(monkeypatch):
    monkeypatch.setattr(released_bit, "_LONGEST", 20)
    with pytest.raises(ValueError, match="too small"):
        stages(0.01, 1e-5)


def test_basic_releases_with_the_chances_of_the_curve():
    """800 items of 4 users with one item: binomial, false alarm 1e-7 (5.4 deviations)."""
    items, users = 800, 4
    sets = csr([[item] for item in range(items) for _ in range(users)])
    chance = float(stages(2.0, 1e-3).last.at(np.array([float(users)]))[0])
    assert 0.02 < chance < 0.5
    released = uniform_bits(sets, items, 2.0, 1e-3, rng=np.random.default_rng(1)).sum()
    assert abs(released - items * chance) < 5.4 * math.sqrt(items * chance * (1 - chance))
    sips = uniform_bits(sets, items, 2.0, 1e-3, rng=np.random.default_rng(1), budget_split=(0.3, 0.7))
    assert 0 < sips.sum() < released  # users of one item gain nothing by rounds


@given(
    st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=6, unique=True), min_size=1, max_size=30),
    st.floats(1.0, 2.0),
)
@settings(max_examples=50, deadline=None)
def test_a_user_moves_the_weights_of_mad_by_at_most_one(rows, tau):
    tables = MadTables.create(tau=tau, max_adaptive_degree=6, b_min=1.0)

    def weights(rows: list[list[int]]) -> np.ndarray:
        return _mad_weights(csr(rows), tables, _equal_weights, 6)

    assert np.linalg.norm(weights(rows) - weights(rows[:-1])) <= 1 + 1e-7


@pytest.mark.parametrize("method", [mad2r_bits, policy_bits, uniform_bits])
def test_what_many_hold_is_released_and_what_nobody_shares_is_not(method):
    sets = csr([[0, 1, 2 + user] for user in range(400)])
    marks = method(sets, 403, 1.0, 1e-5, rng=np.random.default_rng(2))
    assert marks[:2].all() and not marks[2:].any()  # false alarm: 401 chances of at most 1e-5 / 3


def test_mad2r_gives_more_where_a_heavy_item_takes_weight():
    """Users of one item that all hold and two of 300; means of three keys, as in lab/docs/reference/results.md."""
    rng = np.random.default_rng(3)
    sets = csr([[0, *(1 + rng.choice(300, 2, replace=False))] for _ in range(4000)])
    released = {
        method: sum(method(sets, 301, 1.0, 1e-5, rng=np.random.default_rng(key)).sum() for key in range(3))
        for method in (mad2r_bits, uniform_bits)
    }
    assert released[mad2r_bits] > released[uniform_bits] > 0


def test_the_weight_of_a_chance():
    curve = ReleaseCurve(0.5, np.array([0.0, 0.2, 0.6, 1.0]))
    assert weight_of(curve, 0.4) == pytest.approx(0.75)


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-5), (0.5, 1e-5), (4.0, 1e-8)])
def test_the_fastest_weights_of_bits_are_those_found_here(epsilon, delta):
    """`released_bit` solves for each p_n; knots and interpolation cost 1 % of the weight for an even chance at most."""
    order = 1 + likely_order(epsilon, delta)
    divergence, outside = renyi_budget(order, epsilon, 0.7 * delta) / 16, 0.3 * delta / 16
    curve = weight_curve(order, divergence, outside, 16)
    best = weighted_curve(order, 16 * divergence, 16 * outside, cap=0.25, steps=16, up_to=0.5)
    assert curve.law.threshold / 64 == pytest.approx(weight_of(best, 0.5), rel=0.01)
    chances = curve.law.release_probability(np.arange(len(best.chance) - 1))
    np.testing.assert_allclose(chances, best.chance[:-1], rtol=0.3)
    assert np.all(chances[:17] <= outside * (np.arange(17) / 16) ** 2 * (1 + 1e-12))
    assert curve.divergence(order, 16) == pytest.approx(divergence, rel=0.05)
    for steps in (1, 5, 11):
        assert curve.divergence(order, steps) <= 1.1 * divergence * (steps / 16) ** 2
        assert curve.missing(steps) == pytest.approx(outside * (steps / 16) ** 2)
