"""From raw pairs to user blocks: identity, distinct pairs, uniform and mergeable samples."""

import dataclasses
import itertools
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import dpbeam.kernels.pairs as pairs_module
import dpbeam.kernels.users as users_module
from dpbeam.errors import InputError
from dpbeam.kernels.columns import decode, encode
from dpbeam.kernels.kept import KeptItems
from dpbeam.kernels.pairs import (
    Block,
    PairKeys,
    argsort_fingerprints,
    bottom_sample,
    build_block,
    build_complete_block,
    common_kinds,
    distinct_fingerprints,
    encode_dictionary,
    entries_of_rows,
    kinds_column,
    pack_pairs,
    pairs_in,
    partition_again,
    partition_pairs,
    positions_in,
    range_bucket,
    unique_fingerprints,
    unpack_pairs,
)
from dpbeam.kernels.users import UserRows
from dpbeam.randomness import fingerprints
from tests.support.instances import batches, fingerprint_array, random_pairs
from tests.support.statistics import FALSE_ALARM

KEYS = PairKeys(user=bytes([1]) * 32, item=bytes([2]) * 32, sample=bytes([3]) * 32)


def messages_of(pairs, *, num_blocks=1, cap=100, size=None, keys=KEYS):
    by_block: dict[int, list] = {}
    for users, items in batches(pairs, size):
        for block, columns in partition_pairs(users, items, keys, num_blocks, cap):
            by_block.setdefault(block, []).append(columns)
    return by_block


def messages_by_groups(pairs, *, num_blocks, group, cap=100, size=None, chunk=3):
    """As `messages_of`, split by groups of blocks first; a chunk of a group's messages at a time."""
    groups: dict[int, list] = {}
    for users, items in batches(pairs, size):
        for number, columns in partition_pairs(users, items, KEYS, num_blocks, cap, group=group):
            groups.setdefault(number, []).append(columns)
    assert max(groups) * group < num_blocks
    by_block: dict[int, list] = {}
    for number, messages in groups.items():
        for start in range(0, len(messages), chunk):
            for block, columns in partition_again(messages[start : start + chunk], KEYS, num_blocks, cap):
                assert block // group == number
                by_block.setdefault(block, []).append(columns)
    return by_block


def block_sets(block: Block) -> dict[tuple, set[str]]:
    """User fingerprint -> items."""
    items = [item.decode() for item in block.items.to_pylist()]
    users = [tuple(map(int, fp)) for fp in block.user_fp]
    assert len(set(users)) == len(users)
    rows = [block.links[a:b] for a, b in zip(block.offsets[:-1], block.offsets[1:])]
    assert all((np.diff(row) > 0).all() for row in rows)
    return {user: {items[i] for i in row} for user, row in zip(users, rows)}


def all_sets(pairs, *, num_blocks=1, num_shards=1, cap=100, size=None) -> dict[tuple, set[str]]:
    merged: dict[tuple, set[str]] = {}
    for number, messages in messages_of(pairs, num_blocks=num_blocks, cap=cap, size=size).items():
        sets = block_sets(build_block(number, messages, KEYS, num_shards, cap))
        assert not merged.keys() & sets.keys()  # a user lies in one block
        merged.update(sets)
    return merged


def true_sets(pairs) -> dict[tuple, set[str]]:
    sets: dict[tuple, set[str]] = {}
    for user, item in pairs:
        fp = tuple(map(int, fingerprints(KEYS.user, pa.array([user]))[0]))
        sets.setdefault(fp, set()).add(item)
    return sets


def test_blocks_hold_the_distinct_pairs_of_whole_users():
    pairs = random_pairs(1, users=150)
    expected = true_sets(pairs)
    for num_blocks, size in ((1, None), (4, 50), (64, 7)):
        assert all_sets(pairs + pairs[:200], num_blocks=num_blocks, size=size) == expected


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.text(max_size=4)), min_size=1, max_size=40),
    st.integers(1, 5),
    st.integers(1, 6),
)
def test_blocks_of_arbitrary_strings(pairs, num_blocks, num_shards):
    assert all_sets(pairs, num_blocks=num_blocks, num_shards=num_shards, size=9) == true_sets(pairs)


def check_same_blocks(kept, sent, by_block, cap):
    """Messages with numbers of kept items make the blocks of those with the items."""
    for number, messages in sent.items():
        one, two = (build_block(number, some, KEYS, 2, cap) for some in (messages, by_block[number]))
        assert two.items.type == pa.int64() and kept.take(two.items.to_numpy()).equals(one.items)
        for name in ("offsets", "links", "shard_offsets", "item_fp", "user_fp"):
            assert np.array_equal(getattr(one, name), getattr(two, name)), name


