"""Relays between blocks and shards, where their number makes messages dearer than what they carry.

A relay stands for a group of blocks before a range of shards. It links the items of its blocks as a shard does, adds up
what they send, and sends the sums to its shards as a block does; what the shards reply it hands to its blocks. Sums are
integers, so shards hear the same totals.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dpbeam.kernels.columns import Columns
from dpbeam.kernels.pairs import Block, range_bucket
from dpbeam.kernels.shards import Linked, build_shard, parts_of

_SPREAD = (
    0x9E3779B97F4A7C15  # 2^64 over the golden ratio: successive numbers fall evenly (Knuth, vol. 3, 6.4)
)


@dataclass(frozen=True)
class Relays:
    """How blocks and shards are joined by relays.

    Attributes:
      num_shards: of the run.
      groups: groups of blocks.
      ranges: ranges of shards, at most; of `span` shards each.
    """

    num_shards: int
    groups: int
    ranges: int

    @property
    def span(self) -> int:
        """Shards of a range; of the last one at most."""
        return -(-self.num_shards // self.ranges)

    def of(self, block: int, place: int) -> int:
        """Number of the relay between a block and the range at `place`."""
        group = ((block * _SPREAD) % 2**64 >> 32) % self.groups
        return group * self.ranges + place

    def shards_of(self, relay: int) -> np.ndarray:
        """Numbers of the shards behind a relay."""
        start = relay % self.ranges * self.span
        return np.arange(start, min(start + self.span, self.num_shards))


def relay_slices(block: Block, relays: Relays) -> list[tuple[int, slice]]:
    """(relay, slice of the block's items) for every relay before the shards that the block has an item of."""
    ends = [*range(0, relays.num_shards, relays.span), relays.num_shards]
    return [(relays.of(block.id, place), part) for place, part in parts_of(block.shard_offsets[ends])]


@dataclass
class Relay(Linked):
    """The links of a group of blocks to the items of a range of shards.

    Attributes:
      id: its number.
      shards: (shards,) int64 numbers of the shards behind it.
      shard_offsets: (shards + 1,) int64; items of shards[s] are shard_offsets[s]:shard_offsets[s + 1].
      block_ids, slot_offsets, slots: as of a `Shard`.
      items, kinds: as of a `Shard`; only when it is built.
    """

    id: int
    shards: np.ndarray
    shard_offsets: np.ndarray
    block_ids: np.ndarray
    slot_offsets: np.ndarray
    slots: np.ndarray
    items: pa.Array | None = None
    kinds: bytes = b""

    @classmethod
    def build(
        cls,
        number: int,
        relays: Relays,
        block_ids: Sequence[int],
        items: Sequence[pa.Array],
        fp: Iterable[np.ndarray],
        kinds: bytes,
    ) -> Relay:
        """Number the distinct items of the blocks; for arguments and errors see `build_shard`."""
        linked = build_shard(number, block_ids, items, fp, kinds)
        shards = relays.shards_of(number)
        # Items ascend by fingerprint and shards are ranges of fingerprints.
        offsets = np.searchsorted(
            range_bucket(linked.fp, relays.num_shards), np.arange(shards[0], shards[-1] + 2)
        )
        if offsets[0] or offsets[-1] < len(linked):
            raise RuntimeError(f"relay {number} received items of shards that are not behind it")
        return cls(
            number,
            shards,
            offsets,
            linked.block_ids,
            linked.slot_offsets,
            linked.slots,
            linked.items,
            kinds,
        )

    def __len__(self) -> int:
        return int(self.shard_offsets[-1])

    def shard_slices(self) -> list[tuple[int, slice]]:
        """(shard, slice of the relay's items) for every shard that one of its blocks has an item of."""
        return [(int(self.shards[place]), part) for place, part in parts_of(self.shard_offsets)]

    def to_columns(self) -> Columns:
        """What later trips need of it."""
        return {
            "id": np.array([self.id], np.int64),
            "shards": self.shards,
            "shard_offsets": self.shard_offsets,
            "block_ids": self.block_ids,
            "slot_offsets": self.slot_offsets,
            "slots": self.slots,
        }

    @classmethod
    def from_columns(cls, columns: Mapping[str, np.ndarray]) -> Relay:
        """Inverse of `to_columns`."""
        return cls(
            id=int(columns["id"][0]),
            shards=columns["shards"],
            shard_offsets=columns["shard_offsets"],
            block_ids=columns["block_ids"],
            slot_offsets=columns["slot_offsets"],
            slots=columns["slots"],
        )
