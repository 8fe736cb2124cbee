"""Item shards: distinct items of all blocks, and the slots through which numbers travel.

A shard owns a range of item fingerprints. For every block it keeps one int32 slot per link, so that later
messages are dense slices without identities.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from dpbeam.kernels.columns import Columns, pack_arrays
from dpbeam.kernels.csr import running_sums, sums_at
from dpbeam.kernels.pairs import Block, distinct_fingerprints, kinds_column


class Linked(ABC):
    """Who has slots for the links of some blocks: a shard, or a relay before it."""

    id: int
    block_ids: np.ndarray
    slot_offsets: np.ndarray
    slots: np.ndarray

    @abstractmethod
    def __len__(self) -> int:
        """Number of items."""

    def links_of(self, position: int) -> np.ndarray:
        """Slots of the block at `position` in block_ids."""
        return self.slots[self.slot_offsets[position] : self.slot_offsets[position + 1]]


@dataclass
class Shard(Linked):
    """One range of items with everything known about them.

    Attributes:
      id: shard number.
      fp: (items, 2) uint64 fingerprints, ascending.
      block_ids: (blocks,) int64, ascending: the blocks that hold an item of this shard.
      slot_offsets: (blocks + 1,) int64.
      slots: (links,) int32; item of the l-th link of block b is slots[slot_offsets[b] + l].
      sums: name -> (items,) int64, the sums of the current trip.
      per_link: name -> (links,) int64, what each block sent, in the order of `slots`; only where a program's reply
        differs between blocks.
      state: name -> (items,) array, what the program remembers between trips.
      items: canonical bytes of the items, where loaded; or the numbers under which they are kept, int64.
      kinds: what the canonical bytes stand for, as in `Block`.
      broadcast: what the hub last said; set by the engine.
    """

    id: int
    fp: np.ndarray
    block_ids: np.ndarray
    slot_offsets: np.ndarray
    slots: np.ndarray
    sums: dict[str, np.ndarray] = field(default_factory=dict)
    per_link: dict[str, np.ndarray] = field(default_factory=dict)
    state: dict[str, np.ndarray] = field(default_factory=dict)
    items: pa.Array | None = None
    kinds: bytes = b""
    broadcast: Columns = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.fp)

    def links_columns(self) -> Columns:
        """The part that never changes, without the items."""
        return {
            "id": np.array([self.id], np.int64),
            "fp": self.fp,
            "block_ids": self.block_ids,
            "slot_offsets": self.slot_offsets,
            "slots": self.slots,
            "kinds": kinds_column(self.kinds),
        }

    def state_columns(self) -> Columns:
        """The state as it is stored after each trip; decodes by `unpack_arrays`."""
        return pack_arrays(self.state)

    def to_columns(self) -> Columns:
        columns = self.links_columns()
        columns.update({f"sums.{name}": values for name, values in self.sums.items()})
        columns.update({f"per_link.{name}": values for name, values in self.per_link.items()})
        columns.update({f"state.{name}": values for name, values in self.state.items()})
        columns.update({f"broadcast.{name}": values for name, values in self.broadcast.items()})
        if self.items is not None:
            columns["items"] = self.items
        return columns

    @classmethod
    def from_columns(cls, columns: Columns) -> Shard:
        def part(prefix: str) -> dict[str, np.ndarray]:
            return {n[len(prefix) :]: v for n, v in columns.items() if n.startswith(prefix)}

        return cls(
            id=int(columns["id"][0]),
            fp=columns["fp"],
            block_ids=columns["block_ids"],
            slot_offsets=columns["slot_offsets"],
            slots=columns["slots"],
            sums=part("sums."),
            per_link=part("per_link."),
            state=part("state."),
            items=columns.get("items"),
            kinds=columns["kinds"][0].as_py(),
            broadcast=part("broadcast."),
        )


def shard_slices(block: Block) -> list[tuple[int, slice]]:
    """(shard, slice of the block's items) for every shard that the block has an item of."""
    return parts_of(block.shard_offsets)


def parts_of(offsets: np.ndarray) -> list[tuple[int, slice]]:
    """(number, slice) of every part that is not empty; part p is offsets[p]:offsets[p + 1]."""
    filled = np.flatnonzero(np.diff(offsets))
    return [(int(p), slice(int(offsets[p]), int(offsets[p + 1]))) for p in filled]


def build_shard(
    shard_id: int,
    block_ids: Sequence[int],
    items: Sequence[pa.Array],
    fp: Sequence[np.ndarray],
    kinds: bytes = b"",
) -> Shard:
    """Number the distinct items of a shard and link the blocks to them.

    Args:
      block_ids: one per message; items, fp: that block's items in this shard, by their fingerprints: their canonical
        bytes, and (items, 2) uint64.

    Raises:
      RuntimeError: a block sent two messages, which would count its users twice.
    """
    order = np.argsort(np.asarray(block_ids, np.int64), kind="stable")
    ids = np.asarray(block_ids, np.int64)[order]
    if (ids[1:] == ids[:-1]).any():
        raise RuntimeError(f"shard {shard_id} received two first messages of one block")
    parts = [items[i] for i in order]
    offsets = running_sums([len(part) for part in parts])
    all_fp = np.concatenate([fp[i] for i in order])
    first, slots, distinct_fp = distinct_fingerprints(all_fp, runs=True)
    return Shard(
        id=shard_id,
        fp=distinct_fp,
        block_ids=ids,
        slot_offsets=offsets,
        slots=slots.astype(np.int32),
        items=_take(parts, offsets, first),
        kinds=kinds,
    )


def _take(parts: Sequence[pa.Array], offsets: np.ndarray, rows: np.ndarray) -> pa.Array:
    """Distinct rows of all parts, which begin at `offsets`.

    The parts are not concatenated: long items would double a worker's memory.
    """
    used = np.zeros(int(offsets[-1]), bool)
    used[rows] = True
    chosen = [
        part.take(pa.array(np.flatnonzero(used[low:high])))
        for part, low, high in zip(parts, offsets, offsets[1:])
    ]
    return pa.concat_arrays(chosen).take(pa.array((np.cumsum(used) - 1)[rows]))


def sum_messages(
    shard: Linked, names: Sequence[str], messages: Mapping[int, Mapping[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """Exact integer sums per item over all blocks.

    Args:
      names: the columns that this trip carries.
      messages: block id -> {name: (links of the block,) int64}.

    Raises:
      RuntimeError: a block of this shard sent nothing or a stranger did: the trip's noise or weight would be
        wrong without anybody noticing.
    """
    if set(messages) != {int(b) for b in shard.block_ids}:
        raise RuntimeError(f"shard {shard.id} expected messages of {len(shard.block_ids)} blocks")
    return {
        name: sums_at(shard.slots, values, len(shard))
        for name, values in link_messages(shard, names, messages).items()
    }


def link_messages(
    shard: Linked, names: Sequence[str], messages: Mapping[int, Mapping[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """What every block sent, before it is summed: name -> (links,) int64 in the order of `slots`.

    Args: as of `sum_messages`, which checks that every block sent one.

    Raises:
      RuntimeError: a message has numbers for fewer or more items than its block has here; those of the next block would
        be taken for them.
    """
    links = np.diff(shard.slot_offsets).tolist()
    for block, count in zip(shard.block_ids.tolist(), links, strict=True):
        if any(len(messages[block][name]) != count for name in names):
            raise RuntimeError(f"{type(shard).__name__.lower()} {shard.id} expected a number for every link")
    return {name: np.concatenate([messages[int(b)][name] for b in shard.block_ids]) for name in names}