@pytest.mark.parametrize("rare", [True, False])
@pytest.mark.parametrize("cap", [3, 100])
def test_kept_items_make_the_same_blocks_of_numbers(rare, cap):
    """Items of a row each, and dictionaries with few and with many rows for each entry; a user above the cap."""
    blocks, items = (5, 300) if rare else (2, 6)
    pairs = random_pairs(9, users=80, max_degree=20, items=items)
    pairs += [("whale", f"own {n}") for n in range(30)] + pairs[::3]
    sent = messages_of(pairs, num_blocks=blocks, cap=cap, size=90)
    kept, by_block = KeptItems(), {}
    for turn, (users, items) in enumerate(batches(pairs, 90)):
        items = items.dictionary_encode() if turn % 2 else items
        for block, message in partition_pairs(users, items, KEYS, blocks, cap, kept=kept):
            assert "dictionary" not in message
            by_block.setdefault(block, []).append(message)
    assert any("item" in message for messages in by_block.values() for message in messages) == (not rare)
    check_same_blocks(kept, sent, by_block, cap)


@pytest.mark.parametrize("rows", [3, 30])
def test_entries_that_no_row_has_are_not_kept(rows):
    """Batches that are slices of a column have the dictionary of all of it."""
    items = pa.array([b"item %d" % n for n in range(100)], pa.large_binary()).dictionary_encode()
    users = pa.array([f"user {n}" for n in range(rows)])
    kept = KeptItems()
    messages = [m for _, m in partition_pairs(users, items.slice(40, rows), KEYS, 1, 9, kept=kept)]
    assert sorted(kept.take(np.arange(rows)).to_pylist()) == sorted(items.slice(40, rows).to_pylist())
    assert kept.keep(pa.array([b"next"], pa.large_binary())) == rows
    assert set(build_block(0, messages, KEYS, 1, 9).items.to_pylist()) == set(range(rows))


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("cap", [3, 100])
def test_users_of_one_row_each_are_sorted_in_their_block(cap, group, monkeypatch):
    """Beside batches in which users have several; one of them has more than the cap in all."""
    pairs = random_pairs(9, users=400, max_degree=20, items=300) + [("whale", f"own {n}") for n in range(30)]
    apart = [pairs[at] for at in np.random.default_rng(0).permutation(len(pairs))]
    monkeypatch.setattr(UserRows, "mostly_single", False)
    sorted_rows = messages_of(pairs + apart, num_blocks=5, cap=cap, size=70)
    monkeypatch.undo()
    monkeypatch.setattr(users_module, "_RANGE", np.uint64(2**64 - 1))
    monkeypatch.setattr(pairs_module, "_MAX_BLOCK_IMBALANCE", 2.0)  # of 70 rows
    kept, of_kept = KeptItems(), {}
    for users, items in batches(pairs + apart, 70):
        for block, message in partition_pairs(users, items, KEYS, 5, cap, kept=kept):
            of_kept.setdefault(block, []).append(message)
    monkeypatch.setattr(pairs_module, "as_dictionary", lambda items, *, kept: entries_of_rows(items))
    if group == 1:
        sent = messages_of(pairs + apart, num_blocks=5, cap=cap, size=70)
    else:
        sent = messages_by_groups(pairs + apart, num_blocks=5, group=group, cap=cap, size=70, chunk=1)
    for messages in (of_kept, sent):
        assert {"rows" in message for message in itertools.chain(*messages.values())} == {True, False}
    check_same_blocks(kept, sorted_rows, of_kept, cap)
    check_same_blocks(kept, sent, of_kept, cap)


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("group", [1, 3])
def test_rows_of_users_of_one_row_each_keep_their_order(group, kept, monkeypatch):
    """However many are taken at once: message by message, the rows whose user belongs there."""
    monkeypatch.setattr(pairs_module, "TABLE_ROWS", 70)
    users = pa.array([b"user-%d" % i for i in range(1_000)])
    items = entries_of_rows(pa.array([b"item-%d" % i for i in range(1_000)], pa.large_binary()))
    fp = fingerprints(KEYS.user, users.cast(pa.large_binary()))
    place = range_bucket(fp, 11) // group
    keeper = KeptItems() if kept else None
    seen = []
    for number, message in partition_pairs(users, items, KEYS, 11, 5, group=group, kept=keeper):
        rows = np.flatnonzero(place == number)
        np.testing.assert_array_equal(message["user_fp"], fp[rows])
        expected = items.dictionary.take(pa.array(rows))
        if kept:
            assert keeper.take(message["entry"] + message["first"]).equals(expected)
            np.testing.assert_array_equal(message["item_fp"], fingerprints(KEYS.item, expected))
        else:
            assert message["dictionary"].equals(expected)
        seen.append(number)
    assert seen == sorted(set(place.tolist())) and len(seen) > 3


