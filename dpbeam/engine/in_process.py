"""Runs a program in this process, on arrays in memory.

The same kernels and programs as on Beam, without a runner: for tests, notebooks, evaluation and small data. For a
fixed key it releases the identical items as any runner, for any number of blocks and shards.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dpbeam.engine.ahead import few_ahead
from dpbeam.engine.program import (
    Keys,
    Program,
    add_noise,
    check_trips,
    decide_at_hub,
    replies_by_link,
    reply_to,
)
from dpbeam.kernels.canonical import METADATA_KEY
from dpbeam.kernels.columns import Columns
from dpbeam.kernels.kept import KeptItems
from dpbeam.kernels.pairs import Block, build_block, one_kind, partition_pairs
from dpbeam.kernels.shards import Shard, build_shard, link_messages, shard_slices, sum_messages
from dpbeam.randomness import RunKey

# Below it threads are of no use: kernels on small arrays hold the interpreter most of the time.
LINKS_FOR_THREADS = 1_000_000


@dataclass(frozen=True)
class Released:
    """Released items, in the order of their keyed fingerprints.

    Attributes:
      items: (n,) large_binary canonical bytes.
      noisy_weight: (n,) float64, the noisy weight in the round that released the item; (n, names) of a program with
        several `released_names`.
    """

    items: pa.Array
    noisy_weight: np.ndarray

    def __len__(self) -> int:
        return len(self.items)


def run_in_process(
    program: Program,
    batches: Iterable[tuple[pa.Array, pa.Array]],
    key: RunKey,
    *,
    num_blocks: int = 1,
    num_shards: int = 1,
) -> Released:
    """Release the items of (user, item) pairs.

    Args:
      batches: pairs of equally long arrays of users and items (strings or canonical bytes, no nulls).

    Raises:
      ValueError: the key has served a run.
    """
    key.spend()
    keys = Keys(key)
    blocks = build_blocks(batches, keys, program.cap, num_blocks=num_blocks, num_shards=num_shards)
    return run_blocks(program, list(blocks), keys)


def build_blocks(
    batches: Iterable[tuple[pa.Array, pa.Array]],
    keys: Keys,
    cap: int,
    *,
    num_blocks: int,
    num_shards: int,
    kept: KeptItems | None = None,
) -> Iterator[Block]:
    """The blocks of (user, item) pairs, in the order of their numbers; blocks without pairs are left out.

    Args:
      kept: keeps the items; the blocks have their numbers, (items,) int64.
    """
    messages: dict[int, list] = {}
    for users, items in batches:
        for block, columns in partition_pairs(users, items, keys.pairs, num_blocks, cap, kept=kept):
            messages.setdefault(block, []).append(columns)
    for number in sorted(messages):
        built = build_block(number, messages.pop(number), keys.pairs, num_shards, cap)
        if built is not None:
            yield built


@dataclass
class Finished:
    """Everything after the last trip.

    Attributes:
      blocks, shards: in the order of their numbers.
      hub: the hub's state.
      trip: the last that was made.
      broadcast: what the hub last said, empty if it never met.
      kept: has the items, if the blocks were built with their numbers alone.
    """

    blocks: list[Block]
    shards: list[Shard]
    hub: Columns
    trip: int
    broadcast: Columns
    kept: KeptItems | None = None


def run_blocks(program: Program, blocks: list[Block], keys: Keys) -> Released:
    """Run all trips on built blocks; for programs whose shards give the result."""
    return _collect(program, run_trips(program, blocks, keys).shards)


def run_trips(
    program: Program, blocks: list[Block], keys: Keys, *, threads: int = 1, kept: KeptItems | None = None
) -> Finished:
    """Run all trips on built blocks.

    Args:
      kept: has the items, if the blocks were built with their numbers alone.
      threads: blocks, or shards, at work at once; one where they are so small that threads would wait for each other.
    """
    check_trips(program)
    if threads == 1 or sum(block.num_items for block in blocks) < LINKS_FOR_THREADS:
        return _run_trips(program, blocks, keys, map, kept)
    with ThreadPoolExecutor(threads) as pool:
        return _run_trips(program, blocks, keys, functools.partial(few_ahead, pool, 2 * threads), kept)


def _run_trips(
    program: Program,
    blocks: list[Block],
    keys: Keys,
    each: Callable[..., Iterable],
    kept: KeptItems | None,
) -> Finished:
    shards = link_shards(blocks, each)
    hub: Columns = {}
    broadcast: Columns = {}
    spent: tuple[float, ...] = ()
    replies: dict[int, dict[str, np.ndarray]] = {block.id: {} for block in blocks}
    for trip in range(program.trips):
        sent: dict[int, dict[int, dict[str, np.ndarray]]] = {shard.id: {} for shard in shards}
        weighed = each(lambda block, trip=trip: program.weigh(trip, block, replies[block.id], keys), blocks)
        for block, (sums, state) in zip(blocks, weighed, strict=True):
            if state is not None:
                block.state = state
            for number, links in shard_slices(block):
                sent[number][block.id] = {name: values[links] for name, values in sums.items()}
        if program.sum_names(trip):
            add_up = functools.partial(shard_trip, program, trip, keys=keys)
            shards = list(each(add_up, shards, [sent[shard.id] for shard in shards]))
        if program.meets(trip) is not None:
            parts = blocks if program.meets(trip) == "blocks" else shards
            for shard in shards:
                shard.items = _items_themselves(shard.items, kept)
            hub, broadcast, spent = _meet(program, trip, parts, hub, keys, spent)
            for block in blocks:
                block.broadcast = broadcast
            for shard in shards:
                shard.broadcast = broadcast
            if program.may_end and program.done(trip, broadcast):
                break
        if trip in program.reply_columns:
            shards = return_replies(program, trip, shards, blocks, replies, each)
    return Finished(list(blocks), shards, hub, trip, broadcast, kept)


def _meet(
    program: Program,
    trip: int,
    parts: Sequence[Block | Shard],
    state: Columns,
    keys: Keys,
    spent: tuple[float, ...],
) -> tuple[Columns, Columns, tuple[float, ...]]:
    """The hub's new state, its broadcast, and what is taken from its filter."""
    summaries = [program.summarise(trip, part, keys) for part in sorted(parts, key=lambda part: part.id)]
    return decide_at_hub(program, trip, state, summaries, keys, spent)


