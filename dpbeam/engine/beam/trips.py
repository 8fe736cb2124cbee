"""The stages of a trip between blocks and shards: WeightPerUser, GroupByItem, AddNoise, Threshold, RerouteExcess.

Each wires one kernel or one method of a `Program` to Beam and computes nothing itself. Two shuffles a trip: block ->
shard messages, and shard -> block replies. Message elements are (int, bytes), the bytes columns
(`dpbeam.kernels.columns`) or a reference to them (`dpbeam.engine.beam.messages`).

Every (block, shard) pair that shares an item sends a message on every trip, also one without weight, and the
receiver checks that all came: a missing message would mean missing noise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import apache_beam as beam
import numpy as np
import pyarrow as pa

from dpbeam.engine.beam.messages import FILE_PREFIX, let_pairs_go, receive, replies_prefix, send
from dpbeam.engine.beam.receipts import FIRST, RESULT, SHARDS, taken_for_lost
from dpbeam.engine.beam.run import StoredProgram, TripDoFn
from dpbeam.engine.beam.store import RunStore
from dpbeam.engine.in_process import released_batch
from dpbeam.engine.program import Keys, Program, ReplyColumn, add_noise, replies_by_link, reply_to
from dpbeam.errors import RunnerError
from dpbeam.kernels.columns import (
    Columns,
    Encodable,
    Packed,
    pack,
    rows_within,
    unpack,
    unpack_arrays,
)
from dpbeam.kernels.pairs import Block, common_kinds, kinds_column
from dpbeam.kernels.relays import Relay, relay_slices
from dpbeam.kernels.shards import (
    PACKED_ITEMS,
    Linked,
    Shard,
    build_shard,
    is_packed_items,
    link_messages,
    shard_slices,
    sum_messages,
)
from dpbeam.randomness import fingerprints

# Released items leave in batches of about this size: engines hold many at once.
RELEASED_BYTES = 1_000_000
#: Stands for messages that lie in a block's inbox file, at the beginning of a job that goes on with a run.
IN_INBOX = b"\x00inbox"


# A sender's items by receiver, packed or not.
ItemsByReceiver = Mapping[int, pa.Array | Packed]


def block_name(block: int) -> str:
    """File of a block as it was built."""
    return f"block-{block}"


def items_name(block: int) -> str:
    """File of a block's items or of their fingerprints."""
    return f"block-{block}-items"


def inbox_name(block: int, trip: int) -> str:
    """File of what a block is to receive on `trip`."""
    return f"block-{block}-inbox-{trip}"


def broadcast_name(trip: int) -> str:
    """File of what the hub said after `trip`."""
    return f"broadcast-{trip}"


_ENDED = "ended"


def keep_ending(store: RunStore, trip: int) -> None:
    """Remember that the run has ended with this trip."""
    store.write(_ENDED, {"trip": np.array([trip], np.int64)})


def ended_before(program: Program, store: RunStore, trip: int) -> int | None:
    """The trip below `trip` with which the hub has ended the run; None if it has not."""
    if not program.may_end or not trip or not store.exists(_ENDED):
        return None
    ended = int(store.read(_ENDED)["trip"][0])
    return ended if ended < trip else None  # an earlier trip may be run again, by a retry


def last_broadcast(program: Program, store: RunStore, before: int) -> Columns:
    """What the hub last said on a trip below `before`; empty if it did not meet."""
    ended = ended_before(program, store, before)
    for trip in range(before - 1 if ended is None else ended, -1, -1):
        if program.meets(trip) is not None:
            with taken_for_lost("a decision of the hub"):
                return store.read(broadcast_name(trip))
    return {}


def last_shard_trip(program: Program, before: int) -> int:
    """The last trip below `before` that reached the shards: they kept their state when they replied."""
    return max(trip for trip in range(before) if program.meets(trip) != "blocks")