@pytest.mark.parametrize("kept", [KeptItems(), None], ids=["kept", "sent"])
@pytest.mark.parametrize("whale", [False, True])
def test_a_user_with_the_rows_of_many_is_cut_among_users_of_one_row(whale, kept):
    """Which no part of the other users would tell."""
    pairs = [(f"user {n}", f"item {n}") for n in range(20_000)]
    pairs += [("whale" if whale else f"other {n}", f"own {n}") for n in range(2_000)]
    ((users, items),) = batches(pairs)
    sent = [message for _, message in partition_pairs(users, items, KEYS, 8, 100, kept=kept)]
    assert all(("rows" in message) == whale for message in sent)
    assert sum(map(pairs_in, sent)) == (20_100 if whale else 22_000)


def test_a_few_users_tell_whether_most_have_one_row():
    rng = np.random.default_rng(3)
    fp = rng.integers(0, 2**64, (50_000, 2), np.uint64)
    assert UserRows(fp).mostly_single
    assert not UserRows(np.concatenate([fp, fp])).mostly_single
    assert not UserRows(fp[:0]).mostly_single
    assert not UserRows(fp, lengths=np.ones(len(fp), np.int64)).mostly_single


@pytest.mark.parametrize("group", [1, 2, 5, 40])
@pytest.mark.parametrize("cap", [3, 100])
def test_two_splits_make_the_blocks_of_one(group, cap):
    """Users with more than the cap in a batch, in a chunk and in all; rows that repeat within and across batches."""
    pairs = random_pairs(8, users=60, max_degree=20) + [("whale", f"own {n}") for n in range(30)]
    pairs = pairs + pairs[::3]
    direct = messages_of(pairs, num_blocks=17, cap=cap)
    in_two_steps = messages_by_groups(pairs, num_blocks=17, group=group, cap=cap, size=50)
    assert in_two_steps.keys() == direct.keys()
    for number, messages in direct.items():
        one, two = (build_block(number, some, KEYS, 2, cap) for some in (messages, in_two_steps[number]))
        assert block_sets(one) == block_sets(two)
        assert one.items.equals(two.items) and np.array_equal(one.links, two.links)
        assert np.array_equal(one.user_fp, two.user_fp)


def test_a_second_split_names_a_user_and_an_item_once_per_message():
    pairs = [("ann", "x"), ("bob", "x"), ("ann", "y")] * 4
    ((_, (message,)),) = messages_by_groups(pairs, num_blocks=1, group=1, size=1, chunk=100).items()
    assert len(message["user_fp"]) == 2 and sorted(message["rows"]) == [4, 8]
    assert sorted(message["dictionary"].to_pylist()) == [b"x", b"y"]


def test_a_second_split_refuses_mixed_kinds_and_takes_nothing():
    assert list(partition_again([], KEYS, 4, 100)) == []
    users, items = pa.array(["a"]), pa.array(["b"])
    mixed = [
        columns
        for kinds in (b"string", b"int")
        for _, columns in partition_pairs(users, items, KEYS, 9, 100, kinds, group=3)
    ]
    with pytest.raises(InputError, match="ids mix types"):
        list(partition_again(mixed, KEYS, 9, 100))


def test_a_message_of_few_rows_has_a_small_dictionary(monkeypatch):
    """Both ways to restrict a dictionary name the same items in the same order."""
    pairs = random_pairs(4, users=200)
    sizes = []
    for few in (0, 10**9):
        monkeypatch.setattr(pairs_module, "_MAX_DICTIONARY_RATIO", few)
        messages = messages_of(pairs, num_blocks=40)
        sizes.append(
            {
                block: [(m["item"].tolist(), m["dictionary"].to_pylist()) for m in part]
                for block, part in messages.items()
            }
        )
        assert all(
            sorted(set(m["item"].tolist())) == list(range(len(m["dictionary"])))
            for m in itertools.chain(*messages.values())
        )
    assert sizes[0] == sizes[1]


