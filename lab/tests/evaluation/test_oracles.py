"""The sequential oracles against literal transcriptions, and their place among the parallel selectors."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dpbeam.accounting.gaussian import gaussian_sigma
from dpbeam.accounting.threshold import novel_threshold
from dpbeam.kernels.csr import Csr
from dpbeam_lab.evaluation.oracles import (
    greedy_single,
    greedy_update,
    greedy_weights,
    policy_gaussian,
    policy_weights,
    visits,
)
from tests.support.instances import csr

ITEMS = 12


def random_sets(seed: int, users: int = 400, items: int = 60) -> tuple[Csr, int]:
    rng = np.random.default_rng(seed)
    share = 1.0 / np.arange(1, items + 1)
    rows = [
        np.sort(rng.choice(items, min(items, int(rng.geometric(0.2))), replace=False, p=share / share.sum()))
        for _ in range(users)
    ]
    return csr([row.tolist() for row in rows]), items


rows_of_items = st.lists(
    st.lists(st.integers(0, ITEMS - 1), min_size=1, max_size=ITEMS, unique=True), max_size=40
)
above = st.floats(0.3, 6.0)


def policy_transcribed(users: list[list[int]], tau: float) -> list[float]:
    """Gopi et al. 2020, Algorithm 7: w += (tau - w) / max(1, |tau - w|) over the user's items below tau."""
    weight = np.zeros(ITEMS)
    for held in users:
        below = [item for item in held if weight[item] < tau]
        gap = tau - weight[below]
        norm = np.linalg.norm(gap)
        weight[below] += gap * min(1.0, norm) / norm if len(below) else 0.0
    return weight.tolist()


def greedy_transcribed(users: list[list[int]], tau: float) -> list[float]:
    """Carvalho et al. 2022: while the unit lasts, the next item is filled, up to tau at most."""
    weight = [0.0] * ITEMS
    for held in users:
        unit = 1.0
        for item in held:
            if unit > 0 and weight[item] < tau:
                added = min(unit, tau - weight[item])
                weight[item] += added
                unit -= added
    return weight


@settings(max_examples=150, deadline=None)
@given(rows_of_items, above)
def test_weights_equal_the_transcriptions(rows, tau):
    batches = [rows[:7], rows[7:]]
    policy = policy_weights(iter(batches), ITEMS, tau)
    assert policy == pytest.approx(policy_transcribed(rows, tau), abs=1e-9)
    greedy = greedy_weights(iter(batches), ITEMS, tau)
    assert greedy == pytest.approx(greedy_transcribed(rows, tau), abs=1e-9)
    assert max(policy.max(), greedy.max()) <= tau + 1e-9
    single = [0.0] * ITEMS
    for held in rows:
        below = [item for item in held if single[item] < tau]
        if below:
            single[below[0]] += 1
    assert greedy_single(iter(batches), ITEMS, tau).tolist() == single


@settings(max_examples=60, deadline=None)
@given(rows_of_items, st.integers(0, 2**32))
def test_visits_are_the_users_with_their_items(rows, seed):
    seen = [held for batch in visits(csr(rows), np.random.default_rng(seed)) for held in batch]
    assert sorted(map(sorted, seen)) == sorted(map(sorted, rows))


@settings(max_examples=60, deadline=None)
@given(rows_of_items, st.integers(0, 2**32), st.integers(1, 5))
def test_no_user_keeps_more_than_the_cap(rows, seed, cap):
    seen = [held for batch in visits(csr(rows), np.random.default_rng(seed), cap) for held in batch]
    assert sorted(len(held) for held in seen) == sorted(min(cap, len(row)) for row in rows)
    pool = [set(row) for row in rows]
    assert all(any(set(held) <= row for row in pool) for held in seen)
    assert all(len(set(held)) == len(held) for held in seen)


def test_users_without_items_are_passed_over():
    sets = Csr(np.array([0, 0, 2, 2, 3, 3]), np.array([0, 1, 2]))
    seen = [held for batch in visits(sets, np.random.default_rng(0)) for held in batch]
    assert sorted(map(sorted, seen)) == [[0, 1], [2]]
    empty = Csr(np.array([0]), np.array([], np.int64))
    assert not policy_gaussian(empty, 3, 1.0, 1e-5, rng=np.random.default_rng(0)).any()
    assert not greedy_update(empty, 3, 1.0, 1e-5, rng=np.random.default_rng(0)).any()


def test_order_of_users_and_of_items_and_the_sample_are_uniform():
    """Six users' first places, three items' orders, and samples of two of four: chi-square at 1e-9 each."""
    users, orders, samples = np.zeros(6), {}, {}
    for seed in range(3_000):
        rng = np.random.default_rng(seed)
        sets = csr([[0, 1, 2], [3], [4], [5], [6], [7]])
        (batch,) = visits(sets, rng)
        first = batch[0][0]
        users[0 if first < 3 else first - 2] += 1
        (long,) = (tuple(held) for held in batch if len(held) == 3)
        orders[long] = orders.get(long, 0) + 1
        ((held,),) = visits(csr([[0, 1, 2, 3]]), rng, 2)
        samples[frozenset(held)] = samples.get(frozenset(held), 0) + 1
    assert len(orders) == 6 and len(samples) == 6
    for counts in (users, list(orders.values()), list(samples.values())):
        assert stats.chisquare(counts).pvalue > 1e-9


