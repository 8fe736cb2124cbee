"""Bounds on missing mass: by their formulas, against each other, and held against runs of the mechanism."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbeam.accounting.gaussian import gaussian_sigma
from dpbeam.accounting.limits import half_limit_users, release_probability_limit
from dpbeam.accounting.peeling import peeling_epsilon0
from dpbeam.accounting.threshold import novel_threshold
from dpbeam.kernels.csr import Csr
from dpbeam_lab.evaluation.bounds import (
    Masses,
    Wgm,
    ZipfLaw,
    best_law,
    fit_zipf,
    missing_mass_floor,
    rare_items,
    theorem_3_3,
    theorem_3_3_printed,
    theorem_3_6,
    theorem_4_5,
)
from dpbeam_lab.evaluation.hitting_methods import greedy
from dpbeam_lab.evaluation.indexed import index_pairs
from dpbeam_lab.evaluation.quality import missing_mass
from tests.support.datasets import entries


def zipf_sets(seed: int, users: int, items: int, mean: int, exponent: float) -> Csr:
    rng = np.random.default_rng(seed)
    share = np.cumsum(np.arange(1, items + 1) ** -exponent)
    holder = np.repeat(np.arange(users), rng.geometric(1 / mean, users))
    item = np.searchsorted(share, share[-1] * rng.random(len(holder)))
    pairs = np.unique(holder * items + np.minimum(item, items - 1))
    return Csr(np.searchsorted(pairs, np.arange(users + 1) * items), pairs % items)


def run_wgm(sets: Csr, num_items: int, wgm: Wgm, rng: np.random.Generator) -> np.ndarray:
    """Algorithm 1 of the paper, written down once more; (items,) bool."""
    coins = np.lexsort((rng.random(len(sets.links)), sets.per_pair(np.arange(len(sets.degrees)))))
    rank = np.arange(len(coins)) - sets.per_pair(sets.offsets[:-1])
    kept = rank < wgm.max_items
    weights = sets.per_pair(1 / np.sqrt(np.minimum(sets.degrees, wgm.max_items)))
    sums = np.bincount(sets.links[coins[kept]], weights[kept], num_items)
    return (sums > 0) & (sums + wgm.sigma * rng.standard_normal(num_items) >= wgm.threshold)


def masses_of(sets: Csr) -> Masses:
    counts = np.bincount(sets.links)
    return Masses(counts[counts > 0], int(sets.degrees.max()))


histograms = st.lists(st.integers(1, 10_000), min_size=1, max_size=60)
budgets = st.tuples(st.floats(0.05, 8.0), st.floats(1e-12, 1e-2))


@settings(max_examples=100, deadline=None)
@given(histograms, st.floats(1.01, 11.0))
def test_a_fitted_law_is_obeyed_and_no_smaller_one_is(counts, exponent):
    masses = Masses(np.array(counts), 1)
    law = fit_zipf(masses, exponent)
    allowed = law.factor * np.arange(1, len(counts) + 1.0) ** -exponent
    shares = np.sort(counts)[::-1] / sum(counts)
    assert (shares <= allowed * (1 + 1e-9)).all()
    assert (shares >= allowed * (1 - 1e-9)).any()


@settings(max_examples=60, deadline=None)
@given(histograms, st.integers(1, 500), st.integers(1, 300), st.floats(1e-6, 0.5), budgets)
def test_bounds_follow_the_proofs(counts, largest, max_items, failure, budget):
    """Each formula once more, from scratch; and the corrected bound is the integral of min(tau/N, C r^-s)."""
    epsilon, delta = budget
    masses, total = Masses(np.array(counts), largest), sum(counts)
    wgm = Wgm.of(epsilon, delta, max_items)
    assert wgm.sigma == gaussian_sigma(epsilon, delta / 2)
    assert wgm.threshold == novel_threshold(wgm.sigma, delta / 2, max_items, lambda t: 1 / np.sqrt(t))
    reach = math.sqrt(min(largest, max_items)) * (
        wgm.threshold + wgm.sigma * math.sqrt(2 * math.log(6 * total / failure))
    )
    kept = min(1.0, max_items / largest)
    any_data = theorem_3_6(masses, wgm, failure)
    assert any_data == pytest.approx(max(2 * reach, 8 * math.log(3 * total / failure)) / (kept * total))
    printed = 8 / (kept * total) * max(math.log(3 * total / failure), reach)
    assert any_data <= printed * (1 + 1e-12)
    assert rare_items(masses, wgm, failure) == pytest.approx(
        sum(c for c in counts if c <= any_data * total) / total
    )
    for exponent in (1.2, 3.0):
        law = fit_zipf(masses, exponent)
        tau = max(2 * reach, 8 * math.log(3 * law.held(total) / failure)) / kept / total
        edge = (law.factor / tau) ** (1 / exponent)
        integral = edge * tau + law.factor * edge ** (1 - exponent) / (exponent - 1)
        bounds = theorem_3_3(masses, wgm, law, failure)
        assert bounds == pytest.approx(integral)
        capped = np.minimum(tau, law.factor * np.arange(1, len(counts) + 1.0) ** -exponent)
        assert capped.sum() <= bounds * (1 + 1e-9)
        power = (exponent - 1) / exponent
        inner = max(reach, math.log(3 * law.held(total) / failure))
        assert theorem_3_3_printed(masses, wgm, law, failure) == pytest.approx(
            law.factor ** (1 / exponent) / (exponent - 1) * (9 / (kept * total) * inner) ** power
        )
    best = best_law(masses, wgm, failure)
    for exponent in (1.05, 1.5, 2.0, 4.0, 10.0):
        other = theorem_3_3(masses, wgm, fit_zipf(masses, exponent), failure)
        assert theorem_3_3(masses, wgm, best, failure) <= other * 1.03  # the grid's step


def test_no_user_holds_more_than_lemma_3_1_allows():
    for seed in range(5):
        masses = masses_of(zipf_sets(seed, 400, 300, 12, 1.3))
        for exponent in (1.01, 1.5, 3.0, 8.0):
            assert masses.largest_set <= fit_zipf(masses, exponent).held(masses.total) * (1 + 1e-9)


def test_the_printed_bound_fails_where_the_corrected_one_holds():
    """100 items of 10 users each: Zipfian for every s, and most of it is missed whatever s says."""
    sets = Csr(np.arange(1_001), np.repeat(np.arange(100), 10))
    masses, wgm = masses_of(sets), Wgm.of(1.0, 1e-5, 1)
    missed = [
        missing_mass(masses.counts, run_wgm(sets, 100, wgm, np.random.default_rng(seed)))["p1"]
        for seed in range(40)
    ]
    assert np.mean(missed) == pytest.approx(0.98, abs=0.02)
    law = fit_zipf(masses, 80.0)
    assert theorem_3_3_printed(masses, wgm, law) < 0.41 < min(missed)
    assert theorem_3_3(masses, wgm, law) > 1


@pytest.mark.parametrize("max_items, exponent", [(3, 0.8), (3, 1.6), (50, 1.6)])
def test_bounds_hold_and_follow_the_data(max_items, exponent):
    """10 runs at failure probability .05; the bounds are loose, so that none fails, and they say something."""
    sets = zipf_sets(1, 20_000, 2_000, 8, exponent)
    masses, num_items = masses_of(sets), int(sets.links.max()) + 1
    counts = np.bincount(sets.links, minlength=num_items)
    wgm = Wgm.of(1.0, 1e-5, max_items)
    law = best_law(masses, wgm)
    floor = missing_mass_floor(masses, 1.0, 1e-5)
    runs = [
        missing_mass(counts, run_wgm(sets, num_items, wgm, np.random.default_rng(seed))) for seed in range(10)
    ]
    assert max(run["pinf"] for run in runs) <= theorem_3_6(masses, wgm) < 1
    assert max(run["p1"] for run in runs) <= rare_items(masses, wgm) <= theorem_3_3(masses, wgm, law)
    assert floor < np.mean([run["p1"] for run in runs])
    if exponent > 1:
        assert rare_items(masses, wgm) < 1
    assert theorem_3_6(masses, wgm, 1e-9) > theorem_3_6(masses, wgm, 0.1)


def test_hitting_set_bound_holds_for_domain_then_user_peeling():
    """Against greedy, which is no better than the best k items; users enough for the bound to say something."""
    sets = zipf_sets(3, 60_000, 40, 2, 1.2)
    masses, num_items = masses_of(sets), int(sets.links.max()) + 1
    users, wgm = len(sets.degrees), Wgm.of(0.5, 5e-6, 20)
    for k in (1, 3):
        bound = theorem_4_5(masses, 1.0, 1e-5, 20, k)
        lam = 1 / peeling_epsilon0(0.5, 5e-6, k)
        missed = theorem_3_6(masses, wgm, 0.025) * len(sets.links)
        noise = 2 * lam * math.log(2 * len(masses.counts) * k / 0.025)
        assert bound == pytest.approx(k * ((1 - 1 / math.e) * missed + noise))
        best = hits(sets, greedy(sets, num_items, k))
        assert 0 < (1 - 1 / math.e) * best - bound < users
        for seed in range(4):
            rng = np.random.default_rng(seed)
            domain = np.flatnonzero(run_wgm(sets, num_items, wgm, rng))
            chosen: list[int] = []
            left = np.ones(users, bool)
            for _ in range(min(k, len(domain))):
                counts = np.bincount(sets.links[sets.per_pair(left)], minlength=num_items)[domain]
                counts = np.where(
                    np.isin(domain, chosen), -np.inf, counts + rng.gumbel(0.0, lam, len(domain))
                )
                chosen.append(int(domain[np.argmax(counts)]))
                left &= sets.row_sums((sets.links == chosen[-1]).astype(np.int64)) == 0
            assert hits(sets, np.array(chosen)) >= (1 - 1 / math.e) * best - bound


def hits(sets: Csr, chosen: np.ndarray) -> int:
    return int((sets.row_sums(np.isin(sets.links, chosen).astype(np.int64)) > 0).sum())


def test_floor_is_the_limit_item_by_item():
    masses = Masses(np.array([1, 30, 5, 5]), 3)
    limit = [float(release_probability_limit(c, 0.7, 1e-6)) for c in (1, 30, 5, 5)]
    assert missing_mass_floor(masses, 0.7, 1e-6) == pytest.approx(
        sum((1 - p) * c for p, c in zip(limit, (1, 30, 5, 5))) / 41
    )
    rare = np.array([c for c in (1, 30, 5, 5) if c <= half_limit_users(0.7, 1e-6)])
    assert missing_mass_floor(masses, 0.7, 1e-6) >= rare.sum() / 2 / 41  # the proof of Theorem 3.5


def test_arguments_out_of_range_are_refused():
    masses, wgm = Masses(np.array([3, 2]), 2), Wgm.of(1.0, 1e-5, 10)
    for counts, largest in (([], 1), ([0, 1], 1), ([2], 0)):
        with pytest.raises(ValueError, match="must be positive"):
            Masses(np.array(counts), largest)
    for failure in (0.0, 1.0, math.nan):
        with pytest.raises(ValueError, match="failure probability"):
            theorem_3_6(masses, wgm, failure)
    for bound in (theorem_3_3, theorem_3_3_printed):
        with pytest.raises(ValueError, match=r"exponent of the law must be above 1, got 1\.0"):
            bound(masses, wgm, ZipfLaw(1.0, 1.0))


@pytest.mark.parametrize("name", ["steam-200k", "amazon-magazine", "higgs-mention-reply"])
def test_bounds_hold_on_real_data(name):
    indexed = index_pairs(entries(name))
    masses, wgm = Masses.of(indexed), Wgm.of(1.0, 1e-5, 100)
    missing = missing_mass(
        indexed.holders, run_wgm(indexed.sets, indexed.num_items, wgm, np.random.default_rng(0))
    )
    assert missing["pinf"] <= theorem_3_6(masses, wgm)
    bound = theorem_3_3(masses, wgm, best_law(masses, wgm))
    assert missing_mass_floor(masses, 1.0, 1e-5) < missing["p1"] <= rare_items(masses, wgm) <= bound