def test_a_block_does_not_depend_on_the_order_of_its_messages():
    pairs = random_pairs(2, users=80, max_degree=20)
    messages = messages_of(pairs, size=25, cap=5)[0]
    wanted = build_block(0, messages, KEYS, 3, 5)
    rng = np.random.default_rng(0)
    for _ in range(4):
        again = build_block(0, [messages[i] for i in rng.permutation(len(messages))], KEYS, 3, 5)
        for name, values in wanted.to_columns(with_items=True).items():
            other = again.to_columns(with_items=True)[name]
            assert other.equals(values) if isinstance(values, pa.Array) else np.array_equal(other, values)


def test_blocks_survive_their_encoding():
    block = build_block(0, messages_of(random_pairs(3))[0], KEYS, 4, 100)
    block.state = {"bias": np.arange(3, dtype=np.uint16)}
    back = Block.from_columns(decode(encode(block.to_columns(with_items=True))))
    assert block_sets(back) == block_sets(block)
    assert np.array_equal(back.shard_offsets, block.shard_offsets)
    assert np.array_equal(back.state["bias"], block.state["bias"])
    assert back.kinds == block.kinds
    assert back.id == 0
    assert Block.from_columns(block.to_columns(with_items=False)).items is None


@pytest.mark.parametrize("num_shards", [1, 2, 7, 64])
def test_shard_ranges_cover_the_items_in_fingerprint_order(num_shards):
    block = build_block(0, messages_of(random_pairs(4, items=300, users=300))[0], KEYS, num_shards, 100)
    assert np.array_equal(argsort_fingerprints(block.item_fp), np.arange(len(block.item_fp)))
    assert block.shard_offsets[0] == 0
    assert block.shard_offsets[-1] == len(block.item_fp) == block.num_items
    assert len(block.shard_offsets) == num_shards + 1
    for shard in range(num_shards):
        part = block.item_fp[block.shard_offsets[shard] : block.shard_offsets[shard + 1]]
        assert all(int(high) * num_shards >> 64 == shard for high in part[:, 0])


@pytest.mark.parametrize("buckets", [1, 3, 64, 65536, 1 << 20])
def test_range_buckets_are_even_and_keep_order(buckets):
    high = np.sort(np.random.default_rng(1).integers(0, 2**64, 200_000, np.uint64))
    bucket = range_bucket(np.stack([high, high], axis=1), buckets)
    assert bucket.dtype == np.int64
    assert (np.diff(bucket) >= 0).all()
    assert bucket[0] >= 0
    assert bucket[-1] < buckets
    if buckets <= 64:
        counts = np.bincount(bucket, minlength=buckets)
        assert buckets == 1 or stats.chisquare(counts).pvalue > FALSE_ALARM
    corner = fingerprint_array([(0, 0), (2**64 - 1, 0)])
    assert range_bucket(corner, buckets).tolist() == [0, buckets - 1]


# --- sorting and equality of fingerprints

crafted = st.one_of(
    st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)),
    st.tuples(st.integers(0, 3), st.integers(0, 3)),  # equal first words
    st.tuples(st.integers(7 << 32, (7 << 32) + 5), st.integers(0, 2)),  # equal 32-bit prefixes
    st.sampled_from([(0, 0), (0, 2**64 - 1), (2**64 - 1, 0), (2**64 - 1, 2**64 - 1), (1 << 63, 1 << 63)]),
)


def check_sorted(rows) -> None:
    fp = fingerprint_array(rows)
    values = [tuple(map(int, row)) for row in fp]
    order = argsort_fingerprints(fp)
    assert [values[i] for i in order] == sorted(values)
    first, inverse = unique_fingerprints(fp)
    assert [values[i] for i in first] == sorted(set(values))
    assert [values[first[i]] for i in inverse] == values


@settings(max_examples=60)
@given(st.lists(crafted, max_size=30))
def test_few_fingerprints_sort_exactly(rows):
    check_sorted(rows)


@settings(max_examples=40)
@given(st.lists(crafted, min_size=1, max_size=20), st.integers(0, 2**32))
def test_many_fingerprints_sort_exactly(rows, seed):
    """Above 255 rows the radix passes run; the crafted rows collide in all the bits that these look at."""
    rng = np.random.default_rng(seed)
    filler = [tuple(map(int, row)) for row in rng.integers(0, 2**64, (300, 2), np.uint64)]
    repeated = [rows[i] for i in rng.integers(0, len(rows), 400)]
    check_sorted(repeated)
    check_sorted(repeated + filler)


