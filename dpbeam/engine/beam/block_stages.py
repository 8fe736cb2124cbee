"""The stage of blocks: WeightPerUser.

It wires one method of a `Program` to Beam and computes nothing itself. A trip has two shuffles: messages of blocks to
shards, and replies of shards to blocks. Elements are (int, bytes), the bytes columns (`dpbeam.kernels.columns`) or a
reference to them (`dpbeam.engine.beam.messages`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import PCollection

from dpbeam.engine.beam.messages import receive, send
from dpbeam.engine.beam.receipts import FIRST
from dpbeam.engine.beam.run import StoredProgram, TripDoFn
from dpbeam.engine.beam.run_folder import in_run
from dpbeam.engine.beam.trip_files import (
    IN_INBOX,
    ended_before,
    keep_block,
    keeps_blocks,
    kept_items,
    load_block,
    read_inbox,
)
from dpbeam.engine.beam.trip_messages import (
    ItemsByReceiver,
    addressed,
    by_receiver,
    messages_of_sums,
    receivers,
    replied,
)
from dpbeam.engine.program import Keys
from dpbeam.kernels.pairs import Block


class _BlockDoFn(TripDoFn):
    """What first and later weights share."""

    _reply: dict[str, np.ndarray]  # of the element at work

    def _send(self, block: Block, items: ItemsByReceiver | None = None) -> Iterator[tuple[int, bytes]]:
        """Weigh, keep the state, and send to shards or hub; with the items, the first time."""
        trip, program = self._trip, self._program
        sums, state = program.weigh(trip, block, self._reply, self._keys)
        if state is not None:
            later = program.output == "blocks" or program.block_state_trip(program.trips) == trip
            if trip < program.trips - 1 or later:  # somebody will read it
                self._store.write(f"block-{block.id}-state-{trip}", state)
            block = replace(block, state=state)  # another consumer of this one binds it as it was built
        if program.meets(trip) == "blocks":
            summary = program.summarise(trip, block, self._keys)
            yield from send(self._store, [(0, addressed(block.id, trip) | summary)])
        else:
            slices = receivers(self._stored, block)
            messages = messages_of_sums(block.id, self._trip, slices, sums, items, block.kinds)
            yield from send(self._store, messages)


def bind_block(keys: Keys, block: Block) -> None:
    """Commit to who is in a block and what they hold, before anything of it is stored or sent.

    An engine may build a block again after some shards have drawn. From other input it would give the shards that are
    left, or later trips, other weights of the same users.

    Raises:
      InputError: the block was built from other input before.
    """
    keys.bind(f"block-{block.id}", [block.to_columns(with_items=False)])


class _FirstWeights(_BlockDoFn):
    """(block, Block) -> (shard, first message with the items); stores the block for later trips, unless it is kept."""

    def __init__(self, stored: StoredProgram, trip: int, kept: bool):
        super().__init__(stored, trip)
        self._kept = kept

    def process(self, element: tuple[int, Block]) -> Iterator[tuple[int, bytes]]:
        block = element[1]
        slices = receivers(self._stored, block)
        if self._kept:
            items = kept_items(self._store, block, slices)
        else:
            bind_block(self._keys, block)
            items = (
                keep_block(self._store, self._program, block, slices)
                if keeps_blocks(self._program)
                else by_receiver(block, slices)
            )
        self.receipt(FIRST, block.id, 1 if self._program.meets(self._trip) == "blocks" else len(slices))
        self._reply = {}
        yield from self._send(block, items)


class _LaterWeights(_BlockDoFn):
    """(block, replies of all its shards, or its turn) -> (shard, message) or (0, summary)."""

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[tuple[int, bytes]]:
        number, elements = element
        if ended_before(self._program, self._store, self._trip) is not None:
            yield from send(self._store, [(0, addressed(number, self._trip))])
            return
        block = load_block(self._store, self._program, number, self._trip, self._keys)
        self._reply = self._replies(block, elements)
        yield from self._send(block)

    def _replies(self, block: Block, elements: Iterable[bytes]) -> dict[str, np.ndarray]:
        columns = self._program.reply_columns.get(self._trip - 1)
        if columns is None:
            return {}
        messages = receive(self._store, self._waiting(block.id, elements))
        slices = dict(receivers(self._stored, block))
        return replied(f"block {block.id}", self._trip - 1, messages, slices, columns, block.num_items)

    def _waiting(self, number: int, elements: Iterable[bytes]) -> Iterator[bytes]:
        """The elements, or those that wait in the block's inbox."""
        for element in elements:
            if element == IN_INBOX:  # it comes alone
                yield from read_inbox(self._store, number, self._trip)
            else:
                yield element


class WeightPerUser(beam.PTransform):
    """Every user adds weight to its items; each block sends its partial sums to the shards of its items.

    First trip: PCollection[(int, Block)]; later: PCollection[(int block, bytes reply)], one shuffle.
    Returns PCollection[(int shard, bytes message)]; where blocks meet at the hub, PCollection[(0, bytes summary)].

    Args:
      kept: the blocks of the first trip are stored already.
    """

    def __init__(self, stored: StoredProgram, trip: int, *, kept: bool = False):
        super().__init__()
        self._stored, self._trip, self._kept = stored, trip, kept

    def expand(self, pcoll: PCollection) -> PCollection:
        weigh: _BlockDoFn
        if self._trip == 0:
            weigh = _FirstWeights(self._stored, self._trip, self._kept)
            return pcoll | "Weigh" >> in_run(weigh).with_output_types(tuple[int, bytes])
        weigh = _LaterWeights(self._stored, self._trip)
        return (
            pcoll
            | "GroupByBlock" >> beam.GroupByKey()
            | "Weigh" >> in_run(weigh).with_output_types(tuple[int, bytes])
        )
