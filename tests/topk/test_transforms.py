"""`TopKItems` on Beam against a reference: counts from a dictionary, then the mechanism called directly."""

import itertools
from collections import Counter

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest

from dpbeam.counts.gathered import histogram, public_domain
from dpbeam.counts.histogram import COUNT_LIMIT
from dpbeam.engine.beam.graph import RunProgram
from dpbeam.engine.beam.store import RunFolder
from dpbeam.engine.in_process import build_blocks, output_batches, run_in_process, run_trips
from dpbeam.engine.program import Keys
from dpbeam.kernels.canonical import METADATA_KEY, Kinds
from dpbeam.randomness import RunKey, fingerprints
from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.public_items import _Filter, store_items
from dpbeam.selection.sizes import Sizes
from dpbeam.selection.transforms import UserBlocks
from dpbeam.topk.config import plan_topk
from dpbeam.topk.family import TopKConfig
from dpbeam.topk.program import TopKProgram, chosen_of, topk_program
from dpbeam.topk.transforms import TopKItems
from tests.support.instances import batches, pairs_with_whales
from tests.support.pipelines import kept, outcome
from tests.support.reference import Data

KEY = RunKey.insecure_fixed("top-k on beam")
STRINGS = Kinds("string", ("string",))
UNKNOWN = ["cdp-peel", "pnf-peel", "joint", "fast-joint"]
PAIRS = pairs_with_whales(users=400, stop=0.15)


def config(mechanism="cdp-peel", k=8, selector="basic", epsilon=2.0, delta=1e-3, **more):
    selection = None
    if selector is not None:
        selection = SelectionConfig(1.0, 0.5, method=selector, max_items_per_user=6)
    return TopKConfig(epsilon, delta, k, mechanism=mechanism, selection=selection, **more)


def reference(plan, pairs, domain=None):
    """[(rank, item, noisy count)] from a dictionary of true counts and the mechanism alone."""
    counts = Counter(item for _, item in set(pairs))
    if plan.selection is not None:
        released = run_in_process(plan.selection.program, batches(pairs), KEY, num_blocks=3, num_shards=2)
        domain = [item.decode() for item in released.items.to_pylist()]
    names = np.array(sorted(counts if domain is None else set(domain)))
    histogram = np.array([counts[name] for name in names], np.int64)
    strings = pa.array([name.encode() for name in names], pa.large_binary())
    fp = fingerprints(Keys(KEY).pairs.item, strings)
    chosen = plan.mechanism.at_most(len(names)).select(histogram, fp, KEY)
    noisy = [None] * len(chosen)
    if plan.counts is not None:
        noisy = plan.counts.release(histogram[chosen], fp[chosen], KEY).tolist()
    return [(rank, names[p].encode(), n) for rank, (p, n) in enumerate(zip(chosen, noisy), start=1)]


def _rows(batch):
    """With None in place of counts that nobody asked for."""
    assert batch.schema.names in (["rank", "item"], ["rank", "item", "noisy_count"])
    return list(itertools.zip_longest(*(column.to_pylist() for column in [*batch.columns, pa.nulls(0)][:3])))


def _ranking(rows):
    """Released rows as `_rows` has those of a batch: one ranking, or none."""
    ranking = [(row.rank, row.item.encode(), getattr(row, "noisy_count", None)) for row in rows]
    return [sorted(ranking)] if ranking else []


def run(tmp_path, source, build):
    """The ranking that `build(source, folder)` emits, if it emits one."""
    with RunFolder(str(tmp_path), KEY) as folder:
        return _ranking(outcome(lambda p: kept(build(p | "Source" >> source, folder))))


def rank_tuples(tmp_path, settings, pairs=PAIRS, **arguments):
    return run(
        tmp_path,
        beam.Create(pairs),
        lambda source, folder: source | TopKItems(settings, run=folder, **arguments),
    )