@pytest.mark.parametrize("spread", [0, 1, 2**16, 2**31, 2**32 - 1, 2**32, 2**33, 2**63])
def test_fingerprints_within_a_narrow_range_sort_exactly(spread):
    rng = np.random.default_rng(spread % 97)
    high = (np.uint64(12345) << np.uint64(20)) + rng.integers(0, spread + 1, 1000, np.uint64)
    low = rng.integers(0, 3, 1000, np.uint64)
    check_sorted(list(zip(high.tolist(), low.tolist())))


def test_equal_high_words_do_not_merge_users_or_items(monkeypatch):
    """Fingerprints cut to their last word, and then to few of its bits in front: all pairs still apart."""

    def cut(key, values):
        full = fingerprints(key, values)
        full[:, 0] = full[:, 0] & np.uint64(3)
        return full

    pairs = random_pairs(5, users=400, items=300)
    monkeypatch.setattr(pairs_module, "fingerprints", cut)
    block = build_block(0, messages_of(pairs)[0], KEYS, 1, 100)
    items = sorted({item for _, item in pairs})
    assert sorted(item.decode() for item in block.items.to_pylist()) == items
    assert sorted(map(sorted, block_sets(block).values())) == sorted(map(sorted, true_sets(pairs).values()))


# --- samples


def sample(num_items: int, cap: int, key: bytes, users: int = 1) -> np.ndarray:
    """Mask (users, num_items) of the samples of users who all hold the same items."""
    user_fp = fingerprints(KEYS.user, pa.array([f"u{u}" for u in range(users)]))
    item_fp = fingerprints(KEYS.item, pa.array([f"i{i}" for i in range(num_items)]))
    offsets = np.arange(users + 1, dtype=np.int64) * num_items
    links = np.tile(np.arange(num_items), users)
    keep = bottom_sample(offsets, user_fp, item_fp, links, key, cap)
    return keep.reshape(users, num_items)


def test_samples_have_the_size_of_the_cap_and_are_uniform():
    """Single items and pairs of items by chi-square, on 30,000 users; false alarm 2e-9. A biased sample fails."""
    kept = sample(10, 4, KEYS.sample, users=30_000)
    assert (kept.sum(axis=1) == 4).all()
    together = kept.astype(np.int64).T @ kept.astype(np.int64)
    couples = together[np.triu_indices(10, 1)]
    # Within a user inclusions are negatively correlated; (m - 1)/m times the usual sum is chi-square, m - 1 degrees.
    singles = np.diag(together)
    p, n = 0.4, len(kept)
    statistic = ((singles - n * p) ** 2).sum() / (n * p * (1 - p)) * (10 - 1) / 10
    assert stats.chi2.sf(statistic, 9) > FALSE_ALARM
    expected = n * 4 * 3 / (10 * 9)
    assert np.abs(couples - expected).max() < 7.5 * np.sqrt(expected)
    biased = kept.copy()
    biased[:1500, 0] = True
    shifted = biased.sum(axis=0)
    assert stats.chi2.sf(((shifted - n * p) ** 2).sum() / (n * p * (1 - p)) * 0.9, 9) < FALSE_ALARM


def test_samples_change_with_key_and_user():
    first, second = sample(40, 10, KEYS.sample, 50), sample(40, 10, bytes(32), 50)
    assert (first != second).any(axis=1).all()
    assert len({row.tobytes() for row in first}) == 50


@settings(max_examples=30)
@given(st.integers(1, 12), st.integers(1, 30), st.integers(1, 30), st.integers(0, 10**6))
def test_samples_merge(cap, left, right, seed):
    """The bottom of a union is the bottom of the bottoms, for any cut of a user's pairs into batches."""
    pairs = [("u", f"i{(seed + k) % 45}") for k in range(left + right)]
    whole = all_sets(pairs, cap=cap)
    assert all_sets(pairs, cap=cap, size=left) == whole
    assert all_sets(pairs[left:] + pairs[:left] + pairs, cap=cap, size=right) == whole
    assert {len(s) for s in whole.values()} == {min(cap, len(set(pairs)))}


def test_heavy_users_are_cut_before_they_travel_and_sampled_alike(monkeypatch):
    pairs = random_pairs(6, users=200) + [("whale", f"w{i}") for i in range(3000)]
    pairs += [("shark", f"w{i}") for i in range(0, 3000, 7)]
    sent = messages_of(pairs, cap=10)[0]
    assert sum(map(pairs_in, sent)) < 2000
    light = all_sets(pairs, cap=10)
    monkeypatch.setattr(pairs_module, "_cap_heavy", lambda offsets, *rest: np.ones(int(offsets[-1]), bool))
    assert sum(map(pairs_in, messages_of(pairs, cap=10)[0])) == len(pairs)
    assert all_sets(pairs, cap=10) == light
    assert max(map(len, light.values())) == 10


