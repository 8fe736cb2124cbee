"""The stages of a job graph: SubsamplePerUser, WeightPerUser, GroupByItem, AddNoise, Threshold, RerouteExcess.

Each wires one kernel or one method of a `Program` to Beam and computes nothing itself. Two shuffles a trip:
block -> shard messages, and shard -> block replies. Message elements are (int, bytes), the bytes
columns (`dpbeam.kernels.columns`) or a reference to them (`dpbeam.engine.beam.messages`).

Every (block, shard) pair that shares an item sends a message on every trip, also one without weight, and the
receiver checks that all came: a missing message would mean missing noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from dpbeam.engine.beam import coders as _coders  # noqa: F401  (registers the coders)
from dpbeam.engine.beam.messages import receive, send
from dpbeam.engine.beam.store import RunStore
from dpbeam.engine.program import Keys, Program, add_noise, replies_by_link, reply_to
from dpbeam.kernels.columns import Columns, pack, rows_within, unpack
from dpbeam.kernels.pairs import (
    Block,
    build_block,
    build_complete_block,
    common_kinds,
    kinds_column,
    partition_again,
    partition_pairs,
)
from dpbeam.kernels.shards import Shard, build_shard, link_messages, shard_slices, sum_messages

KINDS_KEY = b"dpbeam"  # schema metadata that says what canonical bytes stand for

# Rows partitioned at once: large enough to amortise a vectorised step over all blocks, small enough that a
# worker's buffers stay near 200 MB. Every batch names a user once: larger ones carry fewer fingerprints.
PARTITION_ROWS = 2_000_000
PARTITION_BYTES = 128_000_000  # long items
# Blocks that a batch is split into directly. With more, its messages would be too small to go through files, and from
# 4,000 on their number would cost more CPU than a second shuffle: groups of blocks first, then blocks.
FANOUT = 300
# Tasks of the second split, at least: groups are fewer than the slots of a cluster that has so many blocks.
_SPLIT_TASKS = 2_000
# Released items leave in batches of about this size: engines hold many at once.
RELEASED_BYTES = 1_000_000


class _RunDoFn(beam.DoFn):
    """A DoFn with the run's keys, read from the private folder when a worker starts."""

    def __init__(self, store: RunStore):
        self._store = store
        self._keys: Keys | None = None

    def setup(self) -> None:
        self._keys = Keys(self._store.run_key())


class _PartitionPairs(_RunDoFn):
    """Record batches (user, item) -> (block, message); small batches are partitioned together.

    With groups of blocks: (part of a group, message).
    """

    def __init__(self, store: RunStore, num_blocks: int, cap: int, group: int):
        super().__init__(store)
        self._num_blocks = num_blocks
        self._cap = cap
        self._group = group
        self._ways = 1 if group == 1 else math.ceil(_SPLIT_TASKS * group / num_blocks)
        self._held: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def start_bundle(self) -> None:
        self._held, self._rows, self._bytes = [], 0, 0

    def process(self, batch: pa.RecordBatch) -> Iterator[tuple[int, bytes]]:
        if not batch.num_rows:
            return
        if self._held and not batch.schema.equals(self._held[0].schema, check_metadata=True):
            yield from self._flush()
        self._held.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= PARTITION_ROWS or self._bytes >= PARTITION_BYTES:
            yield from self._flush()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        window = GlobalWindow()
        for element in self._flush():
            yield WindowedValue(element, window.max_timestamp(), (window,))

    def _flush(self) -> Iterator[tuple[int, bytes]]:
        if not self._rows:
            return
        held = self._held
        self._held, self._rows, self._bytes = [], 0, 0
        users, items = _joined(held, "user"), _joined(held, "item")
        kinds = (held[0].schema.metadata or {}).get(KINDS_KEY, b"")
        del held
        parts = partition_pairs(
            users, items, self._keys.pairs, self._num_blocks, self._cap, kinds, group=self._group
        )
        yield from send(self._store, ((self._part(number, columns), columns) for number, columns in parts))

    def _part(self, number: int, columns: Columns) -> int:
        """A part of a group, by the message itself: a retry chooses the same."""
        return number * self._ways + int(columns["user_fp"][0, 1] % np.uint64(self._ways))