class _BlockDoFn(TripDoFn):
    """What first and later weights share."""

    _reply: dict[str, np.ndarray]  # of the element at work

    def _send(self, block: Block, items: ItemsByReceiver | None = None) -> Iterator[tuple[int, bytes]]:
        """Weigh, keep the state, and send to shards or hub; with the items, the first time."""
        trip, program = self._trip, self._program
        sums, state = program.weigh(trip, block, self._reply, self._keys)
        if state is not None:
            if trip < program.trips - 1 or program.output == "blocks":  # somebody will read it
                self._store.write(f"block-{block.id}-state-{trip}", state)
            block = replace(block, state=state)  # another consumer of this one binds it as it was built
        if program.meets(trip) == "blocks":
            summary = program.summarise(trip, block, self._keys)
            yield from send(self._store, [(0, addressed(block.id, trip) | summary)])
        else:
            slices = receivers(self._stored, block)
            messages = messages_of_sums(block.id, self._trip, slices, sums, items, block.kinds)
            yield from send(self._store, messages)


def receivers(stored: StoredProgram, block: Block) -> list[tuple[int, slice]]:
    """(receiver, slice of the block's items): its shards, or the relays before them."""
    return shard_slices(block) if stored.relays is None else relay_slices(block, stored.relays)


def by_receiver(sender: Block | Relay, slices: Iterable[tuple[int, slice]]) -> dict[int, pa.Array] | None:
    """The items that go to each receiver; None where the sender has them not."""
    items = sender.items
    return None if items is None else {receiver: items[part.start : part.stop] for receiver, part in slices}


def messages_of_sums(
    sender: int,
    trip: int,
    slices: Iterable[tuple[int, slice]],
    sums: Mapping[str, np.ndarray],
    items: ItemsByReceiver | None,
    kinds: bytes,
) -> Iterator[tuple[int, Encodable]]:
    """(receiver, message) for every receiver and its slice of the sender's items; with the items, if any."""
    for receiver, part in slices:
        message: dict[str, np.ndarray | pa.Array | Packed] = {**addressed(sender, trip)}
        for name, values in sums.items():
            message.update(pack(name, values[part]))
        if items is not None:
            message["items"] = items[receiver]
            message["kinds"] = kinds_column(kinds)
        yield receiver, message


def bind_block(keys: Keys, block: Block) -> None:
    """Commit to who is in a block and what they hold, before anything of it is stored or sent.

    An engine may build a block again after some shards have drawn. From other input it would give the shards that are
    left, or later trips, other weights of the same users.

    Raises:
      InputError: the block was built from other input before.
    """
    keys.bind(f"block-{block.id}", [block.to_columns(with_items=False)])


def keep_block(
    store: RunStore, program: Program, block: Block, slices: Sequence[tuple[int, slice]]
) -> ItemsByReceiver | None:
    """Store a block as it was built; returns its items as messages carry them.

    Where the first trip sends its items, they lie in a file of their own, which no later trip reads but to learn who
    they are: in the parts that messages carry, so that text is packed once. Otherwise they are part of the block, and
    that file has their fingerprints.
    """
    items, parts = by_receiver(block, slices), {}
    if items is not None and program.sum_names(0):
        parts = {receiver: Packed.of(part) for receiver, part in items.items()}
    # Who sees the block's own file finds the other one too.
    named = {f"{PACKED_ITEMS}{receiver}": part for receiver, part in parts.items()}
    store.write(items_name(block.id), named or {"item_fp": block.item_fp})
    store.write(block_name(block.id), block.to_columns(with_items=not parts, with_identity=False))
    return parts or items


def kept_items(store: RunStore, block: Block, slices: Sequence[tuple[int, slice]]) -> ItemsByReceiver | None:
    """What `keep_block` returned, of a stored block."""
    if block.items is not None:
        return by_receiver(block, slices)
    columns = store.read(items_name(block.id), is_packed_items)
    return {receiver: columns[f"{PACKED_ITEMS}{receiver}"] for receiver, _ in slices}


def keeps_blocks(program: Program) -> bool:
    """Whether the first trip stores the blocks: somebody will read them."""
    return program.trips > 1 or program.output == "blocks"


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


def keep_inbox(store: RunStore, number: int, trip: int, elements: Iterable[bytes]) -> None:
    """Keep what a block is to receive on `trip` for the next job: messages, and references to those in files."""
    kept = pa.array([element for element in elements if element], pa.large_binary())
    store.write(inbox_name(number, trip), {"elements": kept})