@pytest.mark.parametrize("at_once", [1, 40, 700])
def test_samples_do_not_depend_on_how_many_users_are_sampled_at_once(at_once, monkeypatch):
    pairs = random_pairs(7, users=90) + [(f"heavy{u}", f"i{i}") for u in range(9) for i in range(5 + 20 * u)]
    whole = all_sets(pairs, cap=6), sample(30, 6, KEYS.sample, users=20)
    monkeypatch.setattr(pairs_module, "_PAIRS_AT_ONCE", at_once)
    assert all_sets(pairs, cap=6) == whole[0]
    assert (sample(30, 6, KEYS.sample, users=20) == whole[1]).all()


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 5)), max_size=20))
def test_segment_rows_are_ranges_end_to_end(segments):
    starts, lengths = np.array(segments, np.int64).reshape(-1, 2).T
    expected = [row for start, length in segments for row in range(start, start + length)]
    assert pairs_module.segment_rows(starts, lengths).tolist() == expected


@given(st.lists(st.integers(0, 6), max_size=60), st.integers(1, 50))
def test_dictionaries_of_few_rows_hold_the_same_items(values, rows):
    items = pa.array([b"%d" % v for v in values], pa.large_binary())
    with mock.patch.object(pairs_module, "TABLE_ROWS", rows):
        encoded = pairs_module.as_dictionary(items)
    assert encoded.to_pylist() == items.to_pylist()
    parts = [values[start : start + rows] for start in range(0, len(values), rows)]
    assert len(encoded.dictionary) == sum(len(set(part)) for part in parts)
    assert pairs_module.as_dictionary(encoded) is encoded


@pytest.mark.parametrize("constant", [0, 5, 2**64 - 1])
def test_ties_of_the_sampling_order_go_to_the_smaller_fingerprint(constant, monkeypatch):
    """A constant pseudo-random function: samples still have the cap's size, merge, and ignore the input's order."""

    def flat(key, user, item, of_user, of_item):
        return np.full((len(of_user), 2), constant, np.uint64)

    monkeypatch.setattr(pairs_module, "pair_bits", flat)
    kept = sample(20, 6, KEYS.sample, users=3)
    assert (kept.sum(axis=1) == 6).all()
    pairs = [(u, f"i{i}") for u in ("a", "b") for i in range(25)]
    by_fingerprint = sorted(
        (tuple(map(int, fingerprints(KEYS.item, pa.array([f"i{i}"]))[0])), f"i{i}") for i in range(25)
    )
    smallest = {name for _, name in by_fingerprint[:6]}
    for rows in (pairs, pairs[::-1], pairs + pairs):
        for size in (None, 4, 13):
            assert all(
                smallest_left == smallest for smallest_left in all_sets(rows, cap=6, size=size).values()
            )


def test_ties_of_the_leading_bits_are_decided_by_all_bits(monkeypatch):
    """Equal first words: the second word decides, in the batch, in the block and after merging."""

    def second_word_only(key, user, item, of_user, of_item):
        return np.stack([np.zeros(len(of_item), np.uint64), item[of_item, 1]], axis=1)

    monkeypatch.setattr(pairs_module, "pair_bits", second_word_only)
    pairs = [("a", f"i{i}") for i in range(30)]
    order = sorted(range(30), key=lambda i: int(fingerprints(KEYS.item, pa.array([f"i{i}"]))[0][1]))
    wanted = {f"i{i}" for i in order[:7]}
    for size in (None, 8, 11):
        assert list(all_sets(pairs, cap=7, size=size).values()) == [wanted]


def test_samples_of_light_users_are_everything():
    assert sample(5, 5, KEYS.sample).all()
    assert sample(5, 6, KEYS.sample).all()
    assert sample(5, 4, KEYS.sample).sum() == 4


# --- messages


def test_empty_messages_and_blocks():
    users, items = pa.array([], pa.string()), pa.array([], pa.string())
    assert list(partition_pairs(users, items, KEYS, 4, 10)) == []
    assert build_complete_block(0, np.zeros(0, np.int64), items, KEYS, 1, 10) is None


