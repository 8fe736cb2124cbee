"""MaxAdaptiveDegree on integers: exact sensitivity, agreement with exact arithmetic, dominance over Basic."""

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbeam.kernels import csr as csr_module
from dpbeam.kernels.csr import Csr, uniform_weights
from dpbeam.kernels.grid import UNITS, uniform_l2_units
from dpbeam.selectors.mad.kernels import (
    MAX_ADAPTIVE_DEGREE,
    MadTables,
    _exact_product,
    excess_ratio,
    initial_sums,
    reroute_discount,
    second_sums,
    total_weight,
)
from dpbeam.selectors.mad.weights import user_weights
from tests.support.instances import csr

ONE = 1 << 152  # squared norm of one; exact totals are integers in units of 2^-76
L2 = uniform_l2_units(64)


def equal_weights(rows: Csr) -> np.ndarray:
    return uniform_weights(rows, L2)


def direct_weights(bias: np.ndarray | None, b_min: float, b_max: float) -> Callable[[Csr], np.ndarray]:
    return equal_weights if bias is None else lambda rows: user_weights(rows, bias[rows.links], b_min, b_max)


def totals(sets, tables: MadTables, num_items: int, bias=None, b_min=1.0, b_max=1.0) -> list[int]:
    """Exact final weights of all items in units of 2^-76, as the program computes them before noise."""
    rows = csr(sets)
    initial = initial_sums(rows, tables, num_items)
    ratio = excess_ratio(initial, tables.tau_units)
    direct = direct_weights(bias, b_min, b_max)
    units, rest = total_weight(
        initial, *second_sums(rows, tables, direct, ratio, num_items), tables.tau_units
    )
    return [(int(u) << 46) + int(r) for u, r in zip(units, rest)]


def squared_change(sets, extra, tables, num_items, **options) -> float:
    """Squared l2 norm of the change that one more user makes, compared exactly; returned relative to one."""
    before = totals(sets, tables, num_items, **options)
    after = totals([*sets, extra], tables, num_items, **options)
    return Fraction(sum((b - a) ** 2 for a, b in zip(before, after)), ONE)


def heavy_instance(rng, d_max: int, tau: float, b_min: float):
    """Users around a few items near the adaptive threshold, and a user who tips them: half of them as in the proof.

    The proof is tight where what v reroutes lands on v's own items: one item is held by m users, all but a few of
    whom hold the other items of v too, and these stay just below the threshold.
    """
    if rng.random() < 0.5:
        degree = d_max if rng.random() < 0.7 else int(rng.integers(2, d_max + 1))
        together = max(1, int(tau * degree) - 1 - int(rng.integers(0, 2)))
        apart = int(rng.integers(1, 4))
        sets = [list(range(degree)) for _ in range(together)]
        fresh = degree
        for _ in range(apart):
            sets.append([0, *range(fresh, fresh + degree - 1)])
            fresh += degree - 1
        heavy = int(rng.integers(1, 3))
        if heavy == 2 and degree > 2:
            for _ in range(apart):
                sets.append([1, *range(fresh, fresh + degree - 1)])
                fresh += degree - 1
        return sets, list(range(degree)), fresh
    items = int(rng.integers(2, 3 * d_max))
    sets = [
        rng.choice(items, min(items, int(rng.integers(1, d_max + 3))), replace=False).tolist()
        for _ in range(int(rng.integers(3, 60)))
    ]
    extra = rng.choice(items + 5, int(rng.integers(1, min(items, d_max) + 3)), replace=False).tolist()
    return sets, extra, items + 5


@pytest.mark.parametrize("d_max,b_min", [(4, 1.0), (5, 0.75), (9, 0.5), (16, 1.0)])
def test_one_user_moves_weights_by_at_most_one(d_max, b_min):
    """Exact l2 sensitivity over instances with heavy items; the bound is nearly reached, and alpha matters."""
    rng = np.random.default_rng([d_max, int(b_min * 4)])
    largest = moved = Fraction(0)
    planted = Fraction(0)
    for _ in range(150):
        tau = float(rng.choice([1.0, 1.0 + rng.random(), 1 + 3 * rng.random()]))
        tables = MadTables.create(tau=tau, max_adaptive_degree=d_max, b_min=b_min)
        sets, extra, num_items = heavy_instance(rng, d_max, tau, b_min)
        options = {}
        if b_min < 1:
            bias = np.where(rng.random(num_items) < 0.5, rng.random(num_items), 1.0)
            bias[:2] = rng.choice([0.1, 1.0])
            options = {"bias": bias, "b_min": b_min, "b_max": float(rng.choice([1.0, 2.0, 4.0]))}
        change = squared_change(sets, extra, tables, num_items, **options)
        assert change <= 1, (float(change), sets, extra)
        largest = max(largest, change)
        moved += any(
            r > 0 for r in excess_ratio(initial_sums(csr(sets), tables, num_items), tables.tau_units)
        )
        # Planted fault: alpha = b_min, without the 1/(2 sqrt(d_max)) that the proof takes off.
        whole = np.floor(tables.initial * (b_min / d_max * 2.0**-6)).astype(np.int64)
        wrong = replace(tables, coefficient=whole)
        planted = max(planted, squared_change(sets, extra, wrong, num_items, **options))
    assert moved > 40
    assert largest > 0.95
    assert planted > 1