def in_process(settings, pairs=PAIRS, num_shards=3, domain=None):
    """The rankings that the program of these settings gives without Beam."""
    program, keys = topk_program(plan_topk(settings), domain), Keys(KEY)
    blocks = list(build_blocks(batches(pairs), keys, program.cap, num_blocks=2, num_shards=num_shards))
    return [_rows(batch) for batch in output_batches(program, run_trips(program, blocks, keys))]


@pytest.mark.parametrize("mechanism,noisy_counts,num_shards", list(zip(UNKNOWN, [1, 0, 1, 0], [7, 1, 1, 4])))
def test_every_mechanism_equals_the_reference(mechanism, noisy_counts, num_shards):
    settings = config(mechanism, noisy_counts=bool(noisy_counts))
    expected = reference(plan_topk(settings), PAIRS)
    assert len(expected) == 8 and all((noisy is not None) == bool(noisy_counts) for *_, noisy in expected)
    assert in_process(settings, num_shards=num_shards) == [expected]


@pytest.mark.usefixtures("beams_runner")
def test_beam_equals_the_reference(tmp_path):
    settings = config(noisy_counts=True)
    assert rank_tuples(tmp_path, settings, num_shards=7) == [reference(plan_topk(settings), PAIRS)]


@pytest.mark.parametrize("selector", ["mad2r", "gsu"])
def test_every_selector_gives_the_domain(selector):
    selection = SelectionConfig(1.0, 0.5, method=selector, max_items_per_user=60)
    settings = TopKConfig(2.0, 1e-3, 6, selection=selection, noisy_counts=True)
    expected = reference(plan_topk(settings), PAIRS)
    assert len(expected) == 6
    assert in_process(settings) == [expected]


@pytest.mark.parametrize("k,kbar,num_shards", [(5, 25, 4), (30, 30, 1), (30, 30, 3)])
def test_limited_domain_needs_the_largest_counts_of_each_shard_alone(k, kbar, num_shards):
    """Also the (kbar+1)-th count, and ties at it, are the same from any number of shards."""
    tied = PAIRS + [(f"many {u}", f"tied {i}") for i in range(40) for u in range(30)]
    settings = config("limited-domain", k, None, epsilon=8.0, kbar=kbar)
    expected = reference(plan_topk(settings), tied)
    # The mark stands above the 30 holders of the tied items; without the count after the last place they enter.
    assert 5 <= len(expected) <= (k if k == 5 else k - 5)
    assert in_process(settings, tied, num_shards) == [expected]


def test_limited_domain_among_all_counts_samples_each_user(tmp_path):
    """kbar = 0: counts are those of D0 items per user, or the mark would be too low."""
    settings = config("limited-domain", 5, None, epsilon=8.0, kbar=0, max_items_per_user=3)
    plan = plan_topk(settings)
    sampled = [(u, i) for u, items in Data(PAIRS, Keys(KEY)).capped(3).items() for i in items]
    assert len(sampled) < len(set(PAIRS))
    expected = reference(plan, sampled)
    assert 1 <= len(expected) <= 5
    assert rank_tuples(tmp_path, settings, num_shards=3) == [expected]


def complete_batches(sets):
    """(block, batch of whole users), rows repeated, as grouped input is read."""
    schema = pa.schema(
        [("user", pa.int64()), ("item", pa.large_binary())], metadata=Kinds(None, ("string",)).metadata()
    )
    for block in range(2):
        part = sets[block::2]
        user = [n for n, items in enumerate(part) for _ in items for _ in range(2)]
        item = [i.encode() for items in part for i in items for _ in range(2)]
        yield (
            block,
            pa.RecordBatch.from_arrays([pa.array(user), pa.array(item, pa.large_binary())], schema=schema),
        )


