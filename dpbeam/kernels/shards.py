"""Item shards: distinct items of all blocks, and the slots through which numbers travel.

A shard owns a range of item fingerprints. For every block it keeps one int32 slot per link, so that later
messages are dense slices without identities.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from dpbeam.errors import RunnerError
from dpbeam.kernels.columns import Columns, Encodable, Packed, pack_arrays
from dpbeam.kernels.csr import running_sums, sums_at
from dpbeam.kernels.pairs import Block, distinct_in_parts, kinds_column

PACKED_ITEMS = "items."  # and a number: names of the parts of packed items
_RARE = 6  # links of an item, up to which packed text of all takes about as much as that of the distinct ones


def is_packed_items(name: str) -> bool:
    """Whether a column is a part of packed items."""
    return name.startswith(PACKED_ITEMS)


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
      items: canonical bytes of the items, where loaded, maybe packed; or the numbers under which they are kept, int64.
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
    items: pa.Array | LinkedItems | None = None
    kinds: bytes = b""
    broadcast: Columns = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.fp)

    @property
    def loaded_items(self) -> pa.Array | LinkedItems:
        """The items.

        Raises:
          ValueError: they are not loaded.
        """
        if self.items is None:
            raise ValueError(f"the items of shard {self.id} are not loaded")
        return self.items

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
        """All that it holds, as columns of a message."""
        columns = self.links_columns()
        columns.update({f"sums.{name}": values for name, values in self.sums.items()})
        columns.update({f"per_link.{name}": values for name, values in self.per_link.items()})
        columns.update({f"state.{name}": values for name, values in self.state.items()})
        columns.update({f"broadcast.{name}": values for name, values in self.broadcast.items()})
        if self.items is not None:
            columns["items"] = self.items if isinstance(self.items, pa.Array) else self.items.unpack()
        return columns

    def items_columns(self) -> Encodable:
        """The items as they are stored; decode by `items_of`."""
        if isinstance(self.items, LinkedItems):
            return {f"{PACKED_ITEMS}{place}": part for place, part in enumerate(self.items.parts)}
        return {"items": self.items}

    def items_of(self, columns: Columns) -> pa.Array | LinkedItems:
        """Inverse of `items_columns`, of columns that stay packed."""
        if "items" in columns:
            return columns["items"]
        parts: list[Any] = [columns[f"{PACKED_ITEMS}{place}"] for place in range(len(self.block_ids))]
        return LinkedItems(self, parts)

    @classmethod
    def from_columns(cls, columns: Columns) -> Shard:
        """Inverse of `to_columns`."""

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


class LinkedItems:
    """A shard's items as its blocks sent them, each with its own: packed until somebody asks for some.

    Of an item that several blocks sent, the first one's is looked at: what is released is in most blocks, so most
    parts are never unpacked.

    Args:
      linked: whose links say which of them are which item.
      parts: of each block, in the order of its block_ids.
    """

    def __init__(self, linked: Linked, parts: Sequence[Packed]):
        self.parts = parts
        self._links, self._offsets, self._count = linked.slots, linked.slot_offsets, len(linked)

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        """Bytes of the items."""
        return sum(part.nbytes for part in self.parts)

    def take(self, rows: pa.Array) -> pa.Array:
        """Some items, by their numbers.

        Raises:
          IndexError: no item has such a number.
        """
        if len(rows) and rows.to_numpy().min() < 0:
            raise IndexError(f"items have numbers from 0 to {self._count - 1}")
        first = np.empty(self._count, np.int64)
        first[self._links[::-1]] = np.arange(len(self._links) - 1, -1, -1)
        return _take(self.parts, self._offsets, first.take(rows.to_numpy()))

    def filter(self, mask: pa.Array) -> pa.Array:
        """The items where `mask`, (items,) bool, is true. Raises ValueError where it has another length."""
        if len(mask) != self._count:
            raise ValueError(f"a mask of {len(mask)} for {self._count} items")
        return self.take(pa.array(np.flatnonzero(mask.to_numpy(zero_copy_only=False))))

    def unpack(self) -> pa.Array:
        """All of them."""
        return self.take(pa.array(np.arange(self._count)))


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
    items: Sequence[pa.Array] | Sequence[Packed],
    fp: Iterable[np.ndarray],
    kinds: bytes = b"",
) -> Shard:
    """Number the distinct items of a shard and link the blocks to them.

    Args:
      block_ids: one per message; items, fp: that block's items in this shard, by their fingerprints: their canonical
        bytes, and (items, 2) uint64. `fp` may be an iterator: a list that the caller keeps doubles its memory.

    Raises:
      RunnerError: a block sent two messages, which would count its users twice.
    """
    order = np.argsort(np.asarray(block_ids, np.int64), kind="stable")
    ids = np.asarray(block_ids, np.int64)[order]
    if (ids[1:] == ids[:-1]).any():
        raise RunnerError(f"the runner doubled a block's first message to shard {shard_id}")
    parts = [items[i] for i in order]
    by_message = list(fp)
    by_block = [by_message[i] for i in order]
    del by_message
    offsets = running_sums([len(part) for part in by_block])
    first, slots, distinct_fp = distinct_in_parts(by_block)
    shard = Shard(
        id=shard_id,
        fp=distinct_fp,
        block_ids=ids,
        slot_offsets=offsets,
        slots=slots.astype(np.int32, copy=False),
        kinds=kinds,
    )
    packed = all(isinstance(part, Packed) for part in parts) and len(slots) <= _RARE * len(shard)
    shard.items = LinkedItems(shard, parts) if packed else _take(parts, offsets, first)
    return shard


def _take(parts: Sequence[pa.Array | Packed], offsets: np.ndarray, rows: np.ndarray) -> pa.Array:
    """Rows of all parts, which begin at `offsets`.

    The parts are not concatenated: long items would double a worker's memory.
    """
    used = np.zeros(int(offsets[-1]), bool)
    used[rows] = True
    chosen = []
    for part, (low, high) in zip(parts, itertools.pairwise(offsets.tolist()), strict=True):
        mine = np.flatnonzero(used[low:high])
        if len(mine):
            values = part.unpack() if isinstance(part, Packed) else part
            chosen.append(values.take(pa.array(mine)))
    if not chosen:
        return pa.array([], pa.large_binary())
    return pa.concat_arrays(chosen).take(pa.array((np.cumsum(used) - 1).take(rows)))


def sum_messages(
    shard: Linked, names: Sequence[str], messages: Mapping[int, Mapping[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """Exact integer sums per item over all blocks.

    Args:
      names: the columns that this trip carries.
      messages: block id -> {name: (links of the block,) int64}.

    Raises:
      RunnerError: a block of this shard sent nothing or a stranger did: the trip's noise or weight would be
        wrong without anybody noticing.
    """
    if set(messages) != {int(b) for b in shard.block_ids}:
        raise RunnerError(
            f"the runner lost or doubled messages of blocks to {type(shard).__name__.lower()} {shard.id}"
        )
    return {
        name: sums_at(shard.slots, values, len(shard))
        for name, values in link_messages(shard, names, messages).items()
    }


def link_messages(
    shard: Linked, names: Sequence[str], messages: Mapping[int, Mapping[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """What every block sent, before it is summed: name -> (links,) int64 in the order of `slots`.

    Args: see `sum_messages`, which checks that every block sent one.

    Raises:
      RuntimeError: a message has numbers for fewer or more items than its block has here; those of the next block would
        be taken for them.
    """
    links = np.diff(shard.slot_offsets).tolist()
    for block, count in zip(shard.block_ids.tolist(), links, strict=True):
        if any(len(messages[block][name]) != count for name in names):
            raise RuntimeError(f"{type(shard).__name__.lower()} {shard.id} expected a number for every link")
    return {name: np.concatenate([messages[int(b)][name] for b in shard.block_ids]) for name in names}