@settings(max_examples=60)
@given(
    st.lists(st.frozensets(st.integers(0, 9), min_size=1, max_size=8), min_size=1, max_size=30),
    st.frozensets(st.integers(0, 11), min_size=1, max_size=8),
    st.integers(4, 7),
    st.floats(1.0, 3.0),
    st.sampled_from([0.5, 0.6, 1.0]),
    st.lists(st.floats(0, 1), min_size=12, max_size=12),
)
def test_sensitivity_on_arbitrary_small_inputs(sets, extra, d_max, tau, b_min, bias):
    tables = MadTables.create(tau=tau, max_adaptive_degree=d_max, b_min=b_min)
    options = {} if b_min == 1 else {"bias": np.array(bias), "b_min": b_min, "b_max": 2.0}
    assert squared_change([sorted(s) for s in sets], sorted(extra), tables, 12, **options) <= 1


@settings(max_examples=100)
@given(
    st.lists(st.frozensets(st.integers(0, 7), min_size=1, max_size=7), min_size=4, max_size=30),
    st.integers(1, 6),
    st.integers(0, 6),
    st.floats(1.0, 2.0),
    st.sampled_from([(1.0, 1.0), (0.5, 2.0), (0.7, 1.3)]),
)
def test_novel_items_weigh_at_most_b_max_over_root_t(sets, novel, known, tau, bounds):
    b_min, b_max = bounds
    tables = MadTables.create(tau=tau, max_adaptive_degree=7, b_min=b_min)
    extra = [*range(known), *range(20, 20 + novel)]
    bias = None if b_min == 1 else np.where(np.arange(30) < 8, 0.3, 1.0)
    weights = totals([*[sorted(s) for s in sets], extra], tables, 30, bias, b_min, b_max)
    for item in range(20, 20 + novel):
        assert Fraction(weights[item] ** 2 * novel, ONE) <= Fraction(b_max) ** 2


def exact_totals(sets, tables: MadTables, num_items: int, tau: Fraction, alpha: Fraction):
    """Algorithm 2 in rational arithmetic but for the direct weights, which come from the integer table.

    Returns w_init, the rerouted part and the total, per item.
    """
    initial, rerouted, direct = ([Fraction(0)] * num_items for _ in range(3))
    adaptive = [s for s in sets if tables.min_degree <= len(s) <= tables.max_degree]
    for s in adaptive:
        for i in s:
            initial[i] += Fraction(1, len(s))
    ratio = [max(Fraction(0), (w - tau) / w) if w else Fraction(0) for w in initial]
    for s in adaptive:
        excess = sum(ratio[i] for i in s) / len(s)
        for i in s:
            rerouted[i] += alpha * excess / tables.max_degree
            direct[i] -= Fraction(1, len(s))
    for s in sets:
        for i in s:
            direct[i] += Fraction(int(L2[len(s)]), UNITS)
    return initial, rerouted, [min(w, tau) + r + d for w, r, d in zip(initial, rerouted, direct)]


def crowd(seed: int, d_max: int = 7) -> tuple[list[list[int]], int]:
    rng = np.random.default_rng(seed)
    share = 1.0 / np.arange(1, 16)
    sets = [
        sorted(rng.choice(15, int(rng.integers(1, d_max + 4)), replace=False, p=share / share.sum()).tolist())
        for _ in range(50)
    ]
    return sets, 15


