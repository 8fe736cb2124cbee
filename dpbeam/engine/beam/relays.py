"""The stages of relays (`dpbeam.kernels.relays`): sums on the way to the shards, replies on the way back.

A relay is to its blocks what a shard is, and to its shards what a block is; neither knows the difference. It is built
on the first trip, when items travel, and kept in the run's folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dpbeam.engine.beam.messages import receive, replies_prefix, send
from dpbeam.engine.beam.receipts import RELAYED, RELAYS
from dpbeam.engine.beam.run import TripDoFn, TripStage
from dpbeam.engine.beam.trip_messages import (
    by_receiver,
    first_items,
    gathered,
    messages_of_replies,
    messages_of_sums,
    replied,
    unpacked_sums,
)
from dpbeam.engine.program import Program
from dpbeam.kernels.columns import Columns
from dpbeam.kernels.relays import Relay, Relays
from dpbeam.kernels.shards import sum_messages


def relay_name(relay: int) -> str:
    """File of a relay."""
    return f"relay-{relay}"


class _RelayDoFn(TripDoFn):
    _relays: Relays  # from `setup` on

    def setup(self) -> None:
        super().setup()
        if self._stored.relays is None:
            raise ValueError("the program runs without relays")
        self._relays = self._stored.relays

    def _load(self, number: int) -> Relay:
        return Relay.from_columns(self._store.read(relay_name(number)))


class _SumOfBlocks(_RelayDoFn):
    """(relay, messages of all its blocks) -> (shard, one message with their sums)."""

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[tuple[int, bytes]]:
        number, encoded = element
        messages = gathered(f"relay {number}", self._trip, receive(self._store, encoded))
        relay = self._first(number, messages) if self._trip == 0 else self._load(number)
        names = self._program.sum_names(self._trip)
        sums = sum_messages(relay, names, unpacked_sums(names, messages))
        slices = relay.shard_slices()
        if self._trip == 0:
            self.receipt(RELAYS, number, len(messages))
            self.receipt(RELAYED, number, len(slices))
        items = by_receiver(relay, slices)
        parts = messages_of_sums(relay.id, self._trip, slices, sums, items, relay.kinds)
        yield from send(self._store, parts)

    def _first(self, number: int, messages: dict[int, Columns]) -> Relay:
        relay = Relay.build(number, self._relays, *first_items(messages, self._keys))
        if 0 in self._program.reply_columns or tells_blocks(self._program):
            self._store.write(relay_name(number), relay.to_columns())
        return relay


def tells_blocks(program: Program) -> bool:
    """Whether after the last trip shards tell blocks that it is over."""
    return program.output == "blocks" and program.meets(program.trips - 1) != "blocks"


class _ReplyToBlocks(_RelayDoFn):
    """(relay, replies of all its shards) -> (block, one reply)."""

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[tuple[int, bytes]]:
        number, encoded = element
        relay = self._load(number)
        columns = self._program.reply_columns[self._trip]
        replies = receive(self._store, encoded)
        values = replied(
            f"relay {number}", self._trip, replies, dict(relay.shard_slices()), columns, len(relay)
        )
        messages = messages_of_replies(relay, self._trip, values, columns)
        yield from send(self._store, messages, replies_prefix(self._trip))


class _PassTurn(_RelayDoFn):
    """(relay, turns) -> (block, its turn) for every block of the relay."""

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[tuple[int, bytes]]:
        number, turns = element
        turn = next(iter(turns))
        yield from ((int(block), turn) for block in self._load(number).block_ids)


class _AtRelays(TripStage):
    """What is sent to relays, to the DoFn of this transform, relay by relay: one shuffle.

    Memory per worker: one relay, about as much as one shard.
    """

    gathers, gives = "GroupByRelay", tuple[int, bytes]


class RelaySums(_AtRelays):
    """Sums of a relay's blocks: PCollection[(int relay, bytes)] -> PCollection[(int shard, bytes)]."""

    step, does = "SumOfBlocks", _SumOfBlocks


class RelayReplies(_AtRelays):
    """What shards reply, to each block its own: PCollection[(int relay, bytes)] -> PCollection[(int block, bytes)]."""

    step, does = "ReplyToBlocks", _ReplyToBlocks


class RelayTurns(_AtRelays):
    """Turns of relays as turns of their blocks: PCollection[(int relay, bytes)] -> PCollection[(int block, bytes)]."""

    step, does = "PassTurn", _PassTurn