class _PartitionAgain(_RunDoFn):
    """(part of a group of blocks, messages) -> (block, message)."""

    def __init__(self, store: RunStore, num_blocks: int, cap: int):
        super().__init__(store)
        self._num_blocks = num_blocks
        self._cap = cap

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[tuple[int, bytes]]:
        held: list[Columns] = []
        rows = size = 0
        for message in receive(self._store, element[1]):
            held.append(message)
            rows += len(message["item"])
            size += message["dictionary"].nbytes
            if rows >= PARTITION_ROWS or size >= PARTITION_BYTES:
                yield from self._flush(held)
                held, rows, size = [], 0, 0
        yield from self._flush(held)

    def _flush(self, messages: list[Columns]) -> Iterator[tuple[int, bytes]]:
        parts = partition_again(messages, self._keys.pairs, self._num_blocks, self._cap)
        yield from send(self._store, parts)


def _joined(batches: list[pa.RecordBatch], name: str) -> pa.Array:
    """One column of batches with one schema."""
    columns = [batch.column(name) for batch in batches]
    if len(columns) == 1:
        return columns[0]
    if pa.types.is_dictionary(columns[0].type):
        return pa.chunked_array(columns).unify_dictionaries().combine_chunks()
    return pa.concat_arrays(columns)


class _BuildBlocks(_RunDoFn):
    """(block, messages) -> (block, Block): distinct pairs and each user's sample."""

    def __init__(self, store: RunStore, num_shards: int, cap: int):
        super().__init__(store)
        self._num_shards = num_shards
        self._cap = cap

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[tuple[int, Block]]:
        number, messages = element
        block = build_block(
            number, receive(self._store, messages), self._keys.pairs, self._num_shards, self._cap
        )
        if block is not None:
            yield number, block