def test_whole_users_by_declaration():
    """Rows whose users are whole: ordinals in the block name the users, samples are keyed by block and ordinal."""
    users = np.array([3, 3, 3, 7, 7, 3, 9])
    items = pa.array(["a", "b", "a", "c", "a", "d", "b"])
    block = build_complete_block(5, users, items, KEYS, 2, 10)
    assert sorted(map(sorted, block_sets(block).values())) == [["a", "b", "d"], ["a", "c"], ["b"]]
    many = np.repeat(np.arange(2000), 8)
    items = pa.array([f"i{k % 8}" for k in range(16_000)])
    first, second = (build_complete_block(number, many, items, KEYS, 1, 2) for number in (0, 1))
    assert set(first.degrees.tolist()) == {2}
    rows = first.links.reshape(-1, 2)
    assert (rows != second.links.reshape(-1, 2)).any(axis=1).mean() > 0.8  # another block, another sample
    singles = np.bincount(rows.ravel(), minlength=8)
    assert np.abs(singles - 500).max() < 7 * np.sqrt(500 * 0.75)


def test_mixed_types_are_refused():
    text = "user or item ids mix types"
    messages = [{"kinds": kinds_column(b"s")}, {"kinds": kinds_column(b"i")}]
    with pytest.raises(InputError, match=text):
        common_kinds(messages)
    assert common_kinds(messages[:1]) == b"s"
    assert common_kinds([]) == b""


def test_dictionaries_of_every_type_give_the_same_values():
    texts = ["b", "a", "b", "c"]
    for array in (
        pa.array(texts),
        pa.array(texts, pa.large_string()),
        pa.array([t.encode() for t in texts]),
        pa.array(texts).dictionary_encode(),
        pa.chunked_array([texts[:2], texts[2:]]),
    ):
        index, dictionary = encode_dictionary(array)
        assert dictionary.type == pa.large_binary()
        assert [dictionary[int(i)].as_py().decode() for i in index] == texts


LAYOUTS = {
    "plain": lambda users: users,
    "a dictionary": lambda users: users.dictionary_encode(),
    "rows of a longer table": lambda users: pa.concat_arrays([users, LONGER]).dictionary_encode()[
        : len(users)
    ],
    "fingerprints": lambda users: UserRows.of(users, KEYS.user),
    "fingerprints of parts": lambda users: UserRows.concat(
        [UserRows.of(users[:7].dictionary_encode(), KEYS.user), UserRows.of(users[7:], KEYS.user)]
    ),
}
LONGER = pa.array([b"another %d" % n for n in range(10_000)], pa.large_binary())


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("together", [False, True], ids=["users anywhere", "users together"])
@pytest.mark.parametrize("cap", [100, 5])
def test_how_users_are_laid_out_does_not_matter(layout, together, cap):
    """Rows of one user together or not, a column of names or a dictionary of them: the same messages, byte by byte."""
    rng = np.random.default_rng(11)
    numbers = rng.integers(0, 300, 6_000)
    numbers = np.sort(numbers) if together else numbers
    users = pa.array([b"user %d" % n for n in numbers], pa.large_binary())
    items = pa.array([b"item %d" % n for n in rng.integers(0, 500, 6_000)], pa.large_binary())
    messages = list(partition_pairs(layout(users), items, KEYS, 7, cap, b"kinds"))
    each = UserRows(fingerprints(KEYS.user, users))
    expected = list(partition_pairs(each, items, KEYS, 7, cap, b"kinds"))
    assert [(block, encode(columns)) for block, columns in messages] == [(b, encode(c)) for b, c in expected]


