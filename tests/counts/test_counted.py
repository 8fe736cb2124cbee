"""Counts that ride on a selection: they change nothing that it releases, and they are exact."""

from collections import Counter
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest

from dpbeam.accounting.noise import NoiseSpec
from dpbeam.counts.counted import COUNT, CountedProgram, CountProgram, candidates
from dpbeam.engine.in_process import run_in_process
from dpbeam.engine.program import Keys, Program, ReplyColumn, with_state
from dpbeam.selectors.mad.program import MadProgram
from tests.support.instances import batches, random_pairs
from tests.support.reference import Data
from tests.support.running import key, names, release
from tests.support.variants import VARIANTS, program

CAP = 8  # of the variants


def heavy_pairs(seed, own=300):
    """Skewed data with rows that repeat, and two users far above D0 who also hold every popular item."""
    pairs = random_pairs(seed, users=100)
    for whale in ("whale", "orca"):
        pairs += [(whale, f"own {i}") for i in range(own)] + [(whale, f"item {i}") for i in range(40)]
    return pairs + pairs[::3] + pairs[::7]


def holders(pairs):
    """{item: number of distinct users}, from the full sets."""
    return Counter(item for _, item in set(pairs))


class Kept:
    """A program that remembers its shards after the last trip, {item: (candidate, count)}."""

    def __init__(self, inner):
        self._inner, self.counted = inner, {}

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def released(self, shard):
        mask, counts = candidates(self._inner, shard)
        assert counts.dtype == np.int64
        self.counted.update(zip(shard.items.to_pylist(), zip(mask.tolist(), counts.tolist())))
        empty = np.zeros(len(shard), bool), np.zeros(len(shard))
        return self._inner.released(shard) if isinstance(self._inner, CountedProgram) else empty


def counts_of(chosen, pairs, run_key, **sizes):
    """{item: (candidate, count)} of all items, and what was released."""
    kept = Kept(chosen)
    released = run_in_process(kept, batches(pairs, 97), run_key, **sizes)
    return {item.decode(): value for item, value in kept.counted.items()}, released


def weights(released):
    return dict(zip(released.items.to_pylist(), released.noisy_weight.tolist()))


@pytest.mark.parametrize("name", VARIANTS)
def test_releases_what_the_selection_alone_releases(name):
    """Same items and weights although blocks hold full sets, and every count is that of the full sets."""
    pairs, chosen = heavy_pairs(3), program(name)
    expected = release(chosen, pairs, key(name), num_blocks=2, num_shards=2)
    counted, released = counts_of(CountedProgram(chosen), pairs, key(name), num_blocks=5, num_shards=3)
    assert len(expected) >= 2
    assert weights(released) == weights(expected)
    assert {item for item, (candidate, _) in counted.items() if candidate} == names(expected)
    true = holders(pairs)
    assert set(counted) == set(true)
    assert {item: count for item, (_, count) in counted.items()} == true


def with_low_thresholds(chosen, threshold):
    """The same program, with a threshold that noise alone passes often."""
    if isinstance(chosen, MadProgram):
        chosen.round = replace(chosen.round, threshold=threshold)
    elif hasattr(chosen, "first"):
        chosen.first = replace(chosen.first, threshold=threshold)
        chosen.second = replace(chosen.second, threshold=threshold)
    else:
        chosen.thresholds = (threshold,) * chosen.trips
    return chosen


def released_with_counts(name, pairs, run_key):
    """A program with thresholds near zero and D0 = 6, and the items that it releases, with counts as without."""
    chosen = with_low_thresholds(program(name, max_items=6), 1e-3)
    released = names(release(CountedProgram(chosen), pairs, run_key, num_blocks=2, num_shards=3))
    assert released == names(release(chosen, pairs, run_key))
    return chosen, released


SAMPLED_ONCE = ["basic", "mad", "gsu4", "dp-sips", "mad2r"]


@pytest.mark.parametrize("name", SAMPLED_ONCE)
def test_an_item_that_no_sample_holds_is_never_released(name):
    """One user with 10^4 items of its own and D0 = 6: thresholds near zero, which half of all noises pass."""
    pairs = random_pairs(1) + [("whale", f"own {i}") for i in range(10_000)]
    _, released = released_with_counts(name, pairs, key("trap"))
    assert sum(item.startswith("own") for item in released) <= 6


@pytest.mark.parametrize("name", ["dp-sips resampled", "mad2r resampled"])
def test_fresh_samples_release_what_they_hold(name):
    """With a sample per round: at most D0 of the user's own items per round, the same as without counts."""
    pairs = random_pairs(1) + [("whale", f"own {i}") for i in range(2_000)]
    chosen, released = released_with_counts(name, pairs, key("fresh"))
    assert 0 < sum(item.startswith("own") for item in released) <= 6 * chosen.trips


