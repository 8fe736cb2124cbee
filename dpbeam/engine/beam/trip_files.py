"""What lies in a run's folder between trips: blocks, inboxes, broadcasts, and at which trip a run ended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from dpbeam.engine.beam.receipts import taken_for_lost
from dpbeam.engine.beam.store import RunStore
from dpbeam.engine.beam.trip_messages import ItemsByReceiver, by_receiver
from dpbeam.engine.program import Keys, Program
from dpbeam.kernels.columns import (
    Columns,
    Packed,
)
from dpbeam.kernels.pairs import Block
from dpbeam.kernels.shards import (
    PACKED_ITEMS,
    is_packed_items,
)
from dpbeam.randomness import fingerprints

#: Stands for messages that lie in a block's inbox file, at the beginning of a job that goes on with a run.
IN_INBOX = b"\x00inbox"


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


def keep_inbox(store: RunStore, number: int, trip: int, elements: Iterable[bytes]) -> None:
    """Keep what a block is to receive on `trip` for the next job: messages, and references to those in files."""
    kept = pa.array([element for element in elements if element], pa.large_binary())
    store.write(inbox_name(number, trip), {"elements": kept})


def read_inbox(store: RunStore, number: int, trip: int) -> list[bytes]:
    """What `keep_inbox` kept."""
    return pa.array(store.read(inbox_name(number, trip))["elements"]).to_pylist()


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
