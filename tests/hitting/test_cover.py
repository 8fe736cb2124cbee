"""Sets of users that are not hit: restriction, merging, counts and removal, against Python sets."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbeam.hitting import cover as cover_module
from dpbeam.hitting.cover import Cover, merge_equal, peel
from tests.support.instances import csr

ITEMS = 6
user_sets = st.lists(st.sets(st.integers(0, ITEMS - 1), max_size=ITEMS), max_size=12)


def true_counts(sets, size=ITEMS):
    return [sum(item in held for held in sets) for item in range(size)]


@given(user_sets, st.permutations(range(ITEMS)), st.integers(0, ITEMS))
@settings(max_examples=60, deadline=None)
def test_counts_fall_as_users_leave(sets, order, inside):
    """Restricted to some items, taking one after the other; also through bytes, and by dropping the earlier ones."""
    domain = sorted(order[:inside])
    position = np.full(ITEMS, -1)
    position[domain] = np.arange(len(domain))
    cover = Cover.restricted(csr(sets), position)
    left = [{domain.index(i) for i in held if i in domain} for held in sets]
    counts = cover.counts(len(domain))
    assert counts.tolist() == true_counts(left, len(domain))
    taken = []
    for item in range(len(domain)):
        again = Cover.from_columns(cover.to_columns())
        later = Cover.restricted(csr(sets), position)
        later.drop(np.array(taken, np.int64))
        cover.take(item, counts)
        left = [held for held in left if item not in held]
        assert counts.tolist() == true_counts(left, len(domain))
        for other in (again, later):
            fell = np.zeros(len(domain), np.int64)
            before = other.counts(len(domain))
            other.take(item, fell)
            assert (before + fell).tolist() == counts.tolist() == other.counts(len(domain)).tolist()
        taken.append(item)


@given(user_sets.map(lambda sets: [held for held in sets if held]))
@settings(max_examples=60, deadline=None)
def test_equal_sets_are_merged(sets):
    rows, users = merge_equal(csr(sets))
    counted = {
        tuple(rows.links[rows.offsets[r] : rows.offsets[r + 1]].tolist()): int(users[r])
        for r in range(len(users))
    }
    assert len(counted) == len(users)
    assert counted == {held: list(map(tuple, map(sorted, sets))).count(held) for held in counted}
    assert sum(counted.values()) == len(sets)


@given(user_sets.map(lambda sets: [held for held in sets if held]))
@settings(max_examples=30, deadline=None)
def test_a_hash_that_always_collides_merges_nothing_wrong(sets):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cover_module, "_mixed", lambda links: np.zeros(len(links), np.uint64))
        rows, users = merge_equal(csr(sets))
    merged = [
        tuple(rows.links[rows.offsets[r] : rows.offsets[r + 1]].tolist())
        for r in range(len(users))
        for _ in range(users[r])
    ]
    assert sorted(merged) == sorted(map(tuple, map(sorted, sets)))


def largest(number, counts, positions):
    return int(np.argmax(counts))


def greedy(sets, num_items, k):
    cover = Cover.restricted(sets, np.arange(num_items))
    return peel([cover], cover.counts(num_items), k, largest)


def greedy_by_sets(sets, k):
    """Greedy by its definition; ties to the smaller item."""
    left, chosen = list(sets), []
    for _ in range(min(k, ITEMS)):
        rest = [item for item in range(ITEMS) if item not in chosen]
        chosen.append(max(rest, key=lambda item: (sum(item in held for held in left), -item)))
        left = [held for held in left if chosen[-1] not in held]
    return chosen


@given(user_sets, st.integers(1, ITEMS + 2))
@settings(max_examples=60, deadline=None)
def test_without_noise_it_is_greedy_and_hits_what_greedy_must(sets, k):
    chosen = greedy(csr(sets), ITEMS, k)
    assert chosen == greedy_by_sets(sets, k)
    hit = sum(bool(held & set(chosen)) for held in sets)
    best = max(
        sum(bool(held & set(items)) for held in sets)
        for items in itertools.combinations(range(ITEMS), min(k, ITEMS))
    )
    assert hit >= (1 - 1 / np.e) * best


def test_it_goes_on_when_nobody_is_left_and_stops_when_no_item_is():
    sets = [{0, 1, 2}]
    assert greedy(csr(sets), 3, 3) == [0, 1, 2]
    assert greedy(csr(sets), 3, 9) == [0, 1, 2]
    assert greedy(csr([]), 3, 2) == [0, 1]
    assert greedy(csr([]), 0, 2) == []


def test_users_may_lie_in_several_parts():
    rng = np.random.default_rng(0)
    sets = [set(rng.choice(30, 5, replace=False).tolist()) for _ in range(300)]
    whole = Cover.restricted(csr(sets), np.arange(30))
    expected = peel([whole], whole.counts(30), 12, largest)
    parts = [Cover.restricted(csr(sets[start::3]), np.arange(30)) for start in range(3)]
    assert peel(parts, sum(part.counts(30) for part in parts), 12, largest) == expected


def test_every_pair_is_added_up_once_at_most(monkeypatch):
    """All rounds together cost one pass over the pairs."""
    added = 0
    segment_rows = cover_module.segment_rows

    def counted(starts, lengths):
        nonlocal added
        added += int(lengths.sum())
        return segment_rows(starts, lengths)

    rng = np.random.default_rng(1)
    sets = csr([rng.choice(50, 8, replace=False).tolist() for _ in range(400)])
    cover = Cover.restricted(sets, np.arange(50))
    counts = cover.counts(50)
    monkeypatch.setattr(cover_module, "segment_rows", counted)
    assert len(peel([cover], counts, 50, largest)) == 50
    assert counts.tolist() == [0] * 50
    assert added == len(sets.links)