def test_no_item_is_released_by_noise_alone_over_many_keys():
    """D0 = 4, threshold of one sigma, which 1,587 of 10^4 noises pass: only sampled items come out."""
    pairs = [("whale", f"own {i}") for i in range(10_000)]
    chosen = program("basic", max_items=4)
    chosen.thresholds = (chosen.noise(0).deviation,)
    came_out = set()
    for attempt in range(12):
        released = names(release(CountedProgram(chosen), pairs, key(f"noise {attempt}"), num_shards=2))
        assert released == names(release(chosen, pairs, key(f"noise {attempt}")))
        assert len(released) <= 4
        came_out |= released
    assert came_out


def test_one_user_more_moves_every_count_by_at_most_one():
    """The counts' sensitivity: a user of 10^3 items in a hundred rows each is one holder of each."""
    pairs, chosen = random_pairs(5), program("basic")
    more = [("new", f"item {i}") for i in range(30)] + [("new", f"own {i}") for i in range(970)]
    before, _ = counts_of(CountedProgram(chosen), pairs, key("one"), num_blocks=3)
    after, _ = counts_of(CountedProgram(chosen), pairs + more * 5, key("one"), num_blocks=3)
    for item, (_, count) in after.items():
        joined = ("new", item) in set(more)
        assert count == (before[item][1] if item in before else 0) + joined


@pytest.mark.parametrize("sizes", [(1, 1), (7, 4)])
def test_counting_alone(sizes):
    """No selection: every item is a candidate, with its exact count; nothing is released."""
    pairs = heavy_pairs(8)
    counted, released = counts_of(
        CountProgram(), pairs, key("count"), num_blocks=sizes[0], num_shards=sizes[1]
    )
    assert {item: count for item, (_, count) in counted.items()} == holders(pairs)
    assert all(candidate for candidate, _ in counted.values())
    assert len(released) == 0


def test_counting_of_samples():
    """With a cap, counts are those of each user's bottom-D0 sample, which a user alone determines."""
    pairs = heavy_pairs(8)
    counted, _ = counts_of(CountProgram(5), pairs, key("capped"), num_blocks=3, num_shards=2)
    samples = Data(pairs, Keys(key("capped"))).capped(5)
    assert max(map(len, samples.values())) == 5
    assert {item: count for item, (_, count) in counted.items()} == Counter(
        item for items in samples.values() for item in items
    )


def test_counts_travel_on_the_first_message_alone():
    for name in VARIANTS:
        chosen = program(name)
        counted = CountedProgram(chosen)
        assert COUNT in counted.sum_names(0)
        assert set(chosen.sum_names(0)) < set(counted.sum_names(0))
        assert counted.trips == chosen.trips
        assert counted.noises() == chosen.noises()
        for trip in range(1, chosen.trips):
            assert counted.sum_names(trip) == chosen.sum_names(trip)


class Remembers(Program):
    """Three trips: block state of the first, none of the second, needed in the third."""

    trips, norm, cap, weight_grid = 3, "l2", CAP, 1.0
    reply_columns: ClassVar = {t: {"nothing": ReplyColumn(np.uint8, 0)} for t in (0, 1)}

    def sum_names(self, trip):
        return ("weight",)

    def noise(self, trip):
        return NoiseSpec("gaussian", 1.0) if trip == 2 else None

    def weigh(self, trip, block, reply, keys):
        if trip == 0:
            first = np.arange(block.num_items) + 1
            return {"weight": first}, {"first": first}
        weight = block.state["first"] if trip == 2 else np.zeros(block.num_items, np.int64)
        return {"weight": weight}, None

    def observe(self, trip, shard, noisy, present):
        return with_state(shard, weight=shard.sums["weight"])

    def threshold(self, trip, shard):
        return with_state(shard, released=shard.sums["weight"] > 0)

    def reply(self, trip, shard):
        return shard, {"nothing": np.zeros(len(shard), np.uint8)}


def test_block_state_lasts_until_a_later_trip_needs_it():
    expected = weights(release(Remembers(), random_pairs(1, max_degree=CAP), key("state")))
    counted = CountedProgram(Remembers())
    assert [counted.block_state_trip(trip) for trip in range(3)] == [None, 0, 1]
    by_item = weights(release(counted, random_pairs(1, max_degree=CAP), key("state")))
    assert by_item == expected and len(by_item) > 10
