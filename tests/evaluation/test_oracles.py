"""The sequential oracles against literal loops, and their place among the parallel selectors."""

import math

import numpy as np
import pytest
from scipy import stats

from dpbeam.accounting.gaussian import gaussian_sigma
from dpbeam.accounting.threshold import novel_threshold
from dpbeam.evaluation.oracles import _fill_in_order, _policy_weights, greedy_update, policy_gaussian
from dpbeam.kernels.csr import Csr


def random_sets(seed: int, users: int = 400, items: int = 60) -> tuple[Csr, int]:
    rng = np.random.default_rng(seed)
    share = 1.0 / np.arange(1, items + 1)
    rows = [
        np.sort(rng.choice(items, min(items, int(rng.geometric(0.2))), replace=False, p=share / share.sum()))
        for _ in range(users)
    ]
    return Csr(np.cumsum([0] + [len(r) for r in rows]), np.concatenate(rows)), items


def spread(sets: Csr) -> list[list[int]]:
    return [sets.links[a:b].tolist() for a, b in zip(sets.offsets[:-1], sets.offsets[1:])]


@pytest.mark.parametrize("seed", range(5))
def test_policy_weights_equal_the_listing(seed):
    """Item by item in plain floats; no user exceeds the cap, so the order of users is the only randomness."""
    sets, items = random_sets(seed)
    tau = 9.0
    weight = [0.0] * items
    for user in np.random.default_rng(seed).permutation(len(sets.offsets) - 1):
        below = [i for i in spread(sets)[user] if weight[i] < tau]
        gaps = {i: tau - weight[i] for i in below}
        norm = math.sqrt(sum(g * g for g in gaps.values()))
        for i, gap in gaps.items():
            weight[i] += gap * min(1.0, norm) / norm
    found = _policy_weights(sets, items, tau, 1_000, np.random.default_rng(seed))
    assert found == pytest.approx(np.array(weight), abs=1e-9)
    assert found.max() == pytest.approx(tau)  # popular items are filled, none beyond


def test_policy_cap_limits_the_items_of_a_user():
    sets = Csr(np.array([0, 50]), np.arange(50))
    weight = _policy_weights(sets, 50, 10.0, 4, np.random.default_rng(0))
    assert np.count_nonzero(weight) == 4
    assert weight[weight > 0] == pytest.approx(0.5)


def test_policy_gaussian_threshold_and_noise():
    """An item at tau = rho + 4 sigma is released with probability Phi(4), a lone user's with at most delta/2."""
    holders, lonely = 60, 4_000
    offsets = np.concatenate((np.arange(holders), holders + np.arange(lonely + 1)))
    links = np.concatenate((np.zeros(holders, np.int64), 1 + np.arange(lonely)))
    counts = [
        policy_gaussian(Csr(offsets, links), 1 + lonely, 1.0, 0.1, rng=np.random.default_rng(s), max_items=1)
        for s in range(20)
    ]
    assert all(mask[0] for mask in counts)  # false alarm 20 Phi(-4) = 6e-4, fixed seeds
    rate = np.mean([mask[1:].mean() for mask in counts])
    assert rate == pytest.approx(0.05, abs=6 * math.sqrt(0.05 / 80_000))


def test_greedy_update_spends_one_unit_filling_items_in_turn():
    weight = np.array([0.0, 2.75, 0.0, 2.5])
    _fill_in_order(weight, np.array([1, 3]), 3.0, np.random.default_rng(0))
    assert weight == pytest.approx([0.0, 3.0, 0.0, 3.0])
    weight = np.array([0.0, 0.0, 0.0])
    _fill_in_order(weight, np.array([0, 1, 2]), 3.0, np.random.default_rng(0))
    assert sorted(weight) == [0.0, 0.0, 1.0]
    weight = np.array([2.5, 0.0])
    _fill_in_order(weight, np.array([0, 1]), 3.0, np.random.default_rng(3))
    assert weight.sum() == pytest.approx(3.5)


def test_greedy_update_releases_a_lone_item_with_probability_delta():
    sets = Csr(np.arange(40_001), np.arange(40_000))
    released = greedy_update(sets, 40_000, 1.0, 0.05, rng=np.random.default_rng(5))
    assert released.mean() == pytest.approx(0.05, abs=6 * math.sqrt(0.05 / 40_000))


def test_items_nobody_holds_are_never_released():
    sets = Csr(np.array([0, 1]), np.array([0]))
    for oracle in (policy_gaussian, greedy_update):
        for seed in range(50):
            assert not oracle(sets, 1_000, 1.0, 0.4, rng=np.random.default_rng(seed))[1:].any()


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