class _NameUsers(beam.DoFn):
    """(block, record batch of whole users) -> record batch (user, item), users named by block and ordinal."""

    def process(self, element: tuple[int, pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        number, batch = element
        names = np.empty((batch.num_rows, 2), "<u8")
        names[:, 0] = np.uint64(number)
        names[:, 1] = batch.column("user").to_numpy()
        width = names.shape[1] * names.itemsize
        offsets = np.arange(0, names.nbytes + 1, width, dtype=np.int64)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(names)]
        users = pa.Array.from_buffers(pa.large_binary(), batch.num_rows, buffers)
        items = batch.column("item")
        schema = pa.schema([("user", users.type), ("item", items.type)], metadata=batch.schema.metadata)
        yield pa.RecordBatch.from_arrays([users, items], schema=schema)


class _BuildCompleteBlocks(_RunDoFn):
    """(block, record batch of whole users) -> (block, Block)."""

    def __init__(self, store: RunStore, num_shards: int, cap: int):
        super().__init__(store)
        self._num_shards = num_shards
        self._cap = cap

    def process(self, element: tuple[int, pa.RecordBatch]) -> Iterator[tuple[int, Block]]:
        number, batch = element
        kinds = (batch.schema.metadata or {}).get(KINDS_KEY, b"")
        users = batch.column("user").to_numpy()
        items = batch.column("item")
        block = build_complete_block(
            number, users, items, self._keys.pairs, self._num_shards, self._cap, kinds
        )
        if block is not None:
            yield number, block


class SubsamplePerUser(beam.PTransform):
    """Bounds every user to a uniform sample of its distinct items and groups users into blocks.

    PCollection[pa.RecordBatch(user, item)] -> PCollection[(int, Block)], one shuffle by user, two where there are more
    than FANOUT blocks. With `complete=True` the input is PCollection[(block id, pa.RecordBatch)] whose users are
    whole already, and nothing is shuffled; unless blocks must be `ranges` of the order of user fingerprints
    (`replies_by_link`), which such blocks are not: one user more would move the others between them.

    Memory per worker: one block, about 150 bytes per pair of the block.
    """

    def __init__(
        self,
        store: RunStore,
        *,
        num_blocks: int,
        num_shards: int,
        cap: int,
        complete: bool = False,
        ranges: bool = False,
    ):
        super().__init__()
        self._store = store
        self._num_blocks, self._num_shards, self._cap = num_blocks, num_shards, cap
        self._complete, self._ranges = complete, ranges

    def expand(self, pcoll):
        if self._complete and self._ranges:
            pcoll = pcoll | "NameUsers" >> beam.ParDo(_NameUsers()).with_output_types(pa.RecordBatch)
        elif self._complete:
            build = _BuildCompleteBlocks(self._store, self._num_shards, self._cap)
            return pcoll | "BuildBlocks" >> beam.ParDo(build).with_output_types(tuple[int, Block])
        group = 1 if self._num_blocks <= FANOUT else math.ceil(math.sqrt(self._num_blocks))
        partition = _PartitionPairs(self._store, self._num_blocks, self._cap, group)
        parts = pcoll | "PartitionByUser" >> beam.ParDo(partition).with_output_types(tuple[int, bytes])
        if group > 1:
            again = _PartitionAgain(self._store, self._num_blocks, self._cap)
            parts = (
                parts
                | "GroupByBlocks" >> beam.GroupByKey()
                | "PartitionAgain" >> beam.ParDo(again).with_output_types(tuple[int, bytes])
            )
        build = _BuildBlocks(self._store, self._num_shards, self._cap)
        return (
            parts
            | "GroupByUser" >> beam.GroupByKey()
            | "SamplePerUser" >> beam.ParDo(build).with_output_types(tuple[int, Block])
        )

    def display_data(self):
        return {"num_blocks": self._num_blocks, "num_shards": self._num_shards, "cap": self._cap}


class _FirstWeights(_RunDoFn):
    """(block, Block) -> (shard, first message with the items); stores the block for later trips."""

    def __init__(self, store: RunStore, program: Program):
        super().__init__(store)
        self._program = program

    def process(self, element: tuple[int, Block]) -> Iterator[tuple[int, bytes]]:
        number, block = element
        sums, state = self._program.weigh(0, block, {}, self._keys)
        if self._program.trips > 1:
            self._store.write(f"block-{number}", block.to_columns(with_items=False))
            if state is not None:
                self._store.write(f"block-{number}-state-0", state)
        yield from send(self._store, self._messages(block, sums))

    @staticmethod
    def _messages(block: Block, sums: dict[str, np.ndarray]) -> Iterator[tuple[int, Columns]]:
        for shard, part in shard_slices(block):
            message = _message(block.id, 0, {name: values[part] for name, values in sums.items()})
            message["items"] = block.items[part.start : part.stop]
            message["kinds"] = kinds_column(block.kinds)
            yield shard, message


class _LaterWeights(_RunDoFn):
    """(block, replies of all its shards) -> (shard, message)."""

    def __init__(self, store: RunStore, program: Program, trip: int):
        super().__init__(store)
        self._program = program
        self._trip = trip

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[tuple[int, bytes]]:
        number, messages = element
        block = Block.from_columns(self._store.read(f"block-{number}"))
        slices = dict(shard_slices(block))
        columns = self._program.reply_columns[self._trip - 1]
        reply = {n: np.full(block.num_items, c.default, c.dtype) for n, c in columns.items()}
        waiting = set(slices)
        for message in receive(self._store, messages):
            shard = int(message["from"][0])
            _check_trip(message, self._trip - 1)
            waiting.remove(shard)
            for name, column in columns.items():
                reply[name][slices[shard]] = unpack(name, message, column.dtype, column.default)
        if waiting:
            raise RuntimeError(f"block {number} lacks the replies of {len(waiting)} shards")
        written = self._program.block_state_trip(self._trip)
        if written is not None:
            block.state = self._store.read(f"block-{number}-state-{written}")
        sums, state = self._program.weigh(self._trip, block, reply, self._keys)
        if state is not None:
            self._store.write(f"block-{number}-state-{self._trip}", state)
        yield from send(
            self._store,
            (
                (shard, _message(number, self._trip, {n: v[part] for n, v in sums.items()}))
                for shard, part in slices.items()
            ),
        )


class WeightPerUser(beam.PTransform):
    """Every user adds weight to its items; each block sends its partial sums to the shards of its items.

    First trip: PCollection[(int, Block)]; later: PCollection[(int block, bytes reply)], one shuffle.
    Returns PCollection[(int shard, bytes message)].
    """

    def __init__(self, store: RunStore, program: Program, trip: int):
        super().__init__()
        self._store, self._program, self._trip = store, program, trip

    def expand(self, pcoll):
        if self._trip == 0:
            weigh = _FirstWeights(self._store, self._program)
            return pcoll | "Weigh" >> beam.ParDo(weigh).with_output_types(tuple[int, bytes])
        weigh = _LaterWeights(self._store, self._program, self._trip)
        return (
            pcoll
            | "GroupByBlock" >> beam.GroupByKey()
            | "Weigh" >> beam.ParDo(weigh).with_output_types(tuple[int, bytes])
        )


class _SumByItem(_RunDoFn):
    """(shard, messages of all its blocks) -> (shard, Shard with the sums of the trip)."""

    def __init__(self, store: RunStore, program: Program, trip: int):
        super().__init__(store)
        self._program = program
        self._trip = trip

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[tuple[int, Shard]]:
        number, encoded = element
        messages: dict[int, Columns] = {}
        for message in receive(self._store, encoded):
            _check_trip(message, self._trip)
            block = int(message["from"][0])
            if block in messages:
                raise RuntimeError(f"shard {number} received a message twice")
            messages[block] = message
        shard = self._first(number, messages) if self._trip == 0 else self._load(number)
        names = self._program.sum_names(self._trip)
        sums = {b: {n: unpack(n, m, np.int64) for n in names} for b, m in messages.items()}
        shard = replace(shard, sums=sum_messages(shard, names, sums))
        if replies_by_link(self._program, self._trip):
            shard.per_link = link_messages(shard, names, sums)
        yield number, shard

    def _first(self, number: int, messages: dict[int, Columns]) -> Shard:
        kinds = common_kinds(messages.values())
        ids = list(messages)
        return build_shard(number, ids, [messages[b]["items"] for b in ids], self._keys.pairs.item, kinds)

    def _load(self, number: int) -> Shard:
        shard = Shard.from_columns(self._store.read(f"shard-{number}"))
        shard.state = dict(self._store.read(f"shard-{number}-state-{self._trip - 1}"))
        if self._trip == self._program.trips - 1:
            shard.items = self._store.read(f"shard-{number}-items")["items"]
        return shard


class GroupByItem(beam.PTransform):
    """Exact integer sums per item: PCollection[(int, bytes)] -> PCollection[(int, Shard)], one shuffle.

    Memory per worker: one shard, 4 bytes per link plus its items and sums.
    """

    def __init__(self, store: RunStore, program: Program, trip: int):
        super().__init__()
        self._store, self._program, self._trip = store, program, trip

    def expand(self, pcoll):
        fn = _SumByItem(self._store, self._program, self._trip)
        return (
            pcoll
            | "GroupByShard" >> beam.GroupByKey()
            | "Sum" >> beam.ParDo(fn).with_output_types(tuple[int, Shard])
        )


class _Noise(_RunDoFn):
    def __init__(self, store: RunStore, program: Program, trip: int):
        super().__init__(store)
        self._program, self._trip = program, trip

    def process(self, element: tuple[int, Shard]) -> Iterator[tuple[int, Shard]]:
        number, shard = element
        yield number, add_noise(self._program, self._trip, shard, self._keys)


class AddNoise(beam.PTransform):
    """Adds the round's noise to every item's weight. A retry or a second consumer draws the same noise."""

    def __init__(self, store: RunStore, program: Program, trip: int):
        super().__init__()
        self._fn = _Noise(store, program, trip)

    def expand(self, pcoll):
        return pcoll | "Noise" >> beam.ParDo(self._fn).with_output_types(tuple[int, Shard])


class _Threshold(beam.DoFn):
    def __init__(self, program: Program, trip: int):
        self._program, self._trip = program, trip

    def process(self, element: tuple[int, Shard]) -> Iterator[tuple[int, Shard]]:
        number, shard = element
        yield number, self._program.threshold(self._trip, shard)


class Threshold(beam.PTransform):
    """Marks the items whose noisy weight reaches the round's threshold."""

    def __init__(self, program: Program, trip: int):
        super().__init__()
        self._fn = _Threshold(program, trip)

    def expand(self, pcoll):
        return pcoll | "Compare" >> beam.ParDo(self._fn).with_output_types(tuple[int, Shard])


class _Reply(beam.DoFn):
    """(shard, Shard) -> (block, reply); stores the shard for the next trip."""

    def __init__(self, store: RunStore, program: Program, trip: int):
        self._store, self._program, self._trip = store, program, trip

    def process(self, element: tuple[int, Shard]) -> Iterator[tuple[int, bytes]]:
        number, shard = element
        shard, values = self._program.reply(self._trip, shard)
        if self._trip == 0:
            self._store.write(f"shard-{number}", shard.links_columns())
            self._store.write(f"shard-{number}-items", {"items": shard.items})
        self._store.write(f"shard-{number}-state-{self._trip}", shard.state_columns())
        yield from send(self._store, self._messages(shard, values))

    def _messages(self, shard: Shard, values: dict[str, np.ndarray]) -> Iterator[tuple[int, Columns]]:
        columns = self._program.reply_columns[self._trip]
        for position, block in enumerate(shard.block_ids):
            message: Columns = {
                "from": np.array([shard.id], np.int64),
                "trip": np.array([self._trip], np.int64),
            }
            for name, column in columns.items():
                part = reply_to(shard, position, values[name], column)
                message.update(pack(name, part, column.default))
            yield int(block), message


class RerouteExcess(beam.PTransform):
    """Sends values back to the blocks that hold the items: excess ratios of MAD, biases, found items, scores.

    PCollection[(int, Shard)] -> PCollection[(int block, bytes reply)].
    """

    def __init__(self, store: RunStore, program: Program, trip: int):
        super().__init__()
        self._fn = _Reply(store, program, trip)

    def expand(self, pcoll):
        return pcoll | "Reply" >> beam.ParDo(self._fn).with_output_types(tuple[int, bytes])


class _Release(beam.DoFn):
    """(shard, Shard) -> record batches of its released items."""

    def __init__(self, program: Program):
        self._program = program

    def process(self, element: tuple[int, Shard]) -> Iterator[pa.RecordBatch]:
        _, shard = element
        mask, weight = self._program.released(shard)
        if mask.any():
            schema = pa.schema(
                [("item", pa.large_binary()), ("noisy_weight", pa.float64())],
                metadata={KINDS_KEY: shard.kinds},
            )
            items = shard.items.filter(pa.array(mask))
            batch = pa.RecordBatch.from_arrays([items, pa.array(weight[mask])], schema=schema)
            step = rows_within(RELEASED_BYTES, items)
            yield from (batch.slice(start, step) for start in range(0, len(items), step))


class RunTrips(beam.PTransform):
    """All trips of a program: PCollection[(int, Block)] -> PCollection[(int, Shard)], after the last threshold."""

    def __init__(self, store: RunStore, program: Program):
        super().__init__()
        self._store, self._program = store, program

    def expand(self, blocks):
        store, program = self._store, self._program
        flowing = blocks
        for trip in range(program.trips):
            number = trip + 1
            flowing = (
                flowing
                | f"Trip{number}WeightPerUser" >> WeightPerUser(store, program, trip)
                | f"Trip{number}GroupByItem" >> GroupByItem(store, program, trip)
            )
            if program.noise(trip) is not None:
                flowing = (
                    flowing
                    | f"Trip{number}AddNoise" >> AddNoise(store, program, trip)
                    | f"Trip{number}Threshold" >> Threshold(program, trip)
                )
            if trip in program.reply_columns:
                flowing = flowing | f"Trip{number}RerouteExcess" >> RerouteExcess(store, program, trip)
        return flowing


class RunProgram(beam.PTransform):
    """All trips of a program: PCollection[(int, Block)] -> PCollection[pa.RecordBatch(item, noisy_weight)]."""

    def __init__(self, store: RunStore, program: Program):
        super().__init__()
        self._store, self._program = store, program

    def expand(self, blocks):
        shards = blocks | "Trips" >> RunTrips(self._store, self._program)
        return shards | "Release" >> beam.ParDo(_Release(self._program)).with_output_types(pa.RecordBatch)


def _message(block: int, trip: int, sums: dict[str, np.ndarray]) -> Columns:
    message: Columns = {"from": np.array([block], np.int64), "trip": np.array([trip], np.int64)}
    for name, values in sums.items():
        message.update(pack(name, values))
    return message


def _check_trip(message: Columns, trip: int) -> None:
    if int(message["trip"][0]) != trip:
        raise RuntimeError(f"a message of trip {int(message['trip'][0])} arrived on trip {trip}")
