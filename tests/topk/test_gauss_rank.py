"""gauss-rank: its three rankings against dictionaries, its sensitivity in exact integers, its plan and its trips."""

import math
import tracemalloc
from collections import Counter
from dataclasses import replace

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbeam.accounting.accountant import sigma_beside
from dpbeam.accounting.events import GaussianEvent, leaves
from dpbeam.accounting.gaussian import gaussian_sigma
from dpbeam.accounting.ledger import Ledger
from dpbeam.counts.gathered import NO_ITEMS, public_domain
from dpbeam.counts.items_per_user import CLIPS, bucket_edges, clip_losses, clipped_weights, items_per_user
from dpbeam.engine.beam.store import RunFolder
from dpbeam.engine.in_process import build_blocks, output_batches, run_in_process, run_trips
from dpbeam.engine.program import Keys
from dpbeam.errors import InputError
from dpbeam.kernels.csr import Csr
from dpbeam.kernels.grid import NORM_UNITS, UNITS
from dpbeam.randomness import RunKey, fingerprints
from dpbeam.selection.config import SelectionConfig
from dpbeam.selectors.registry import selectors
from dpbeam.topk.config import plan_topk
from dpbeam.topk.family import TopKConfig
from dpbeam.topk.gauss_rank import CENTRED, GUMBEL, GaussRank, centred_units
from dpbeam.topk.peeling import cdp_peel
from dpbeam.topk.program import RankProgram, topk_program
from dpbeam.topk.transforms import TopKItems
from tests.support.instances import batches, pairs_with_whales
from tests.support.pipelines import kept, outcome

KEY = RunKey.insecure_fixed("gauss-rank")


def full_pairs(users=300, items=12):
    """Everybody holds nearly everything."""
    return [(f"user {u}", f"item {i}") for u in range(users) for i in range(items) if u % 40 != i]


def config(k=20, selector="gsu", epsilon=3.0, delta=1e-3, **more):
    selection = None if selector is None else SelectionConfig(1.0, 0.5, method=selector, max_items_per_user=6)
    more.setdefault("public_domain", selector is None)
    return TopKConfig(epsilon, delta, k, mechanism="gauss-rank", selection=selection, **more)


