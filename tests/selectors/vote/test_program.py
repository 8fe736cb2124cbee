"""The vote against its slow reference, and the theorem of docs/explanation/vote.md: a user moves one count by one."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from dpbeam.accounting.geometric import CountNoise
from dpbeam.accounting.search import users_for
from dpbeam.engine.program import Keys
from dpbeam.kernels.grid import UNITS
from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.plan import make_plan
from dpbeam.selection.report import plan_report
from dpbeam.selection.shown import shown_selection
from dpbeam.selectors.vote.program import VoteProgram
from dpbeam.testing.replay import ONE
from tests.selectors.vote.reference import counts, ordered_lists, vote
from tests.support.instances import random_pairs
from tests.support.reference import Data
from tests.support.running import key, names, recast, release, watch

SIZES = [(1, 1), (3, 1), (1, 4), (4, 7), (60, 3)]  # blocks, shards
NOISE = CountNoise(1.0, 0.02)


def program(quota: int = 4, trips: int = 6, max_items: int = 8, noise: CountNoise = NOISE) -> VoteProgram:
    return VoteProgram(noise=noise, quota=quota, trips=trips, max_items=max_items)


def votes_of(chosen, pairs, run_key, sizes=(1, 1)) -> Counter:
    """Exact votes per item, through the program."""
    blocks, shards = sizes
    seen = watch(chosen, pairs, run_key, num_blocks=blocks, num_shards=shards)
    (last,) = seen.rounds.values()
    assert all(units % ONE == 0 for units in last.exact.values())
    return Counter({item.decode(): units // ONE for item, units in last.exact.items() if units})


def moved(before: Counter, after: Counter) -> dict[str, int]:
    return {item: after[item] - before[item] for item in after | before if after[item] != before[item]}


@pytest.mark.parametrize("quota,trips", [(1, 9), (3, 1), (3, 3), (5, 2)])
def test_program_equals_slow_reference(quota, trips):
    transferred = 0
    for seed in range(3):
        chosen = program(quota, trips)
        pairs = random_pairs(seed, users=90)
        data = Data(pairs, Keys(key(seed)))
        lists = ordered_lists(data, chosen.cap)
        wanted = counts(lists, quota=quota, trips=trips, latest=trips // 3)
        assert votes_of(chosen, pairs, key(seed), SIZES[seed]) == wanted
        assert wanted.total() == len(lists)  # everybody has one vote
        slow = vote(data, chosen)
        released = release(chosen, pairs, key(seed), num_blocks=2, num_shards=3)
        assert names(released) == slow.released
        shown = dict(zip((i.decode() for i in released.items.to_pylist()), released.noisy_weight.tolist()))
        assert shown == {item: slow.rounds[0][item] for item in slow.released}
        transferred += wanted != Counter(items[0] for items in lists.values())
    assert transferred == 3 or trips == 1


USERS = st.lists(st.sets(st.integers(0, 7), min_size=1, max_size=8), max_size=40)


@settings(max_examples=40)
@given(
    sets=USERS,
    own=st.sets(st.integers(0, 9), min_size=1, max_size=8),
    quota=st.integers(1, 4),
    trips=st.integers(1, 9),
    max_items=st.integers(1, 8),
    seed=st.integers(0, 10_000),
    here=st.sampled_from(SIZES),
    there=st.sampled_from(SIZES),
)
def test_a_new_user_moves_one_count_by_one(sets, own, quota, trips, max_items, seed, here, there):
    """Exactly, in integers, for any data and parameters, and whatever the numbers of blocks and shards."""
    chosen = program(quota, trips, max_items)
    pairs = [(f"user {u}", f"item {i}") for u, items in enumerate(sets) for i in sorted(items)]
    extra = [("newcomer", f"item {i}") for i in sorted(own)]
    before = votes_of(chosen, pairs, key(seed), here) if pairs else Counter()
    after = votes_of(chosen, pairs + extra, key(seed), there)
    assert list(moved(before, after).values()) == [1]


@settings(max_examples=60)
@given(
    lists=st.lists(st.permutations(range(6)).map(tuple), min_size=1, max_size=30),
    lengths=st.lists(st.integers(1, 6), min_size=30, max_size=30),
    quota=st.integers(1, 3),
    trips=st.integers(1, 12),
    latest=st.integers(0, 4),
)
def test_the_theorem_needs_no_common_order_of_items(lists, lengths, quota, trips, latest):
    """The proof holds for any list that depends on its user alone; any user of the data may be the new one."""
    assume(latest < trips)
    data = {str(u): items[:d] for u, (items, d) in enumerate(zip(lists, lengths))}
    all_votes = counts(data, quota=quota, trips=trips, latest=latest)
    for user in data:
        rest = {u: items for u, items in data.items() if u != user}
        fewer = counts(rest, quota=quota, trips=trips, latest=latest)
        assert list(moved(fewer, all_votes).values()) == [1]


class RefuseByBlock(VoteProgram):
    """Every block may fill the room anew: what is released depends on the number of blocks."""

    def refused(self, slots, per_link, asking, seated):
        return np.maximum(per_link - (self.quota - seated)[slots], 0)


def test_planted_fault_of_blocks_is_seen():
    pairs = random_pairs(3, users=60)
    right = votes_of(program(3), pairs, key(1), (7, 2))
    assert right == votes_of(program(3), pairs, key(1), (1, 1))
    faulty = recast(program(3), RefuseByBlock)
    assert votes_of(faulty, pairs, key(1), (7, 2)) != votes_of(faulty, pairs, key(1), (1, 1))


def test_a_plan_counts_the_votes_that_an_item_keeps():
    """Users of several items leave a full one; those of one item stay, and nobody moves where there is one trip."""
    made = planned(vote_quota=9)
    law = made.calibration.program.count_noise.law
    assert law.release_probability(9) < 0.5
    assert made.keep_probability(10_000, 4) == pytest.approx(law.release_probability(9), rel=1e-12)
    assert users_for(0.5, lambda users: made.keep_probability(users, 4)) is None
    [table] = [
        part for part in shown_selection(plan_report(made, [4])) if "50 %" in getattr(part, "columns", ())
    ]
    assert table.rows[0][3:] == ("never", "never")
    assert (
        made.keep_probability(10_000, 1)
        == planned(vote_quota=9, vote_trips=1).keep_probability(10_000, 4)
        == 1
    )
    wide, default = planned(vote_quota=100), planned()
    assert 0.95 <= default.keep_probability(10_000, 4) < wide.keep_probability(10_000, 4) == 1
    for users in (30, 44, 60):
        votes = binom(users, 1 / 4).pmf(range(61))
        kept = [law.release_probability(min(n, 9)) for n in range(61)]
        assert made.keep_probability(users, 4) == pytest.approx(votes @ kept, rel=1e-12)


def planned(**options):
    return make_plan(SelectionConfig(1.0, 1e-5, "vote", **options))


def test_a_newcomer_with_a_thousand_items_of_its_own_has_one_vote():
    pairs = random_pairs(3, users=100)
    extra = [("newcomer", f"own {i}") for i in range(1000)]
    before, after = (votes_of(program(max_items=1000), p, key(3), (3, 2)) for p in (pairs, pairs + extra))
    ((item, change),) = moved(before, after).items()
    assert change == 1
    assert item.startswith("own")


def test_noise_alone_stays_below_the_threshold():
    """Of 50,000 items one has the only vote; the noisy counts of the others stay below by the law itself."""
    pairs = [("user", f"item {i}") for i in range(50_000)]
    seen = watch(program(max_items=50_000, noise=CountNoise(1.0, 0.3)), pairs, key(1))
    (last,) = seen.rounds.values()
    alone = [noisy for item, noisy in last.noisy.items() if not last.exact[item]]
    assert len(alone) == 49_999
    assert max(alone) == (CountNoise(1.0, 0.3).law.threshold - 1) * UNITS