@pytest.mark.parametrize("seed", range(8))
def test_weights_equal_exact_arithmetic_within_the_discount(seed):
    """Rerouted weight is at most the exact one and short of it by the coefficients' rounding alone."""
    d_max, tau = 7, 1.0 + seed / 4
    sets, items = crowd(seed)
    tables = MadTables.create(tau=tau, max_adaptive_degree=d_max, b_min=1.0)
    alpha = 1 - 1 / (2 * math.sqrt(d_max))
    initial, rerouted, exact = exact_totals(sets, tables, items, Fraction(tau), Fraction(alpha))
    assert sum(w > tau for w in initial) >= 3
    assert sum(r > 0 for r in rerouted) >= 10
    # relative: one unit of 2^-24 of the smallest coefficient alpha/d_max^2, and the discount of alpha itself
    relative = d_max**2 / alpha * 2.0**-24 + (1 - reroute_discount(1.0, d_max, tau) / alpha)
    steps = 2 * len(sets) / UNITS  # initial weights and tau on the grid
    for got, want, part in zip(totals(sets, tables, items), exact, rerouted):
        got = Fraction(got, 1 << 76)
        assert got <= want + Fraction(steps)
        assert got >= want - part * Fraction(relative) - Fraction(steps)


@pytest.mark.parametrize("seed", range(8))
def test_mad_dominates_basic_item_by_item(seed):
    """w_MAD >= w_Basic where w_init <= tau, and >= tau elsewhere: hence stochastic dominance."""
    tau = 1.0 + seed / 3
    sets, items = crowd(seed + 100)
    tables = MadTables.create(tau=tau, max_adaptive_degree=7, b_min=1.0)
    initial = initial_sums(csr(sets), tables, items)
    basic = csr(sets).item_sums(uniform_weights(csr(sets), L2), items)
    mad = totals(sets, tables, items)
    better = 0
    for i in range(items):
        if initial[i] <= tables.tau_units:
            assert mad[i] >= int(basic[i]) << 46
            better += mad[i] > int(basic[i]) << 46
        else:
            assert mad[i] >= tables.tau_units << 46
    assert better >= 3


@given(st.integers(0, 2**62), st.integers(UNITS, 2**40))
def test_excess_ratio_is_the_positive_part_rounded_down(initial, tau):
    """max, not the printed min: positive above tau only, and within 1.5 units of 2^-52 of the real number."""
    ratio = int(excess_ratio(np.array([initial]), tau)[0])
    clipped = min(initial, 2**53 - 1)
    exact = max(Fraction(0), Fraction(clipped - tau, max(clipped, 1)))
    assert 0 <= ratio < 2**52
    assert abs(Fraction(ratio, 2**52) - exact) <= Fraction(3, 2**53)
    assert (ratio > 0) == (initial > tau) or exact < Fraction(2, 2**52)


def test_excess_ratio_is_monotone():
    values = np.unique(np.random.default_rng(1).integers(0, 2**55, 20_000))
    ratio = excess_ratio(values, 3 * UNITS)
    assert ratio.dtype == np.int64
    assert (np.diff(ratio) >= 0).all()
    near = excess_ratio(np.arange(3 * UNITS - 3, 3 * UNITS + 2000), 3 * UNITS)
    assert near[:4].tolist() == [0, 0, 0, 0]
    assert (np.diff(near[3:]) > 0).all()


@given(
    st.lists(
        st.tuples(st.integers(0, 2**24), st.integers(0, MAX_ADAPTIVE_DEGREE * 2**52)), min_size=1, max_size=20
    )
)
def test_products_are_exact(rows):
    coefficient, ratio = (np.array(side, np.int64) for side in zip(*rows))
    for (c, r), coarse, fine in zip(rows, *_exact_product(coefficient, ratio)):
        assert c * r == (int(coarse) << 38) + int(fine)
        assert 0 <= fine < 1 << 38


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("at_once", [1 << 18, 64])
def test_second_sums_are_exact(seed, at_once, monkeypatch):
    """Against Python's integers, with any ratios and direct weights up to one, in one part and in many."""
    monkeypatch.setattr(csr_module, "PAIRS_AT_ONCE", at_once)
    rng = np.random.default_rng(seed)
    tables = MadTables.create(tau=3.0, max_adaptive_degree=20, b_min=(0.5, 0.7, 1.0)[seed % 3])
    rows = csr([sorted(rng.choice(60, size, replace=False)) for size in rng.integers(0, 30, 200)])
    own, kept = rng.integers(0, UNITS + 1, 60), rng.random(len(rows.links)) < (seed + 1) / 4
    ratio = np.where(rng.random(60) < seed / 3, rng.integers(0, 1 << 52, 60), 0)
    expected = [0] * 60
    for start, stop in zip(rows.offsets, rows.offsets[1:]):
        items = rows.links[start:stop][kept[start:stop]].tolist()
        degree = len(items)
        adaptive = tables.min_degree <= degree <= tables.max_degree
        back = int(tables.coefficient[degree]) * sum(int(ratio[i]) for i in items) if adaptive else 0
        for item, units in zip(items, own[items].tolist()):
            expected[item] += ((units - (int(tables.initial[degree]) if adaptive else 0)) << 46) + back
    whole, high, low = second_sums(rows, tables, lambda part: own[part.links], ratio, 60, kept)
    assert [(int(w) << 46) + (int(h) << 23) + int(x) for w, h, x in zip(whole, high, low)] == expected
    for limb in (high, low):
        assert limb.min() >= 0 and limb.max() < 1 << 23