def output_batches(program: Program, finished: Finished) -> Iterator[pa.RecordBatch]:
    """The result of a program after its last trip, from whoever gives it.

    Blocks that give it are taken out of `finished` one by one, so that none is held longer than it is needed.
    """
    batches: Iterable[pa.RecordBatch | None]
    if program.output == "hub":
        batches = [program.hub_output(finished.hub)]
    elif program.output == "blocks":
        batches = (program.finish_block(finished.blocks.pop(0)) for _ in range(len(finished.blocks)))
    else:
        batches = [released_batch(program, shard, finished.kept) for shard in finished.shards]
    yield from (batch for batch in batches if batch is not None)


def released_batch(program: Program, shard: Shard, kept: KeptItems | None = None) -> pa.RecordBatch | None:
    """The released items of a shard as a record batch (item, `released_names`); None where there are none.

    Args:
      kept: has the items, if the blocks were built with their numbers alone.
    """
    mask, weight = program.released(shard)
    if not mask.any():
        return None
    items = _items_themselves(shard.loaded_items.filter(pa.array(mask)), kept)
    numbers = [(name, pa.float64()) for name in program.released_names]
    schema = pa.schema([("item", pa.large_binary()), *numbers], metadata={METADATA_KEY: shard.kinds})
    columns = np.ascontiguousarray(weight[mask].reshape(-1, len(numbers)).T)
    return pa.RecordBatch.from_arrays([items, *(pa.array(column) for column in columns)], schema=schema)


def _items_themselves(items: pa.Array, kept: KeptItems | None) -> pa.Array:
    """(n,) large_binary, also where they are the numbers of kept ones."""
    return items if kept is None or not pa.types.is_int64(items.type) else kept.take(items.to_numpy())


def link_shards(blocks: list[Block], each: Callable[..., Iterable] = map) -> list[Shard]:
    """The shards of all items that the blocks hold."""
    kinds = one_kind(block.kinds for block in blocks)
    parts: dict[int, list[tuple[int, pa.Array, np.ndarray]]] = {}
    for block in blocks:
        for shard, part in shard_slices(block):
            if block.items is None:
                raise ValueError(f"the items of block {block.id} are not loaded")
            items = block.items[part.start : part.stop]
            parts.setdefault(shard, []).append((block.id, items, block.item_fp[part]))

    def linked(shard: int) -> Shard:
        ids, items, fp = zip(*parts[shard], strict=True)
        return build_shard(shard, ids, items, fp, kinds)

    return list(each(linked, sorted(parts)))


def shard_trip(
    program: Program, trip: int, shard: Shard, messages: dict[int, dict[str, np.ndarray]], keys: Keys
) -> Shard:
    """Sum the messages of a trip and, where the program says so, add noise and compare with the threshold."""
    shard.sums = sum_messages(shard, program.sum_names(trip), messages)
    if replies_by_link(program, trip):
        shard.per_link = link_messages(shard, program.sum_names(trip), messages)
    if program.noise(trip) is not None:
        shard = program.threshold(trip, add_noise(program, trip, shard, keys))
    return shard


def return_replies(
    program: Program,
    trip: int,
    shards: list[Shard],
    blocks: list[Block],
    replies: dict[int, dict[str, np.ndarray]],
    each: Callable[..., Iterable] = map,
) -> list[Shard]:
    """The shards after they replied; what each block receives stands in `replies` under its number."""
    columns = program.reply_columns[trip]
    by_id = {block.id: block for block in blocks}
    for block in blocks:
        replies[block.id] = {n: np.full(block.num_items, c.default, c.dtype) for n, c in columns.items()}

    def reply(shard: Shard) -> Shard:
        shard, values = program.reply(trip, shard)
        for position, block_id in enumerate(shard.block_ids):
            bounds = by_id[int(block_id)].shard_offsets
            part = slice(int(bounds[shard.id]), int(bounds[shard.id + 1]))
            for name, column in columns.items():
                replies[int(block_id)][name][part] = reply_to(shard, position, values[name], column)
        return shard

    return list(each(reply, shards))


def _collect(program: Program, shards: list[Shard]) -> Released:
    items: list[pa.Array] = [pa.array([], pa.large_binary())]
    names = program.released_names
    weights: list[np.ndarray] = [np.zeros((0, len(names)) if len(names) > 1 else 0)]
    for shard in shards:
        mask, weight = program.released(shard)
        items.append(shard.loaded_items.filter(pa.array(mask)))
        weights.append(weight[mask])
    return Released(pa.concat_arrays(items), np.concatenate(weights))
