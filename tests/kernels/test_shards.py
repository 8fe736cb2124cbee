"""Item shards: links of blocks, exact sums, and messages that must not be missing."""

import tracemalloc

import numpy as np
import pyarrow as pa
import pytest

from dpbeam.errors import RunnerError
from dpbeam.kernels.columns import Packed, decode, encode
from dpbeam.kernels.pairs import PairKeys, build_block, partition_pairs
from dpbeam.kernels.shards import (
    PACKED_ITEMS,
    LinkedItems,
    Shard,
    build_shard,
    is_packed_items,
    shard_slices,
    sum_messages,
)
from dpbeam.randomness import fingerprints
from tests.support.instances import batches, random_pairs

KEYS = PairKeys(user=bytes([1]) * 32, item=bytes([2]) * 32, sample=bytes([3]) * 32)


def linked(number, block_ids, items):
    return build_shard(number, block_ids, items, [fingerprints(KEYS.item, part) for part in items])


@pytest.fixture(scope="module")
def blocks():
    messages: dict[int, list] = {}
    for users, items in batches(random_pairs(1, users=200, items=120)):
        for block, columns in partition_pairs(users, items, KEYS, 5, 100):
            messages.setdefault(block, []).append(columns)
    return [build_block(number, m, KEYS, 3, 100) for number, m in sorted(messages.items())]


@pytest.fixture(scope="module")
def shards(blocks):
    parts: dict[int, list] = {}
    for block in blocks:
        for shard, part in shard_slices(block):
            parts.setdefault(shard, []).append((block.id, block.items[part.start : part.stop]))
    return [linked(s, [b for b, _ in parts[s]], [i for _, i in parts[s]]) for s in sorted(parts)]


def test_shards_partition_the_items_and_link_every_block(blocks, shards):
    strings = [item for shard in shards for item in shard.items.to_pylist()]
    assert len(strings) == len(set(strings))
    assert set(strings) == {item for block in blocks for item in block.items.to_pylist()}
    by_id = {block.id: block for block in blocks}
    for shard in shards:
        assert len(shard) == len(shard.items)
        for position, block_id in enumerate(shard.block_ids):
            bounds = by_id[int(block_id)].shard_offsets
            held = by_id[int(block_id)].items[int(bounds[shard.id]) : int(bounds[shard.id + 1])]
            assert shard.items.take(pa.array(shard.links_of(position))).equals(held)


@pytest.fixture(scope="module")
def packed(blocks):
    """The shards of blocks that sent their items packed."""
    parts: dict[int, list] = {}
    for block in reversed(blocks):
        for shard, part in shard_slices(block):
            items, fp = block.items[part.start : part.stop], block.item_fp[part]
            parts.setdefault(shard, []).append((block.id, Packed.of(items), fp))
    return [build_shard(s, *zip(*parts[s], strict=True)) for s in sorted(parts)]


def test_items_that_came_packed_are_the_same(shards, packed):
    rng = np.random.default_rng(2)
    for shard, other in zip(shards, packed, strict=True):
        items = shard.items
        assert isinstance(other.items, LinkedItems) and len(other.items) == len(items) > 20
        np.testing.assert_array_equal(other.fp, shard.fp)
        np.testing.assert_array_equal(other.slots, shard.slots)
        assert other.items.unpack().equals(items)
        for size in (0, 1, 50):  # in any order, also twice
            rows = pa.array(rng.integers(0, len(items), size))
            assert other.items.take(rows).equals(items.take(rows))
        for share in (0, 0.2, 1):
            mask = pa.array(rng.random(len(items)) < share)
            assert other.items.filter(mask).equals(items.filter(mask))


def test_packed_items_are_stored_as_they_came(shards, packed):
    for shard, other in zip(shards, packed, strict=True):
        stored = other.items_columns()
        assert all(stored[f"{PACKED_ITEMS}{place}"] is part for place, part in enumerate(other.items.parts))
        again = Shard.from_columns(decode(encode(other.links_columns())))
        again.items = again.items_of(decode(encode(stored), is_packed_items))
        assert again.items.unpack().equals(shard.items)
        again.items = again.items_of(decode(encode(shard.items_columns()), is_packed_items))
        assert again.items.equals(shard.items)
        assert decode(encode(other.to_columns()))["items"].equals(shard.items)


def test_packed_items_refuse_what_arrow_refuses(packed):
    items = packed[0].items
    for rows in ([-1], [len(items)]):
        with pytest.raises(IndexError):
            items.take(pa.array(rows))
    with pytest.raises(ValueError, match=f"a mask of 3 for {len(items)} items"):
        items.filter(pa.array([True] * 3))


@pytest.mark.parametrize(("blocks", "kept"), [(6, True), (7, False)])
def test_items_of_many_blocks_are_kept_once(blocks, kept):
    """What all have, and as often, would else take as much as all messages."""
    items = pa.array([b"a", b"b"], pa.large_binary())
    fp = np.array([[1, 2], [3, 4]], np.uint64)
    shard = build_shard(0, list(range(blocks)), [Packed.of(items)] * blocks, [fp] * blocks)
    assert isinstance(shard.items, LinkedItems) == kept
    assert (shard.items.unpack() if kept else shard.items).equals(items)