def test_batches_of_users_change_nothing(monkeypatch):
    sets, items = random_sets(3)
    whole = policy_gaussian(sets, items, 1.0, 1e-2, rng=np.random.default_rng(1), max_items_per_user=3)
    monkeypatch.setattr("dpbeam_lab.evaluation.oracles._USERS_AT_ONCE", 7)
    parts = policy_gaussian(sets, items, 1.0, 1e-2, rng=np.random.default_rng(1), max_items_per_user=3)
    assert whole.tolist() == parts.tolist() and whole.any()


def test_policy_cap_limits_the_items_of_a_user():
    batches = visits(csr([list(range(50))]), np.random.default_rng(0), 4)
    weight = policy_weights(batches, 50, 10.0)
    assert np.count_nonzero(weight) == 4
    assert weight[weight > 0] == pytest.approx(0.5)


def test_policy_gaussian_threshold_and_noise():
    """An item at tau = rho + 4 sigma is released with probability Phi(4), a lone user's with at most delta/2."""
    holders, lonely = 60, 4_000
    offsets = np.concatenate((np.arange(holders), holders + np.arange(lonely + 1)))
    links = np.concatenate((np.zeros(holders, np.int64), 1 + np.arange(lonely)))
    counts = [
        policy_gaussian(
            Csr(offsets, links), 1 + lonely, 1.0, 0.1, rng=np.random.default_rng(s), max_items_per_user=1
        )
        for s in range(20)
    ]
    assert all(mask[0] for mask in counts)  # false alarm 20 Phi(-4) = 6e-4, fixed seeds
    rate = np.mean([mask[1:].mean() for mask in counts])
    assert rate == pytest.approx(0.05, abs=6 * math.sqrt(0.05 / 80_000))


def test_greedy_update_spends_one_unit_filling_items_in_turn():
    start = [
        [1],
        [1],
        [1, 0],
        [3],
        [3],
        [3],
    ]  # item 1 and 3 at 3 with tau 2.75: filled, the rest goes to item 0
    weight = greedy_weights([start], 4, 2.75)
    assert weight == pytest.approx([0.25, 2.75, 0.0, 2.75])
    assert greedy_weights([[[0, 1, 2]]], 3, 3.0).tolist() == [1.0, 0.0, 0.0]


def test_greedy_update_releases_a_lone_item_with_probability_delta():
    sets = Csr(np.arange(40_001), np.arange(40_000))
    for single in (False, True):
        released = greedy_update(sets, 40_000, 1.0, 0.05, rng=np.random.default_rng(5), single=single)
        assert released.mean() == pytest.approx(0.05, abs=6 * math.sqrt(0.05 / 40_000))


def test_items_nobody_holds_are_never_released():
    sets = Csr(np.array([0, 1]), np.array([0]))
    for oracle in (policy_gaussian, greedy_update):
        for seed in range(50):
            assert not oracle(sets, 1_000, 1.0, 0.4, rng=np.random.default_rng(seed))[1:].any()


@pytest.mark.parametrize("oracle", [policy_gaussian, greedy_update])
@pytest.mark.parametrize(
    "options,message",
    [
        ({"max_items_per_user": 0}, "max_items_per_user must be a whole number of at least 1, got 0"),
        ({"max_items_per_user": 2.5}, "max_items_per_user must be a whole number"),
        ({"excess": -1.0}, "excess must be a finite number that is not negative, got -1.0"),
        ({"excess": math.nan}, "excess must be a finite number"),
    ],
)
def test_options_out_of_range_are_refused(oracle, options, message):
    with pytest.raises(ValueError, match=message):
        oracle(csr([[0]]), 1, 1.0, 1e-5, rng=np.random.default_rng(0), **options)


def test_policy_gaussian_beats_equal_weights():
    """On skewed data the sequential policy releases more than Basic's keep probability gives in expectation."""
    sets, items = random_sets(9, users=1_500, items=400)
    degrees = np.minimum(sets.degrees, 100)
    weight = np.zeros(items)
    np.add.at(weight, sets.links, np.repeat(1 / np.sqrt(degrees), sets.degrees))
    sigma = gaussian_sigma(1.0, 5e-4)
    rho = novel_threshold(sigma, 5e-4, 100, lambda t: 1 / np.sqrt(t))
    expected = stats.norm.cdf((weight - rho) / sigma)[weight > 0].sum()
    counts = [policy_gaussian(sets, items, 1.0, 1e-3, rng=np.random.default_rng(s)).sum() for s in range(5)]
    assert np.mean(counts) > 1.1 * expected