def test_more_users_than_sums_can_hold_are_refused():
    users = (1 << 23) + 1
    empty = Csr(np.zeros(users + 1, np.int64), np.zeros(0, np.int64))
    tables = MadTables.create(tau=3.0, max_adaptive_degree=20, b_min=1.0)
    with pytest.raises(ValueError, match="8388608 users"):
        second_sums(empty, tables, equal_weights, np.zeros(1, np.int64), 1)


@pytest.mark.parametrize("seed", range(4))
def test_blocks_add_up_exactly(seed):
    """Messages of several blocks sum to what one block sends, carries of the fractions included."""
    sets, items = crowd(seed)
    tables = MadTables.create(tau=1.25, max_adaptive_degree=7, b_min=1.0)
    initial = initial_sums(csr(sets), tables, items)
    ratio = excess_ratio(initial, tables.tau_units)
    parts = [sets[at::7] for at in range(7)]
    assert np.array_equal(sum(initial_sums(csr(p), tables, items) for p in parts), initial)
    sent = [second_sums(csr(p), tables, equal_weights, ratio, items) for p in parts]
    assert all((limb >= 0).all() and (limb < 1 << 23).all() for _, *limbs in sent for limb in limbs)
    units, rest = total_weight(initial, *map(sum, zip(*sent)), tables.tau_units)
    whole = totals(sets, tables, items)
    assert [(int(u) << 46) + int(r) for u, r in zip(units, rest)] == whole
    assert max(int(low.sum()) for *_, low in sent) > 0


def test_fractions_of_a_million_blocks_do_not_wrap():
    """2^20 blocks, each with the largest fraction there is: exact in integers."""
    blocks, largest = 1 << 20, (1 << 23) - 1
    sums = [np.array([blocks * value]) for value in (5, largest, largest)]
    units, rest = total_weight(np.array([0]), *sums, tau_units=1 << 30)
    exact = blocks * ((5 << 46) + (largest << 23) + largest)
    assert (int(units[0]) << 46) + int(rest[0]) == exact


def test_only_users_between_the_degree_bounds_are_adaptive():
    tables = MadTables.create(tau=1.0, max_adaptive_degree=6, b_min=0.5)
    assert tables.adaptive(np.array([0, 1, 3, 4, 6, 7])).tolist() == [False, False, False, True, True, False]
    assert MadTables.create(tau=1.0, max_adaptive_degree=6, b_min=1.0).min_degree == 1
    assert MadTables.create(tau=1.0, max_adaptive_degree=6, b_min=0.6).min_degree == 3
    rows = csr([[0, 1], [0, 1, 2, 3], list(range(7))])
    assert initial_sums(rows, tables, 8).tolist() == [UNITS // 4] * 4 + [0] * 4


@pytest.mark.parametrize("b_min", [0.5, 0.8, 1.0])
@pytest.mark.parametrize("d_max", [4, 50, 1024])
def test_discount_stays_just_below_the_alpha_of_the_paper(b_min, d_max):
    alpha = b_min - 1 / (2 * math.sqrt(d_max))
    for tau in (1.0, 30.0, 1000.0):
        discount = reroute_discount(b_min, d_max, tau)
        assert alpha * (1 - 2e-3) - 2e-4 < discount < alpha
    tables = MadTables.create(tau=30.0, max_adaptive_degree=d_max, b_min=b_min)
    for d in range(1, d_max + 1):
        exact = Fraction(alpha) * Fraction(UNITS // d, UNITS) / d_max * 2**24
        assert exact - 1 - exact / 1000 < int(tables.coefficient[d]) < exact


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tau": 0.999}, "MAD needs tau >= 1, got 0.999"),
        ({"tau": math.nan}, "MAD needs tau >= 1, got nan"),
        ({"max_adaptive_degree": 3}, "MAD needs 4 <= d_max <= 1024, got 3"),
        ({"max_adaptive_degree": 1025}, "MAD needs 4 <= d_max <= 1024, got 1025"),
        ({"b_min": 0.49}, r"MAD needs b_min in \[0.5, 1\], got 0.49"),
    ],
)
def test_preconditions_of_the_proof_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        MadTables.create(**{"tau": 2.0, "max_adaptive_degree": 8, "b_min": 1.0, **options})
