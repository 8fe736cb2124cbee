"""A state in parts, as an engine makes it: users in blocks, open items in shards, a file each in the series' folder.

Blocks are ranges of users' fingerprints and shards ranges of items', as in any run (`dpbeam.kernels.pairs`); what both
hold together is a `SeriesState`. Their numbers may grow by whole factors, so that a new part lies in one old part. An
item that a night has released leaves the shards with it, and the blocks when these are read next.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from dpbeam.engine.binding import OTHER_DATA, digest_of
from dpbeam.errors import StoreError, param
from dpbeam.kernels.columns import Columns, decode, encode_map
from dpbeam.kernels.csr import running_sums
from dpbeam.kernels.pairs import positions_in, range_bucket, rows_at
from dpbeam.series.program import ENERGY, FIRST
from dpbeam.series.state import (
    ACCUMULATORS,
    SeriesState,
    Users,
    accumulator_columns,
    accumulators_of,
    among,
)
from dpbeam.series.store import PART, SeriesStore


@dataclass(frozen=True)
class Parts:
    """The files of a state in parts.

    Attributes:
      blocks, shards: name of the file of each, in their order; "" where nobody is in it.
      energies: of each block, the file of what its users have left since that was written; "": as it says itself.
      pairs: roughly how many pairs are open.
    """

    blocks: tuple[str, ...]
    shards: tuple[str, ...]
    energies: tuple[str, ...]
    pairs: int

    @property
    def names(self) -> tuple[str, ...]:
        """Of all its files."""
        return tuple(name for name in (*self.blocks, *self.shards, *self.energies) if name)

    def to_columns(self) -> Columns:
        """The names, as columns of a snapshot."""
        names = {"blocks": self.blocks, "shards": self.shards, "energies": self.energies}
        columns: Columns = {
            f"parts.{what}": pa.array(map(str.encode, n), pa.large_binary()) for what, n in names.items()
        }
        return {**columns, "parts.pairs": np.array([self.pairs], np.int64)}

    @classmethod
    def from_columns(cls, columns: Columns) -> Parts | None:
        """Inverse of `to_columns`; None where there are none."""
        if "parts.pairs" not in columns:
            return None
        blocks, shards, energies = (
            tuple(map(bytes.decode, pa.array(columns.get(f"parts.{what}", ())).to_pylist()))
            for what in ("blocks", "shards", "energies")
        )
        # Version 1 wrote none.
        return cls(blocks, shards, energies or ("",) * len(blocks), int(columns["parts.pairs"][0]))


@dataclass(frozen=True)
class OpenItems:
    """Open items of a shard: fp (items, 2) uint64, ascending; their canonical bytes; accumulators: name -> (items,)."""

    fp: np.ndarray
    items: pa.Array
    accumulators: dict[str, np.ndarray]

    @classmethod
    def none(cls) -> OpenItems:
        """No items."""
        return cls.of(SeriesState.empty())

    @classmethod
    def of(cls, state: SeriesState) -> OpenItems:
        """Those of a state."""
        return cls(state.item_fp, state.items, state.accumulators)

    def rows(self, keep: np.ndarray) -> OpenItems:
        """Some of them, (items,) bool."""
        rows = np.flatnonzero(keep)
        accumulators = {name: values[rows] for name, values in self.accumulators.items()}
        return OpenItems(rows_at(self.fp, rows), self.items.take(pa.array(rows)), accumulators)

    def to_columns(self) -> Columns:
        """Columns of their file."""
        return {"fp": self.fp, "items": self.items, **accumulator_columns(self.accumulators)}


class PartFiles:
    """Reads and writes parts of a state.

    Args:
      store: of the series.
      attempt: a name that no other attempt at a change has; parts are written under it.
    """

    def __init__(self, store: SeriesStore, attempt: str):
        self.store, self.attempt = store, attempt

    @staticmethod
    def new_attempt() -> str:
        """A name that no other attempt at a night has."""
        return secrets.token_hex(8)

    def block_name(self, number: int) -> str:
        """The file of a block's users."""
        return f"{PART}{self.attempt}-block-{number}"

    def energy_name(self, number: int) -> str:
        """The file of what a block's users have left to spend."""
        return f"{PART}{self.attempt}-energy-{number}"

    def shard_name(self, number: int) -> str:
        """The file of a shard's items."""
        return f"{PART}{self.attempt}-shard-{number}"

    def write_users(self, number: int, users: Users) -> str:
        """Write a block, and return its name; "" for one without users."""
        name = self._write(self.block_name(number), users.users_columns())
        return name if len(users.user_fp) else ""

    def write_energy(self, number: int, energy: np.ndarray) -> str:
        """Write what the users of a block that was written have left, and return the name."""
        return self._write(self.energy_name(number), {ENERGY: energy})

    def write_items(self, number: int, items: OpenItems) -> str:
        """Write a shard, and return its name; "" for one without items."""
        name = self._write(self.shard_name(number), items.to_columns())
        return name if len(items.fp) else ""

    def _write(self, name: str, columns: Columns) -> str:
        """Write a part, also one of nothing, which no state names: another try of the step compares its own with it."""
        try:
            self.store.write_file(name, encode_map(columns))
        except FileExistsError:
            # An earlier try of the same step has written the same, unless its input has changed since.
            key = secrets.token_bytes(32)
            if digest_of(key, [self._read(name)]) != digest_of(key, [columns]):
                raise StoreError(OTHER_DATA) from None
        return name

    def _read(self, name: str) -> Columns:
        try:
            return decode(self.store.read_file(name))
        except FileNotFoundError:
            raise StoreError(f"{param('folder')}: '{self.store.folder.path}/{name}' is gone") from None

    def users(self, parts: Parts, number: int, num_blocks: int, released_fp: np.ndarray) -> Users:
        """The users of a block, as one of `num_blocks`, without pairs of released items.

        Args:
          num_blocks: a multiple of the number of blocks in `parts`.
        """
        name = parts.blocks[number * len(parts.blocks) // num_blocks]
        if not name:
            return Users.nobody()
        users = Users(**Users.of_columns(self._read(name)))
        if left := parts.energies[number * len(parts.blocks) // num_blocks]:
            users = replace(users, energy=self._read(left)[ENERGY])
        users = users.holding(~among(users.item_fp, released_fp))
        if num_blocks > len(parts.blocks):
            users = users.rows(range_bucket(users.user_fp, num_blocks) == number)
        return users

    def items(self, parts: Parts, number: int, num_shards: int) -> OpenItems:
        """The open items of a shard, as one of `num_shards`."""
        name = parts.shards[number * len(parts.shards) // num_shards]
        if not name:
            return OpenItems.none()
        columns = self._read(name)
        items = OpenItems(columns["fp"], columns["items"], accumulators_of(columns))
        if num_shards > len(parts.shards):
            items = items.rows(range_bucket(items.fp, num_shards) == number)
        return items

    def split(self, state: SeriesState, num_blocks: int, num_shards: int) -> Parts:
        """Write a whole state in parts."""
        block, shard = range_bucket(state.user_fp, num_blocks), range_bucket(state.item_fp, num_shards)
        items = OpenItems.of(state)
        return Parts(
            tuple(self.write_users(n, state.rows(block == n)) for n in range(num_blocks)),
            tuple(self.write_items(n, items.rows(shard == n)) for n in range(num_shards)),
            ("",) * num_blocks,
            len(state.links),
        )

    def joined(self, parts: Parts, public: SeriesState) -> SeriesState:
        """The whole state that `public` and these parts are."""
        count, shards = len(parts.blocks), len(parts.shards)
        return joined(
            public,
            [self.users(parts, number, count, public.released_fp) for number in range(count)],
            [self.items(parts, number, shards) for number in range(shards)],
        )

    def without(self, parts: Parts, users: np.ndarray, released_fp: np.ndarray) -> Parts:
        """After an erasure of users by their fingerprints, (n, 2); blocks where it changes nothing stay."""
        count = len(parts.blocks)
        blocks, energies, pairs = list(parts.blocks), list(parts.energies), parts.pairs
        for number in map(int, np.unique(range_bucket(users, count))):
            before = self.users(parts, number, count, released_fp)
            after = before.without_fp(users)
            gone = len(before.links) - len(after.links)
            if gone:
                blocks[number] = self.write_users(number, after.holding(np.ones(len(after.item_fp), bool)))
                energies[number] = ""
                pairs -= gone
        return replace(parts, blocks=tuple(blocks), energies=tuple(energies), pairs=max(pairs, 0))


def joined(public: SeriesState, blocks: list[Users], shards: list[OpenItems]) -> SeriesState:
    """The whole state of blocks and shards in their order.

    Args:
      public: what is not in them.
    """
    shards = shards or [OpenItems.none()]
    item_fp = np.concatenate([shard.fp for shard in shards])
    degrees = np.concatenate([np.diff(block.offsets) for block in blocks])
    of_users: dict[str, Any] = {
        name: np.concatenate([getattr(block, name) for block in blocks])
        for name in ("user_fp", "used", ENERGY, FIRST, "ranks")
    }
    return replace(
        public,
        **of_users,
        offsets=running_sums(degrees),
        links=np.concatenate([_places(item_fp, block.item_fp)[block.links] for block in blocks]),
        item_fp=item_fp,
        items=pa.concat_arrays([shard.items for shard in shards]),
        accumulators={
            name: np.concatenate([shard.accumulators[name] for shard in shards]) for name in ACCUMULATORS
        },
    )


def with_released(public: SeriesState, columns: list[Columns], night: int, rounds: int) -> SeriesState:
    """The public part of a state with what the shards of a night have released.

    Args:
      columns: of `NightProgram.end`, a shard each.
    """
    return public.releasing(
        np.concatenate([np.zeros((0, 2), np.uint64), *(part["fp"] for part in columns)]),
        pa.concat_arrays([pa.array([], pa.large_binary()), *(part["items"] for part in columns)]),
        np.concatenate([np.zeros(0, np.int64), *(part["noisy"] for part in columns)]),
        night,
        rounds,
    )


def _places(item_fp: np.ndarray, own: np.ndarray) -> np.ndarray:
    """(own,) int32: row of each fingerprint in all, of which it is one.

    Raises:
      RuntimeError: it is none.
    """
    places = positions_in(item_fp, own)
    if (places < 0).any():
        raise RuntimeError("a block holds an item that no shard knows")
    return places.astype(np.int32)


def next_part_count(current: int, wanted: int) -> int:
    """The largest multiple of `current` not above `wanted`, at least `current`: parts are only ever split."""
    return current * max(1, wanted // current)


def names_of(parts: Parts | None) -> tuple[str, ...]:
    """Of the files of a state, which may be in one piece."""
    return () if parts is None else parts.names