def reference(plan, pairs, domain=None):
    """(way, ranked items) by dictionaries and exact integers; the noise is that of the hub's labels."""
    sets = {}
    for user, item in pairs:
        sets.setdefault(user, set()).add(item)
    if plan.selection is not None:
        released = run_in_process(plan.selection.program, batches(pairs), KEY)
        domain = [item.decode() for item in released.items.to_pylist()]
    inside = set(domain)
    held = [items & inside for items in sets.values()]
    mechanism, d, keys = plan.mechanism, len(inside), Keys(KEY)
    edges = list(bucket_edges(d))
    exact = Counter(max(e for e in edges if e <= len(items)) for items in held if items)
    fp = np.array([[b, 0] for b in range(len(edges))], np.uint64)
    noise = keys.noise(mechanism.histogram_noise, fp, "hub") / UNITS
    noisy = np.array([exact[edge] for edge in edges]) + noise
    way = mechanism.choose_way(noisy, d)
    names = sorted(inside)
    fp = fingerprints(keys.pairs.item, pa.array([name.encode() for name in names], pa.large_binary()))
    counts = Counter(item for items in held for item in items)
    if way == GUMBEL:
        values = np.array([counts[name] for name in names])
        k = min(mechanism.k, d)
        return way, [names[p] for p in cdp_peel(values, fp, k, mechanism.epsilon0, KEY, "top-k/gauss-rank")]
    sums = Counter()
    for items in held:
        for item in items:
            sums[item] += (
                math.isqrt(NORM_UNITS // max(way, len(items))) if way else 2 * math.isqrt(NORM_UNITS // d)
            )
    drawn = keys.noise(mechanism.noise, fp, "hub")
    scores = {name: sums[name] + int(z) for name, z in zip(names, drawn)}
    return way, sorted(names, key=lambda name: -scores[name])[: mechanism.k]


def ranked(plan, pairs, domain=None, blocks=1, shards=1):
    program, keys = topk_program(plan, None if domain is None else public(domain)), Keys(KEY)
    built = list(build_blocks(batches(pairs), keys, program.cap, num_blocks=blocks, num_shards=shards))
    finished = run_trips(program, built, keys)
    output = list(output_batches(program, finished))
    return [item.decode() for batch in output for item in batch.column("item").to_pylist()]


CASES = {
    "clip": (config(), pairs_with_whales(), None),
    "centred": (config(k=10), full_pairs(), None),
    "gumbel": (config(k=2), pairs_with_whales(), None),
    "a selector that is not Gaussian": (
        config(k=12, selector="laplace", epsilon=6.0),
        pairs_with_whales(),
        None,
    ),
    "public": (
        config(k=25, selector=None),
        pairs_with_whales(),
        [f"item {i}" for i in range(50)] + ["nobody's"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_every_way_equals_its_definition_from_any_number_of_blocks(case):
    asked, pairs, domain = CASES[case]
    plan = plan_topk(asked)
    inside = [(u, i) for u, i in pairs if domain is None or i in domain]
    way, expected = reference(plan, inside, domain)
    assert {"centred": way == CENTRED, "gumbel": way == GUMBEL}.get(case, way > 0) or "not Gaussian" in case
    assert len(expected) > (1 if case == "gumbel" else 5)
    for blocks, shards in ((1, 1), (4, 3)):
        assert ranked(plan, inside, domain, blocks, shards) == expected


def test_beam_equals_the_definition(tmp_path):
    asked, pairs, _ = CASES["clip"]
    with RunFolder(str(tmp_path), KEY) as folder:
        released = on_beam(pairs, TopKItems(asked, run=folder, num_shards=3))
    assert released == ranked(plan_topk(asked), pairs)


def on_beam(pairs, transform):
    """The ranked items of a pipeline."""
    ranking = outcome(lambda pipeline: kept(pipeline | beam.Create(pairs) | transform))
    return [row.item for row in sorted(ranking, key=lambda row: row.rank)]


# Sensitivity, in exact integers.

sizes = st.lists(st.integers(0, 40), min_size=1, max_size=12)


@settings(max_examples=40)
@given(sizes, st.sampled_from(CLIPS))
def test_a_users_weights_have_norm_at_most_one_and_nearly_reach_it(degrees, clip):
    rows = Csr(
        np.concatenate(([0], np.cumsum(degrees))), np.concatenate([np.arange(m) for m in degrees]).astype(int)
    )
    units = clipped_weights(rows, clip)
    for user, m in enumerate(degrees):
        own = [int(x) for x in units[rows.offsets[user] : rows.offsets[user + 1]]]
        assert sum(x * x for x in own) <= NORM_UNITS
        if m >= clip:
            assert sum((x + 1) * (x + 1) for x in own) > NORM_UNITS
        assert all(x == math.isqrt(NORM_UNITS // max(clip, m)) for x in own)


def test_weights_clipped_by_a_long_list_need_no_table_of_it():
    rows = Csr(np.array([0, 2, 3]), np.array([0, 5, 1]))
    tracemalloc.start()
    try:
        units = clipped_weights(rows, 10_000_000)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
    assert units.tolist() == [math.isqrt(NORM_UNITS // 10_000_000)] * 3


@settings(max_examples=25)
@given(st.data())
def test_one_user_moves_one_bucket_by_one_and_the_sums_by_norm_one(data):
    """Through the program: what blocks send on the two last trips, with a user and without, for any way."""
    others = data.draw(st.lists(st.sets(st.integers(0, 9), max_size=10), min_size=1, max_size=5))
    newcomer = data.draw(st.sets(st.integers(0, 14), min_size=1, max_size=15))
    clip = data.draw(st.sampled_from([0, -1, *CLIPS[:8]]))
    plan = plan_topk(config(k=4, selector=None))
    domain = [f"item {i}" for i in range(10)]
    sent = []
    for users in (others, [*others, newcomer]):
        pairs = [(f"user {u}", f"item {i}") for u, items in enumerate(users) for i in items if i < 10]
        sent.append(messages(RankProgram(plan, public(domain)), pairs, clip))
    (before, first), (after, second) = sent
    moved = after - before
    assert np.abs(moved).sum() == (1 if newcomer & set(range(10)) else 0) == moved.sum()
    change = [second.get(i, 0) - first.get(i, 0) for i in second.keys() | first.keys()]
    assert sum(x * x for x in change) <= NORM_UNITS and all(x >= 0 for x in change)
    assert clip > 0 or not any(change)


def public(domain):
    return public_domain(pa.array([name.encode() for name in domain], pa.large_binary()))


def messages(program, pairs, way):
    """(histogram of items per user, {item: sum of weights in units}) of all blocks, the way given."""
    keys = Keys(KEY)
    blocks = list(build_blocks(batches(pairs), keys, program.cap, num_blocks=2, num_shards=1))
    total, sums = np.zeros(len(bucket_edges(10)), np.int64), Counter()
    for block in blocks:
        reply = {"domain": np.ones(block.num_items, np.uint8)}
        block.broadcast = {"size": np.array([10])}
        _, block.state = program.weigh(program.trips - 2, block, reply, keys)
        total += program.summarise(program.trips - 2, block, keys)["users"]
        block.broadcast = {"way": np.array([way])}
        weights, _ = program.weigh(program.trips - 1, block, {}, keys)
        sums.update(dict(zip(block.items.to_pylist(), weights["weight"].tolist())))
    return total, sums


@pytest.mark.parametrize("d", [1, 2, 3, 7, 100, 1025])
def test_buckets(d):
    edges = bucket_edges(d)
    assert edges.tolist() == sorted(
        {math.ceil(2 ** (b / 2) - 1e-9) for b in range(40)} & set(range(1, d + 1))
    )
    users = items_per_user(np.arange(d + 1), d)
    assert users.sum() == d and np.all(users > 0)


def test_losses_of_clips_by_their_definition():
    sigma, d = 5.0, 300
    edges = bucket_edges(d)
    rng = np.random.default_rng(3)
    for _ in range(20):
        noisy = rng.normal(0, sigma, len(edges)) + rng.integers(0, 2, len(edges)) * rng.geometric(
            0.001, len(edges)
        )
        last = [*(edges[1:] - 1), d]
        rows = [(n, math.sqrt(a * b)) for n, a, b in zip(noisy, edges, last) if n >= 3 * sigma]
        total = sum(n * size for n, size in rows)
        losses, entries = clip_losses(noisy, d, sigma)
        assert entries == pytest.approx(total)
        for clip in CLIPS if rows else ():
            lost = sum(n * max(0.0, size - math.sqrt(clip * size)) for n, size in rows)
            assert losses[clip] == pytest.approx(lost / total, abs=1e-12)
    assert clip_losses(np.zeros(len(edges)), d, sigma) == ({}, 0.0)


def test_the_way_of_smallest_error():
    ranking = GaussRank.calibrate(50, 5.0)
    held = np.where(bucket_edges(400) == 2, 1000.0, 0.0)
    assert ranking.choose_way(held, 400) == 2  # everybody holds two
    assert ranking.choose_way(None, 400) == GUMBEL and ranking.choose_way(None, 60) == CENTRED
    assert ranking.choose_way(np.where(bucket_edges(400) >= 200, 1000.0, 0.0), 400) == GUMBEL
    # Half of the entries are those of users with ten items: their clip costs bias, and more so at a small k.
    mixed = np.where(bucket_edges(400) == 1, 1e5, np.where(bucket_edges(400) == 8, 1e4, 0.0))
    chosen = [GaussRank.calibrate(k, 5.0).choose_way(mixed, 400) for k in (5, 300)]
    assert chosen[0] == GUMBEL and 1 < chosen[1] <= 10
    for way in (GUMBEL, CENTRED, 7):
        deviation = ranking.deviation(way, 60)
        assert deviation == pytest.approx(
            {
                GUMBEL: math.pi / math.sqrt(6) / ranking.epsilon0,
                CENTRED: math.sqrt(60) / 2 * ranking.sigma,
            }.get(way, math.sqrt(7) * ranking.sigma)
        )


def test_counts_beyond_64_bits_of_units_are_refused():
    """Centred sums of 60 items: up to 1.6e10 users they are exact, twice that would turn negative."""
    ranking, d = GaussRank.calibrate(50, 5.0), 60
    assert ranking.choose_way(None, d) == CENTRED
    largest = 2**62 // (2 * centred_units(d))
    counts = largest - 1_000_000 * np.arange(d)
    fp = np.stack([np.arange(d), np.arange(d)], axis=1).astype(np.uint64)
    assert ranking.select(counts, fp, KEY).tolist() == list(range(50))
    for above in (largest + 1, 2**52):
        counts[7] = above
        with pytest.raises(InputError, match=r"--mechanism=gauss-rank takes counts up to 16,.* are 60 items"):
            ranking.select(counts, fp, KEY)


# The plan.


@pytest.mark.parametrize("selector", [*selectors(), None])
@pytest.mark.parametrize("noisy_counts", [False, True])
def test_a_plan_spends_its_budget_and_no_more(selector, noisy_counts):
    plan = plan_topk(config(selector=selector, epsilon=1.0, delta=1e-5, noisy_counts=noisy_counts))
    spent = Ledger("top-k", 1.0, 1e-5, plan.composition, plan.event).verify()
    assert spent.epsilon == pytest.approx(1.0, rel=1e-9) and 0.999e-5 <= spent.delta <= 1e-5 * (1 + 1e-12)
    exact = selector is None or plan.selection.event.kind == "gaussian"
    assert plan.composition == ("gaussian" if exact else "basic")
    assert (plan.counts is not None) == noisy_counts
    rounds = [
        spec.round
        for spec in topk_program(plan, public_domain(NO_ITEMS) if selector is None else None).noises()
    ]
    assert len(set(rounds)) == len(rounds)


def test_the_choice_gets_all_that_is_left_in_mu_squared():
    plan = plan_topk(config(epsilon=1.0, delta=1e-5, noisy_counts=True))
    chosen, selection = plan.mechanism, plan.selection.event
    outside = sum(leaf.outside_delta() for leaf in leaves(selection))
    parts = [leaf.gaussian_sigma() for leaf in leaves(plan.event) if leaf.gaussian_sigma()]
    assert sum(s**-2 for s in parts) == pytest.approx(gaussian_sigma(1.0, 1e-5 - outside) ** -2, rel=1e-9)
    assert chosen.sigma**-2 / (chosen.sigma**-2 + chosen.histogram_sigma**-2) == pytest.approx(0.96, rel=1e-9)


def test_it_is_the_default():
    assert plan_topk(TopKConfig(1.0, 1e-5, 20)).config.mechanism == "gauss-rank"


def test_refusals():
    with pytest.raises(InputError, match="delta must lie strictly between 0 and 1"):
        plan_topk(config(selector=None, delta=0.0))
    with pytest.raises(InputError, match="more than the fixed-point weights hold"):
        plan_topk(config(selector=None, epsilon=1e-9, delta=1e-12))
    assert sigma_beside([GaussianEvent(gaussian_sigma(1.0, 1e-5))], 1.0, 1e-5) is None
    assert sigma_beside([], 1.0, 1e-5) == pytest.approx(gaussian_sigma(1.0, 1e-5), rel=1e-9)


def test_an_empty_domain_ranks_nothing():
    assert ranked(plan_topk(config(epsilon=0.5, delta=1e-9)), [("u", "i")]) == []
    assert ranked(plan_topk(config(epsilon=0.5, delta=1e-9)), []) == []


def test_the_selections_share_follows_k():
    for k, share in ((1, 0.5), (400, 0.62), (1600, 0.7)):
        asked = TopKConfig(1.0, 1e-5, k, mechanism="gauss-rank")
        assert plan_topk(asked).config.selector_share == pytest.approx(share)
    assert plan_topk(replace(asked, selector_share=0.3)).config.selector_share == 0.3
    assert plan_topk(replace(asked, mechanism="cdp-peel")).config.selector_share == 0.5