def test_users_that_lie_together_are_hashed_once_a_run():
    users = pa.array([b"%d" % (n // 40) for n in range(8_000)], pa.large_binary())
    assert len(UserRows.of(users, KEYS.user).fp) == 200
    assert len(UserRows.of(users.dictionary_encode(), KEYS.user).fp) == 200
    assert len(UserRows.of(users, KEYS.user)) == 8_000


@pytest.mark.parametrize("equal_bits", [0, 20, 40, 64])
def test_fingerprints_that_agree_in_their_leading_bits_are_sorted_exactly(equal_bits):
    rng = np.random.default_rng(equal_bits)
    high = rng.integers(0, 1 << 16, 3_000, dtype=np.uint64) >> np.uint64(equal_bits // 4)
    high |= np.uint64(1 << 63) if equal_bits == 40 else np.uint64(0)
    fp = np.column_stack([high, rng.integers(0, 50, 3_000, dtype=np.uint64)])
    order = np.lexsort((fp[:, 1], fp[:, 0]))
    assert argsort_fingerprints(fp).tolist() == order.tolist()
    first, inverse = unique_fingerprints(fp)
    assert np.array_equal(fp[first][inverse], fp)
    assert len(first) == len({tuple(row) for row in fp.tolist()})
    first, inverse, distinct = distinct_fingerprints(fp)
    assert distinct.tolist() == sorted({tuple(row): list(row) for row in fp.tolist()}.values())
    assert np.array_equal(fp[first], distinct)
    assert np.array_equal(distinct[inverse], fp)


@pytest.mark.parametrize("bits", [1, 9, 40, 55, 56, 64])
def test_distinct_words_and_their_first_rows(bits):
    """Of 500 rows, whose numbers take 9 bits: up to 55 bits there is room for them in a word."""
    rng = np.random.default_rng(bits)
    words = rng.integers(0, 2 ** min(bits, 7), 500, dtype=np.uint64) << np.uint64(max(bits - 7, 0))
    first = {}
    for row, word in enumerate(words.tolist()):
        first.setdefault(word, row)
    distinct, rows = pairs_module._distinct_words(words.copy(), bits)
    assert distinct.tolist() == sorted(first) and rows.tolist() == [first[word] for word in sorted(first)]


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6)), min_size=1), st.integers(7, 9))
def test_distinct_pairs_are_a_set_by_user(rows, num_items):
    user, item = (np.array(column, np.int64) for column in zip(*rows))
    offsets, links = pairs_module._distinct_pairs(user, item, 5, num_items)
    expected = [sorted({i for u, i in rows if u == one}) for one in range(5)]
    assert [links[a:b].tolist() for a, b in itertools.pairwise(offsets)] == expected
    assert links.dtype == np.int32 and offsets.dtype == np.int64


def test_a_message_in_fewer_bytes_keeps_every_bit():
    """The users of 2 million rows in one of 300 blocks: 14 bytes each, in place of 16, and a bit for a single pair."""
    rng = np.random.default_rng(5)
    fp = rng.integers(0, 2**64, (7_000, 2), np.uint64)
    fp[:, 0] = np.sort(fp[:, 0] // np.uint64(300) + np.uint64(2**62))
    fp[9] = fp[8] + np.array([0, 1], np.uint64)  # differs in the last bit
    rows = np.ones(len(fp), np.uint8)
    rows[::10] = 3
    items = pa.array([b"x", b"y"], pa.large_binary())
    index = rng.integers(0, 2, int(rows.sum())).astype(np.uint16)
    message = {"user_fp": fp, "rows": rows, "item": index, "dictionary": items, "kinds": kinds_column(b"k")}
    data = encode(pack_pairs(message))
    assert len(data) < 14.5 * len(fp) + index.nbytes
    unpacked = unpack_pairs(decode(data))
    assert unpacked.keys() == message.keys()
    for name in ("user_fp", "rows", "item"):
        assert np.array_equal(unpacked[name], message[name])
    assert unpacked["user_fp"].dtype == np.uint64
    assert unpacked["dictionary"].equals(items)


def test_a_message_of_users_with_a_row_each_is_sent_as_it_is():
    fp = np.random.default_rng(6).integers(0, 2**64, (50, 2), np.uint64)
    items = pa.array([b"%d" % n for n in range(50)], pa.large_binary())
    message = {"user_fp": fp, "dictionary": items, "kinds": kinds_column(b"k")}
    unpacked = unpack_pairs(decode(encode(pack_pairs(message))))
    assert unpacked.keys() == message.keys()
    assert np.array_equal(unpacked["user_fp"], fp) and unpacked["dictionary"].equals(items)


def test_a_block_finds_its_fingerprints_when_it_is_asked():
    block = build_block(3, messages_of(random_pairs(4))[0], KEYS, 4, 100)
    columns, asked = block.to_columns(with_items=False, with_identity=False), []
    read_block = Block.from_columns(columns, lambda: asked.append(1) or block.item_fp)
    assert np.array_equal(read_block.links, block.links)
    assert not asked
    other = dataclasses.replace(read_block, id=5)
    assert np.array_equal(other.item_fp, block.item_fp)
    assert np.array_equal(other.item_fp, block.item_fp)
    assert asked == [1]
    with pytest.raises(KeyError):
        Block.from_columns(columns)


def test_places_in_a_list():
    listed = np.array([[1, 1], [1, 2], [7, 0]], np.uint64)
    fp = np.array([[7, 0], [1, 0], [1, 2], [7, 0], [2, 1]], np.uint64)
    assert positions_in(listed, fp).tolist() == [2, -1, 1, 2, -1]
    assert positions_in(listed[:0], fp).tolist() == [-1] * 5
    assert positions_in(listed, fp[:0]).tolist() == []