@pytest.mark.parametrize("listed", [False, True])
def test_complete_users(listed, tmp_path):
    """Whole users in blocks, with a public domain or only counted: counts of distinct items per user."""
    sets = [[f"item {i}" for i in range(1 + u % 20)] for u in range(300)]
    pairs = [(str(u), item) for u, items in enumerate(sets) for item in items]
    source = beam.Create(list(complete_batches(sets))).with_output_types(tuple[int, pa.RecordBatch])
    if listed:
        settings, domain = config(k=4, selector=None, public_domain=True), ["item 3", "item 9", "nobody"]
    else:
        settings, domain = config("limited-domain", 4, None, epsilon=8.0), None

    names = encoded(domain) if listed else None
    program = topk_program(plan_topk(settings), public_domain(names) if listed else None)
    expected = reference(plan_topk(settings), pairs, domain)
    assert len(expected) == (3 if listed else 4)
    with RunFolder(str(tmp_path), KEY) as folder:
        store = folder.claim()
        blocks = UserBlocks(store, program, Sizes(4, 2), complete=True, domain=names)
        run_all = RunProgram(store, program)
        [batch] = outcome(lambda p: kept(p | source | blocks | run_all))
    assert _rows(batch) == expected


def encoded(items) -> pa.Array:
    return pa.array([item.encode() for item in items], pa.large_binary())


@pytest.mark.parametrize("public", [True, False])
def test_a_domain_and_the_setting_must_agree(public):
    """Without its domain a job that calls it public would choose among the items of the data: anybody's secret."""
    settings = config(selector=None if public else "basic", public_domain=public)
    domain = None if public else ["a"]
    with pytest.raises(
        ValueError, match="public_domain=True needs the domain's items, and one without takes none"
    ):
        TopKItems(settings, domain=domain)
    with pytest.raises(
        ValueError, match="public_domain=True needs the domain's items, and one without takes none"
    ):
        TopKProgram(plan_topk(settings), domain and public_domain(encoded(domain)))


def test_the_choice_itself_drops_what_is_not_in_the_domain():
    """Also where nobody has filtered the pairs before."""
    settings = config(k=50, selector=None, epsilon=20.0, public_domain=True)
    names = encoded(["item 1", "nobody"])
    [ranking] = in_process(settings, domain=public_domain(names))
    assert [item for _, item, _ in ranking] == [b"item 1", b"nobody"]


def test_public_domain(tmp_path):
    """Items outside it are never chosen, items that nobody holds take part with a count of 0."""
    domain = [f"item {i}" for i in range(10, 30)] + [f"nobody {i}" for i in range(30)]
    settings = config("fast-joint", 12, None, epsilon=0.1, public_domain=True, noisy_counts=True)

    def build(pairs, folder):
        return pairs | TopKItems(settings, run=folder, domain=domain, num_shards=3)

    users, items = zip(*PAIRS)
    source = beam.Create([pa.RecordBatch.from_pydict({"user": users, "item": items})])
    expected = reference(plan_topk(settings), PAIRS, domain)
    assert len(expected) == 12 and any(item.startswith(b"nobody") for _, item, _ in expected)
    rankings = run(tmp_path, source.with_output_types(pa.RecordBatch), build)
    assert rankings == [expected]


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("complete", [True, False])
def test_filter_keeps_to_a_list_or_removes_it(keep, complete, tmp_path):
    """Plain and dictionary columns; a batch of which nothing is left stays a batch."""
    with RunFolder(str(tmp_path), KEY) as folder:
        store_items(folder.store, "listed", pa.array([b"a", b"c", b"z"], pa.large_binary()))
        fn = _Filter(folder.store, "listed", keep)
        fn.setup()
        items = pa.array([b"a", b"b", b"a", b"c", b"d"], pa.large_binary())
        for column in (items, items.dictionary_encode(), items.slice(1), items.dictionary_encode().slice(1)):
            user = pa.array(np.arange(len(column)))
            batch = pa.RecordBatch.from_arrays([user, column], ["user", "item"])
            [element] = fn.process((7, batch) if complete else batch)
            if complete:
                assert element[0] == 7
                element = element[1]
            listed = [(u, i) for u, i in zip(user.to_pylist(), column.to_pylist()) if (i in b"ac") == keep]
            assert list(zip(element["user"].to_pylist(), element["item"].to_pylist())) == listed
        nothing = pa.RecordBatch.from_arrays(
            [pa.array([1]), pa.array([b"b" if keep else b"a"])], ["user", "item"]
        )
        [element] = fn.process((7, nothing) if complete else nothing)
        assert (element[1] if complete else element).num_rows == 0