def test_parts_of_which_nothing_is_asked_stay_packed(packed, monkeypatch):
    """Of an item of several blocks the first one's is taken."""
    unpacked, unpack = [], Packed.unpack
    monkeypatch.setattr(Packed, "unpack", lambda self: unpacked.append(self) or unpack(self))
    for shard in packed:
        shard.items.take(pa.array(shard.links_of(0)[:3]))
        assert unpacked.pop() is shard.items.parts[0] and not unpacked
        shard.items.filter(pa.array(np.zeros(len(shard), bool)))
        assert not unpacked


def test_sums_are_exact_integers(blocks, shards):
    """Values near 2^50, where floating-point sums would round."""
    rng = np.random.default_rng(1)
    sent = {b.id: rng.integers(2**49, 2**50, b.num_items) for b in blocks}
    expected: dict[bytes, int] = {}
    for block in blocks:
        for item, value in zip(block.items.to_pylist(), sent[block.id]):
            expected[item] = expected.get(item, 0) + int(value)
    by_id = {block.id: block for block in blocks}
    for shard in shards:
        messages = {}
        for block_id in shard.block_ids.tolist():
            part = dict(shard_slices(by_id[block_id]))[shard.id]
            messages[block_id] = {
                "w": sent[block_id][part],
                "zero": np.zeros(part.stop - part.start, np.int64),
            }
        sums = sum_messages(shard, ("w", "zero"), messages)
        assert sums["w"].dtype == np.int64
        assert dict(zip(shard.items.to_pylist(), sums["w"].tolist())).items() <= expected.items()
        assert not sums["zero"].any()


def test_a_missing_or_foreign_message_stops_the_run(shards):
    shard = shards[0]
    good = {int(b): {"w": np.zeros(len(shard.links_of(p)), np.int64)} for p, b in enumerate(shard.block_ids)}
    sum_messages(shard, ("w",), good)
    for bad in (dict(list(good.items())[1:]), {**good, 999: {"w": np.zeros(1, np.int64)}}, {}):
        with pytest.raises(RunnerError, match="lost or doubled messages of blocks to shard 0"):
            sum_messages(shard, ("w",), bad)


def test_a_second_first_message_of_a_block_stops_the_run():
    items = pa.array([b"a"], pa.large_binary())
    with pytest.raises(RunnerError, match="the runner doubled a block's first message to shard 4"):
        linked(4, [1, 2, 1], [items] * 3)


def test_shards_do_not_depend_on_the_order_of_messages(shards):
    arrays = [pa.array([b"x", b"y"], pa.large_binary()), pa.array([b"y", b"z"], pa.large_binary())]
    one = linked(0, [3, 8], arrays)
    other = linked(0, [8, 3], arrays[::-1])
    for name, values in one.to_columns().items():
        column = other.to_columns()[name]
        assert column.equals(values) if isinstance(values, pa.Array) else np.array_equal(column, values)


def test_shards_survive_their_encoding(shards):
    shard = shards[1]
    shard.sums = {"weight": np.arange(len(shard))}
    shard.state = {"z": np.arange(len(shard)) / 7, "released": np.arange(len(shard)) % 2 == 0}
    back = Shard.from_columns(decode(encode(shard.to_columns())))
    assert back.id == shard.id
    assert back.items.equals(shard.items)
    assert np.array_equal(back.fp, shard.fp)
    assert np.array_equal(back.slots, shard.slots)
    assert np.array_equal(back.sums["weight"], shard.sums["weight"])
    assert back.state["released"].dtype == np.bool_
    assert np.array_equal(back.state["z"], shard.state["z"])


def test_a_message_of_another_length_is_refused():
    """Also where all of them together have as many numbers as there are links."""
    items = [pa.array([b"a", b"b"], pa.large_binary()), pa.array([b"b", b"c"], pa.large_binary())]
    shard = linked(0, [0, 1], items)
    sent = {0: {"weight": np.array([1, 1, 1])}, 1: {"weight": np.array([10])}}
    with pytest.raises(RuntimeError, match="shard 0 expected a number for every link"):
        sum_messages(shard, ["weight"], sent)


def test_to_number_items_takes_few_bytes_a_link():
    """Two threads do so at once: it is what a run's memory is largest for."""
    rng, links, blocks = np.random.default_rng(6), 400_000, 4
    parts = [rng.integers(0, 1 << 63, (links // blocks, 2)).astype(np.uint64) for _ in range(blocks)]
    items = [Packed.of(pa.array([b""] * (links // blocks), pa.large_binary()))] * blocks
    tracemalloc.start()
    try:
        build_shard(0, range(blocks), items, (part.copy() for part in parts))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 50 * links  # 61 where the messages' own stay, or where all in one array do