def read_inbox(store: RunStore, number: int, trip: int) -> list[bytes]:
    """What `keep_inbox` kept."""
    return pa.array(store.read(inbox_name(number, trip))["elements"]).to_pylist()


def replied(
    receiver: str,
    trip: int,
    messages: Iterable[Columns],
    slices: Mapping[int, slice],
    columns: Mapping[str, ReplyColumn],
    num_items: int,
) -> dict[str, np.ndarray]:
    """The replies of a trip for all items of a receiver: name -> (items,).

    Args:
      slices: sender -> its part of the items.

    Raises:
      RunnerError: not every sender has replied once.
    """
    reply: dict[str, np.ndarray] = {
        name: np.full(num_items, column.default, column.dtype) for name, column in columns.items()
    }
    waiting = set(slices)
    for message in messages:
        sender = int(message["from"][0])
        check_trip(message, trip)
        if sender not in waiting:
            raise RunnerError(f"the runner doubled a reply to {receiver}, or sent it a stranger's")
        waiting.remove(sender)
        for name, column in columns.items():
            reply[name][slices[sender]] = unpack(name, message, column.dtype, column.default)
    if waiting:
        raise RunnerError(f"the runner lost replies to {receiver}")
    return reply


def gathered(receiver: str, trip: int, messages: Iterable[Columns]) -> dict[int, Columns]:
    """The messages of a trip by their senders.

    Raises:
      RunnerError: one came twice.
      RuntimeError: one is of another trip.
    """
    by_sender: dict[int, Columns] = {}
    for message in messages:
        check_trip(message, trip)
        sender = int(message["from"][0])
        if sender in by_sender:
            raise RunnerError(f"the runner doubled a message to {receiver}")
        by_sender[sender] = message
    return by_sender


def unpacked_sums(names: Sequence[str], messages: Mapping[int, Columns]) -> dict[int, dict[str, np.ndarray]]:
    """The sums that messages carry: sender -> name -> (links,) int64."""
    return {b: {n: unpack(n, m, np.int64) for n in names} for b, m in messages.items()}


def stored_block(store: RunStore, number: int, keys: Keys) -> Block:
    """A block as it was built; who its items are is read when it is asked for."""

    def identity() -> np.ndarray:
        columns = store.read(items_name(number))
        return columns["item_fp"] if "item_fp" in columns else fingerprints(keys.pairs.item, _joined(columns))

    return Block.from_columns(store.read(block_name(number)), identity)


def built_block(store: RunStore, number: int, keys: Keys) -> Block | None:
    """A stored block with its items, for its first trip; None: nobody's pairs were in it."""
    if not store.exists(block_name(number)):
        return None
    block = stored_block(store, number, keys)
    if block.items is None:
        block.items = _joined(store.read(items_name(number)))
    return block


def _joined(items: Columns) -> pa.Array:
    """All items of a block, of the parts that `keep_block` wrote: receivers have them in the block's order."""
    return pa.concat_arrays(list(items.values()))


def load_block(store: RunStore, program: Program, number: int, trip: int, keys: Keys) -> Block:
    """A stored block with the state and the broadcast that `trip` needs."""
    read = trip == program.trips or program.reads_block(trip)  # after the last trip: to finish
    block = stored_block(store, number, keys) if read else Block.unread(number)
    written = program.block_state_trip(trip)
    if written is not None:
        block.state = store.read(f"block-{number}-state-{written}")
    block.broadcast = last_broadcast(program, store, trip)
    return block


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

    def expand(self, pcoll):
        weigh: _BlockDoFn
        if self._trip == 0:
            weigh = _FirstWeights(self._stored, self._trip, self._kept)
            return pcoll | "Weigh" >> beam.ParDo(weigh).with_output_types(tuple[int, bytes])
        weigh = _LaterWeights(self._stored, self._trip)
        return (
            pcoll
            | "GroupByBlock" >> beam.GroupByKey()
            | "Weigh" >> beam.ParDo(weigh).with_output_types(tuple[int, bytes])
        )


