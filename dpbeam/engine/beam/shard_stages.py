"""The stages of shards: GroupByItem, AddNoise, Threshold, RerouteExcess, Release.

Each wires one kernel or one method of a `Program` to Beam and computes nothing itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pyarrow as pa

from dpbeam.engine.beam.messages import FILE_PREFIX, let_pairs_go, receive, replies_prefix, send
from dpbeam.engine.beam.receipts import RESULT, SHARDS
from dpbeam.engine.beam.run import TripDoFn, TripStage
from dpbeam.engine.beam.trip_files import keeps_blocks, last_broadcast, last_shard_trip
from dpbeam.engine.beam.trip_messages import first_items, gathered, messages_of_replies, unpacked_sums
from dpbeam.engine.in_process import released_batch
from dpbeam.engine.program import add_noise, replies_by_link
from dpbeam.kernels.columns import (
    Columns,
    rows_within,
    unpack_arrays,
)
from dpbeam.kernels.shards import (
    Shard,
    build_shard,
    is_packed_items,
    link_messages,
    sum_messages,
)

# Released items leave in batches of about this size: engines hold many at once.
RELEASED_BYTES = 1_000_000


class _SumByItem(TripDoFn):
    """(shard, messages of all its blocks) -> (shard, Shard with the sums of the trip)."""

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[tuple[int, Shard]]:
        number, encoded = element
        if self._trip == 0 and keeps_blocks(self._program):
            let_pairs_go(self._store)  # every block has sent, and so is stored
        yield number, self._summed(number, encoded)  # messages are gone before what comes next takes memory

    def _summed(self, number: int, encoded: Iterable[bytes]) -> Shard:
        received = receive(self._store, encoded, packed="items".__eq__ if self._trip == 0 else None)
        messages = gathered(f"shard {number}", self._trip, received)
        if self._trip == 0:
            self.receipt(SHARDS, number, len(messages))
        shard = self._first(number, messages) if self._trip == 0 else self._load(number)
        names = self._program.sum_names(self._trip)
        sums = unpacked_sums(names, messages)
        shard = replace(shard, sums=sum_messages(shard, names, sums))
        if replies_by_link(self._program, self._trip):
            shard.per_link = link_messages(shard, names, sums)
        return shard

    def _first(self, number: int, messages: dict[int, Columns]) -> Shard:
        return build_shard(number, *first_items(messages, self._keys))

    def _load(self, number: int) -> Shard:
        shard = Shard.from_columns(self._store.read(f"shard-{number}"))
        state = self._store.read(f"shard-{number}-state-{last_shard_trip(self._program, self._trip)}")
        shard.state = unpack_arrays(state, len(shard))
        shard.broadcast = last_broadcast(self._program, self._store, self._trip)
        if not any(self._program.sum_names(trip) for trip in range(self._trip + 1, self._program.trips)):
            shard.items = shard.items_of(self._store.read(f"shard-{number}-items", is_packed_items))
        return shard


class GroupByItem(TripStage):
    """Exact integer sums per item: PCollection[(int, bytes)] -> PCollection[(int, Shard)], one shuffle.

    Memory per worker: one shard, 4 bytes per link plus its sums and items; rare ones packed, once for each link.
    """

    gathers = "GroupByShard"
    step, does, gives = "Sum", _SumByItem, tuple[int, Shard]


class _Noise(TripDoFn):
    def process(self, element: tuple[int, Shard]) -> Iterator[tuple[int, Shard]]:
        number, shard = element
        yield number, add_noise(self._program, self._trip, shard, self._keys)


class AddNoise(TripStage):
    """Adds the round's noise to every item's weight. A retry or a second consumer draws the same noise."""

    step, does, gives = "Noise", _Noise, tuple[int, Shard]


class _Threshold(TripDoFn):
    def process(self, element: tuple[int, Shard]) -> Iterator[tuple[int, Shard]]:
        number, shard = element
        yield number, self._program.threshold(self._trip, shard)


class Threshold(TripStage):
    """Marks the items whose noisy weight reaches the round's threshold."""

    step, does, gives = "Compare", _Threshold, tuple[int, Shard]


class _Reply(TripDoFn):
    """(shard, Shard) -> (block, reply); stores the shard for the next trip."""

    def process(self, element: tuple[int, Shard]) -> Iterator[tuple[int, bytes]]:
        number, shard = element
        shard, values = self._program.reply(self._trip, shard)
        if self._trip == 0:
            self._store.write(f"shard-{number}", shard.links_columns())
            self._store.write(f"shard-{number}-items", shard.items_columns())
        self._store.write(f"shard-{number}-state-{self._trip}", shard.state_columns())
        columns = self._program.reply_columns[self._trip]
        messages = messages_of_replies(shard, self._trip, values, columns)
        to_blocks = self._stored.relays is None
        yield from send(self._store, messages, replies_prefix(self._trip) if to_blocks else FILE_PREFIX)


class RerouteExcess(TripStage):
    """Sends values back to the blocks that hold the items: excess ratios of MAD, biases, released items, scores.

    PCollection[(int, Shard)] -> PCollection[(int block, bytes reply)].
    """

    step, does, gives = "Reply", _Reply, tuple[int, bytes]


class _Release(TripDoFn):
    """(shard, Shard) -> record batches of its released items."""

    def process(self, element: tuple[int, Shard]) -> Iterator[pa.RecordBatch]:
        batch = released_batch(self._program, element[1])
        self.receipt(RESULT, element[0], 0 if batch is None else batch.num_rows)
        if batch is not None:
            yield from sliced(batch)


def sliced(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch in pieces of about RELEASED_BYTES."""
    step = rows_within(RELEASED_BYTES, batch.column(0))
    yield from (batch.slice(start, step) for start in range(0, batch.num_rows, step))


class Release(TripStage):
    """Released items after the last trip: PCollection[(int, Shard)] -> PCollection[pa.RecordBatch]."""

    step, does, gives = "Release", _Release, pa.RecordBatch
