"""Messages between blocks and shards on a trip: what is sent to whom, and that all of it came.

Every (block, shard) pair that shares an item sends a message on every trip, also one without weight, and the
receiver checks that all came: a missing message would mean missing noise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from dpbeam.engine.beam.run import StoredProgram
from dpbeam.engine.program import Keys, ReplyColumn, reply_to
from dpbeam.errors import RunnerError
from dpbeam.kernels.columns import (
    Columns,
    Encodable,
    Packed,
    pack,
    unpack,
)
from dpbeam.kernels.pairs import Block, common_kinds, kinds_column
from dpbeam.kernels.relays import Relay, relay_slices
from dpbeam.kernels.shards import (
    Linked,
    shard_slices,
)
from dpbeam.randomness import fingerprints

# A sender's items by receiver, packed or not.
ItemsByReceiver = Mapping[int, pa.Array | Packed]


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


def first_items(
    messages: dict[int, Columns], keys: Keys
) -> tuple[list[int], list[pa.Array | Packed], Iterator[np.ndarray], bytes]:
    """Blocks, their items as they came, their fingerprints, and their kinds, of the messages of the first trip."""
    items: list[pa.Array | Packed] = [message["items"] for message in messages.values()]
    values = (part.unpack() if isinstance(part, Packed) else part for part in items)
    fp = (fingerprints(keys.pairs.item, part) for part in values)
    return list(messages), items, fp, common_kinds(messages.values())


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


def addressed(part: int, trip: int) -> Columns:
    """Columns that say from which part a message is, and of which trip."""
    return {"from": np.array([part], np.int64), "trip": np.array([trip], np.int64)}


def check_trip(message: Columns, trip: int) -> None:
    """Raise RuntimeError if a message is of another trip."""
    if int(message["trip"][0]) != trip:
        raise RuntimeError(f"a message of trip {int(message['trip'][0])} arrived on trip {trip}")