def first_items(
    messages: dict[int, Columns], keys: Keys
) -> tuple[list[int], list[pa.Array | Packed], Iterator[np.ndarray], bytes]:
    """Blocks, their items as they came, their fingerprints, and their kinds, of the messages of the first trip."""
    items: list[pa.Array | Packed] = [message["items"] for message in messages.values()]
    values = (part.unpack() if isinstance(part, Packed) else part for part in items)
    fp = (fingerprints(keys.pairs.item, part) for part in values)
    return list(messages), items, fp, common_kinds(messages.values())


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


class GroupByItem(beam.PTransform):
    """Exact integer sums per item: PCollection[(int, bytes)] -> PCollection[(int, Shard)], one shuffle.

    Memory per worker: one shard, 4 bytes per link plus its sums and items; rare ones packed, once for each link.
    """

    def __init__(self, stored: StoredProgram, trip: int):
        super().__init__()
        self._fn = _SumByItem(stored, trip)

    def expand(self, pcoll):
        return (
            pcoll
            | "GroupByShard" >> beam.GroupByKey()
            | "Sum" >> beam.ParDo(self._fn).with_output_types(tuple[int, Shard])
        )


class _Noise(TripDoFn):
    def process(self, element: tuple[int, Shard]) -> Iterator[tuple[int, Shard]]:
        number, shard = element
        yield number, add_noise(self._program, self._trip, shard, self._keys)


class AddNoise(beam.PTransform):
    """Adds the round's noise to every item's weight. A retry or a second consumer draws the same noise."""

    def __init__(self, stored: StoredProgram, trip: int):
        super().__init__()
        self._fn = _Noise(stored, trip)

    def expand(self, pcoll):
        return pcoll | "Noise" >> beam.ParDo(self._fn).with_output_types(tuple[int, Shard])


class _Threshold(TripDoFn):
    def process(self, element: tuple[int, Shard]) -> Iterator[tuple[int, Shard]]:
        number, shard = element
        yield number, self._program.threshold(self._trip, shard)


class Threshold(beam.PTransform):
    """Marks the items whose noisy weight reaches the round's threshold."""

    def __init__(self, stored: StoredProgram, trip: int):
        super().__init__()
        self._fn = _Threshold(stored, trip)

    def expand(self, pcoll):
        return pcoll | "Compare" >> beam.ParDo(self._fn).with_output_types(tuple[int, Shard])


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


def messages_of_replies(
    sender: Linked, trip: int, values: Mapping[str, np.ndarray], columns: Mapping[str, ReplyColumn]
) -> Iterator[tuple[int, Columns]]:
    """(block, message) with what a shard, or a relay, replies to each of its blocks."""
    for position, block in enumerate(sender.block_ids):
        message = addressed(sender.id, trip)
        for name, column in columns.items():
            part = reply_to(sender, position, values[name], column)
            message.update(pack(name, part, column.default))
        yield int(block), message


class RerouteExcess(beam.PTransform):
    """Sends values back to the blocks that hold the items: excess ratios of MAD, biases, released items, scores.

    PCollection[(int, Shard)] -> PCollection[(int block, bytes reply)].
    """

    def __init__(self, stored: StoredProgram, trip: int):
        super().__init__()
        self._fn = _Reply(stored, trip)

    def expand(self, pcoll):
        return pcoll | "Reply" >> beam.ParDo(self._fn).with_output_types(tuple[int, bytes])


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


class Release(beam.PTransform):
    """Released items after the last trip: PCollection[(int, Shard)] -> PCollection[pa.RecordBatch]."""

    def __init__(self, stored: StoredProgram, trip: int):
        super().__init__()
        self._fn = _Release(stored, trip)

    def expand(self, pcoll):
        return pcoll | "Release" >> beam.ParDo(self._fn).with_output_types(pa.RecordBatch)


def addressed(part: int, trip: int) -> Columns:
    return {"from": np.array([part], np.int64), "trip": np.array([trip], np.int64)}


def check_trip(message: Columns, trip: int) -> None:
    if int(message["trip"][0]) != trip:
        raise RuntimeError(f"a message of trip {int(message['trip'][0])} arrived on trip {trip}")