def choose_from(settings, items, counts):
    plan = plan_topk(settings)
    kinds = STRINGS.metadata()[METADATA_KEY]
    counted = histogram(pa.array(items, pa.large_binary()), np.array(counts, np.int64), kinds)
    chosen = chosen_of(plan, counted, KEY)
    return plan, _rows(chosen)


def test_choice_from_a_given_histogram():
    counts = [int(1e6 / (i + 1)) for i in range(50)] + [0, 0, COUNT_LIMIT]
    items = [f"item {i}".encode() for i in range(53)]
    plan, ranking = choose_from(config(k=10, selector=None, public_domain=True), items, counts)
    fp = fingerprints(Keys(KEY).pairs.item, pa.array(items, pa.large_binary()))
    chosen = plan.mechanism.select(np.array(counts), fp, KEY)
    assert ranking == [(rank, items[p], None) for rank, p in enumerate(chosen, start=1)]
    assert ranking[0][1] == b"item 52"


@pytest.mark.parametrize("mechanism,size", list(zip(UNKNOWN, [1, 3, 1, 3])))
def test_fewer_than_k_items_give_a_shorter_answer(mechanism, size):
    items = [f"item {i}".encode() for i in range(size)]
    settings = config(mechanism, 50, None, public_domain=True, noisy_counts=True)
    _, ranking = choose_from(settings, items, [9] * size)
    assert [rank for rank, *_ in ranking] == list(range(1, size + 1))
    assert {item for _, item, _ in ranking} == set(items)


def test_an_empty_domain_gives_no_ranking(tmp_path):
    settings = config(selector=None, public_domain=True)
    assert rank_tuples(tmp_path, settings, domain=[]) == []


@pytest.mark.parametrize("mechanism,selector", [("cdp-peel", "basic"), ("limited-domain", None)])
def test_no_data_gives_no_ranking(mechanism, selector, tmp_path):
    settings = TopKConfig(
        1.0, 1e-6, 3, mechanism=mechanism, selection=selector and SelectionConfig(1, 0.5, selector)
    )
    assert rank_tuples(tmp_path, settings, []) == []


def test_a_selection_that_releases_nothing_gives_no_ranking():
    own = [(f"user {u}", f"own {u} {i}") for u in range(20) for i in range(50)]
    assert in_process(config(epsilon=1.0, delta=1e-12), own) == []


def test_the_most_popular_item():
    """k = 1 with a large budget: the item that everybody holds, found from full sets."""
    pairs = PAIRS + [(f"user {u}", "everybody's") for u in range(400)]
    [[(rank, item, noisy)]] = in_process(config(k=1, epsilon=20.0, noisy_counts=True), pairs)
    assert (rank, item) == (1, b"everybody's")
    # Laplace noise of scale 1/4: off by 10 with probability e^-40.
    assert abs(noisy - 400) < 10


def test_types_travel(tmp_path):
    """Integer items come back as integers, whatever the users are."""
    pairs = [(f"u{u}", i) for u in range(200) for i in range(1 + u % 5)]
    with RunFolder(str(tmp_path), KEY) as folder:
        ranking = outcome(
            lambda p: kept(p | beam.Create(pairs) | TopKItems(config(k=2, epsilon=20.0), run=folder))
        )
    assert {type(row.item) for row in ranking} == {int}
