"""What a series remembers between nights, all of it private but what is released.

Users' open pairs with the rank in which each came, how many ranks every user has used, and the accumulators of every
item that was ever in somebody's sample and is not released. An erased user keeps its row, without pairs: who comes
back finds the ranks that are used. Nothing here is ever recomputed: a night only adds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpbeam.kernels.canonical import METADATA_KEY, Kinds
from dpbeam.kernels.columns import Columns
from dpbeam.kernels.csr import running_sums, segment_rows
from dpbeam.kernels.pairs import (
    Block,
    PairKeys,
    build_block,
    encode_dictionary,
    kinds_column,
    offsets_of,
    partition_pairs,
    positions_in,
    range_bucket,
    rows_at,
    unique_fingerprints,
)
from dpbeam.randomness import fingerprints, pair_bits
from dpbeam.series.program import ENERGY, FIRST, RANK
from dpbeam.series.saved import FULL, UNKNOWN

#: Accumulators of an open item, as `GsuProgram` keeps them.
ACCUMULATORS = {"z": np.float64, "y": np.float64, "a": np.float64, "score": np.uint16}
#: Fields of a state by what they tell of.
USERS = ("user_fp", "used", ENERGY, FIRST, "offsets", "links", "ranks", "item_fp", "items")
RELEASED = ("released_fp", "released", "released_night", "released_count")
#: A user has at most D0 open pairs: of so many times D0 that come on a night, D0 at least are new.
TWICE = 2
_LOW = np.uint64(0xFFFFFFFF)
_NOBODY: dict[str, Any] = {
    "user_fp": np.zeros((0, 2), np.uint64),
    "used": np.zeros(0, np.int32),
    ENERGY: np.zeros(0, np.int64),
    FIRST: np.zeros(0, np.int32),
    "offsets": np.zeros(1, np.int64),
    "links": np.zeros(0, np.int32),
    "ranks": np.zeros(0, np.int32),
    "item_fp": np.zeros((0, 2), np.uint64),
    "items": pa.array([], pa.large_binary()),
}

UsersT = TypeVar("UsersT", bound="Users")


@dataclass(frozen=True)
class Users:
    """Users with their open pairs: all of a series, or those of one block (`dpbeam.series.parts`).

    Attributes:
      user_fp: (users, 2) uint64, ascending; used: (users,) int32 ranks that each has used.
      energy: (users,) int64, what each may still spend (`dpbeam.series.saved`), UNKNOWN where the series saves no norm
        and version 1 wrote the state; first: (users,) int32, the night on which each came first.
      offsets: (users + 1,) int64; links: (pairs,) int32 into the items, ascending within a user.
      ranks: (pairs,) int32, from 1.
      item_fp: (items, 2) uint64 of open items, ascending; items: their canonical bytes.
    """

    user_fp: np.ndarray
    used: np.ndarray
    energy: np.ndarray
    first: np.ndarray
    offsets: np.ndarray
    links: np.ndarray
    ranks: np.ndarray
    item_fp: np.ndarray
    items: pa.Array

    @classmethod
    def nobody(cls) -> Users:
        """No users."""
        return Users(**_NOBODY)

    @staticmethod
    def of(state: Users) -> Users:
        """Those of a whole state, with the items that somebody holds."""
        users = Users(**state.users_columns())
        return users.holding(np.ones(len(users.item_fp), bool))

    @classmethod
    def of_columns(cls, columns: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of users in the columns of a file; what version 1 did not write is unknown."""
        missing = np.full(len(columns["user_fp"]), UNKNOWN)
        later = {ENERGY: missing, FIRST: np.ones(len(missing), np.int32)}
        return {name: columns[name] if name in columns else later[name] for name in USERS}

    def users_columns(self) -> Columns:
        """The arrays of the users by name."""
        return {name: getattr(self, name) for name in USERS}

    def block(self, number: int = 0, num_shards: int = 1, kinds: bytes = b"") -> Block:
        """These users as a block of an engine."""
        return Block(
            id=number,
            offsets=self.offsets,
            links=self.links,
            shard_offsets=np.searchsorted(range_bucket(self.item_fp, num_shards), np.arange(num_shards + 1)),
            identity=self.item_fp,
            user_fp=self.user_fp,
            items=self.items,
            kinds=kinds,
            user_values={ENERGY: self.energy, FIRST: self.first},
            pair_values={RANK: self.ranks},
        )

    def without(self: UsersT, users: pa.Array, keys: PairKeys) -> UsersT:
        """After an erasure: these users (canonical bytes) give no weight any more.

        Items stay candidates and keep what was added to them; the ranks and the energy that the users have used stay
        used. Users who are not here change nothing, and nobody is told who was.
        """
        return self if not len(users) else self.without_fp(fingerprints(keys.user, pc.unique(users)))

    def without_fp(self: UsersT, users: np.ndarray) -> UsersT:
        """The same for users by their fingerprints, (n, 2)."""
        gone = among(self.user_fp, users)
        keep = ~np.repeat(gone, np.diff(self.offsets))
        return replace(
            self,
            offsets=running_sums(keep).take(self.offsets),
            links=self.links[keep],
            ranks=self.ranks[keep],
        )

    def arrived(self: UsersT, came_in: Block | None, night: int, keys: PairKeys, max_items: int) -> UsersT:
        """After the pairs of a night came in, those of `SeriesState.kept` for these users.

        A user's new items take the ranks that follow those it has used, in the order of PRF(user, item), until D0 are
        used; what comes later is left out for good. Items that are released take no rank.
        """
        if came_in is None:
            return self
        all_users, user = _merged(self.user_fp, came_in.user_fp)
        all_items, item = _merged(self.item_fp, came_in.item_fp)
        known, came = item[: len(self.item_fp)], item[len(self.item_fp) :]
        old = _words(np.repeat(user[: len(self.user_fp)], np.diff(self.offsets)), known[self.links])
        # Ascending, as a block is in the order of both fingerprints.
        words = _words(np.repeat(user[len(self.user_fp) :], np.diff(came_in.offsets)), came[came_in.links])
        words = words[~np.isin(words, old, assume_unique=True)]
        before = user[: len(self.user_fp)]
        used = np.zeros(len(all_users), np.int32)
        energy, first = np.full(len(all_users), FULL), np.full(len(all_users), night, np.int32)
        used[before], energy[before], first[before] = self.used, self.energy, self.first
        rank = _next_ranks(words, used, all_users, all_items, keys.sample, max_items)
        words, rank = words[rank > 0], rank[rank > 0]
        np.maximum.at(used, (words >> np.uint64(32)).astype(np.int64), rank)
        # Items and users that got no pair are left out again.
        origin = np.full(len(all_items), -1, np.int64)
        origin[known] = np.arange(len(known))
        named = np.full(len(all_items), -1, np.int64)
        named[came] = len(known) + np.arange(len(came))
        stays = origin >= 0
        stays[(words & _LOW).astype(np.int64)] = True
        place = np.cumsum(stays) - 1
        together = np.concatenate([old, words])
        order = np.argsort(together, kind="stable")
        together = together[order]
        row = (together >> np.uint64(32)).astype(np.int64)
        present = used > 0
        names = pa.concat_arrays([self.items, _binary(came_in.items)])
        origin = origin[stays]
        return replace(
            self,
            user_fp=rows_at(all_users, np.flatnonzero(present)),
            used=used[present],
            energy=energy[present],
            first=first[present],
            offsets=offsets_of((np.cumsum(present) - 1)[row], int(present.sum())),
            links=place[(together & _LOW).astype(np.int64)].astype(np.int32),
            ranks=np.concatenate([self.ranks, rank])[order].astype(np.int32),
            item_fp=rows_at(all_items, np.flatnonzero(stays)),
            items=names.take(pa.array(np.where(origin >= 0, origin, named[stays]))),
        )

    def rows(self, keep: np.ndarray) -> Users:
        """Some of the users, (users,) bool, with the items that they hold."""
        pairs = np.repeat(keep, np.diff(self.offsets))
        degrees = np.diff(self.offsets)[keep]
        return Users(
            user_fp=rows_at(self.user_fp, np.flatnonzero(keep)),
            used=self.used[keep],
            energy=self.energy[keep],
            first=self.first[keep],
            offsets=running_sums(degrees),
            links=self.links[pairs],
            ranks=self.ranks[pairs],
            item_fp=self.item_fp,
            items=self.items,
        ).holding(np.ones(len(self.item_fp), bool))

    def holding(self, among_items: np.ndarray) -> Users:
        """The users with these items alone, (items,) bool, and of them those that somebody holds."""
        pairs = among_items[self.links]
        links = self.links[pairs]
        held = np.zeros(len(self.item_fp), bool)
        held[links] = True
        rows = np.flatnonzero(held)
        return Users(
            user_fp=self.user_fp,
            used=self.used,
            energy=self.energy,
            first=self.first,
            offsets=running_sums(pairs).take(self.offsets),
            links=(np.cumsum(held) - 1)[links].astype(np.int32),
            ranks=self.ranks[pairs],
            item_fp=rows_at(self.item_fp, rows),
            items=self.items.take(pa.array(rows)),
        )


@dataclass(frozen=True)
class SeriesState(Users):
    """After some nights.

    Attributes:
      night: nights that were made; rounds: rounds that were made.
      accumulators: name -> (items,).
      released_fp: (released, 2), ascending; released: canonical bytes; released_night: (released,) int32;
        released_count: (released,) int64 noisy counts, 0 in a series without them.
      kinds: what canonical bytes of users and items stand for; empty before the first schema.
    """

    night: int
    rounds: int
    accumulators: dict[str, np.ndarray]
    released_fp: np.ndarray
    released: pa.Array
    released_night: np.ndarray
    released_count: np.ndarray
    kinds: bytes = b""

    @classmethod
    def empty(cls) -> SeriesState:
        """That before the first night."""
        return cls(
            **_NOBODY,
            night=0,
            rounds=0,
            accumulators={name: np.zeros(0, kind) for name, kind in ACCUMULATORS.items()},
            released_fp=_NOBODY["user_fp"],
            released=_NOBODY["items"],
            released_night=np.zeros(0, np.int32),
            released_count=np.zeros(0, np.int64),
        )

    def public_columns(self) -> Columns:
        """All but users and open items."""
        return {
            "made": np.array([self.night, self.rounds], np.int64),
            "kinds": kinds_column(self.kinds),
            **{name: getattr(self, name) for name in RELEASED},
        }

    def to_columns(self) -> Columns:
        """For `dpbeam.kernels.columns.encode`."""
        return {
            **self.public_columns(),
            **self.users_columns(),
            **accumulator_columns(self.accumulators),
        }

    @classmethod
    def from_columns(cls, columns: Columns) -> SeriesState:
        """Inverse of `to_columns`, and of `public_columns`; states from before there were counts have none."""
        columns = {"released_count": np.zeros(len(columns["released"]), np.int64), **columns}
        empty = cls.empty()
        whole = "links" in columns
        return cls(
            night=int(columns["made"][0]),
            rounds=int(columns["made"][1]),
            kinds=columns["kinds"][0].as_py(),
            accumulators=accumulators_of(columns) if whole else empty.accumulators,
            **(cls.of_columns(columns) if whole else {name: getattr(empty, name) for name in USERS}),
            **{name: columns[name] for name in RELEASED},
        )

    def public(self) -> SeriesState:
        """The same without users and open items."""
        return self.from_columns(self.public_columns())

    def released_until(self, night: int) -> tuple[pa.Array, np.ndarray, np.ndarray]:
        """Items that were released up to a night, in the order of nights and of their bytes; night and noisy count of
        each.
        """
        order = np.asarray(pc.array_sort_indices(self.released))
        order = order[np.argsort(self.released_night[order], kind="stable")]
        order = order[self.released_night[order] <= night]
        return self.released.take(pa.array(order)), self.released_night[order], self.released_count[order]

    def kept(
        self, users: pa.Array, items: pa.Array, keys: PairKeys, max_items: int, night: int
    ) -> Block | None:
        """The pairs of a night that can matter, None for none: of items that were not released before it, `TWICE` D0
        of each user at most.

        Args:
          users, items: (n,) canonical bytes, without nulls; pairs may repeat.
        """
        index, dictionary = encode_dictionary(items)
        before = rows_at(self.released_fp, np.flatnonzero(self.released_night < night))
        released = among(fingerprints(keys.item, dictionary), before)
        items = pa.DictionaryArray.from_arrays(pa.array(index), dictionary)
        if released.any():
            fresh = pa.array(~released[index])
            users, items = users.filter(fresh), items.filter(fresh)
        cap = TWICE * max_items
        messages = [message for _, message in partition_pairs(users, items, keys, 1, cap)]
        return build_block(0, messages, keys, 1, cap) if messages else None

    def releasing(
        self, fp: np.ndarray, items: pa.Array, noisy: np.ndarray, night: int, rounds: int
    ) -> SeriesState:
        """With the items that a night has released, beside those of earlier nights.

        Args:
          fp: (new, 2); items: their canonical bytes; noisy: (new,) int64 noisy counts.
        """
        released_fp = np.concatenate([self.released_fp, fp])
        order, _ = unique_fingerprints(released_fp)
        return replace(
            self,
            night=night,
            rounds=rounds,
            released_fp=rows_at(released_fp, order),
            released=pa.concat_arrays([self.released, items]).take(pa.array(order)),
            released_night=np.concatenate([self.released_night, np.full(len(fp), night, np.int32)])[order],
            released_count=np.concatenate([self.released_count, noisy])[order],
        )


def kinds_of(metadata: bytes) -> Kinds:
    """The kinds that `SeriesState.kinds` stands for."""
    return Kinds.of(pa.schema([], metadata={METADATA_KEY: metadata}))


def open_items(accumulators: Columns) -> dict[str, np.ndarray]:
    """State of a shard of open items before the first round of a night."""
    count = len(accumulators["z"])
    own = {name: np.asarray(accumulators[name]) for name in ACCUMULATORS}
    return {**own, "released": np.zeros(count, bool), "weight": np.zeros(count, np.int64)}


def accumulator_columns(accumulators: Mapping[str, np.ndarray]) -> Columns:
    """Noisy sums of items as columns of a file."""
    return {f"accumulators.{name}": accumulators[name] for name in ACCUMULATORS}


def accumulators_of(columns: Columns) -> dict[str, np.ndarray]:
    """Inverse of `accumulator_columns`."""
    return {name: np.asarray(columns[f"accumulators.{name}"]) for name in ACCUMULATORS}


def pairs_digest(key: bytes, night: Block | None) -> np.ndarray:
    """(3,) uint64 that stand for a set of pairs: sums of keyed words, and their number.

    The digest of all pairs is the sum of those of the blocks, whatever these are. Without the key nobody finds another
    set with the same sums, but by chance, 2^-128 for any set that was chosen.
    """
    if night is None:
        return np.zeros(3, np.uint64)
    user = np.repeat(np.arange(len(night.user_fp)), np.diff(night.offsets))
    bits = pair_bits(key, night.user_fp, night.item_fp, user, night.links)
    return np.append(bits.sum(axis=0, dtype=np.uint64), np.uint64(len(bits)))


def input_fingerprint(users: pa.Array, items: pa.Array, keys: PairKeys) -> Iterable[bytes]:
    """The distinct pairs of an input in an order of their own, for a keyed digest."""
    if len(users):
        user, item = fingerprints(keys.user, users), fingerprints(keys.item, items)
        pairs = np.unique(np.concatenate([user, item], axis=1), axis=0)
        yield np.ascontiguousarray(pairs).tobytes()


def among(fp: np.ndarray, listed: np.ndarray) -> np.ndarray:
    """(n,) bool: which fingerprints are listed."""
    return positions_in(listed, fp) >= 0


def _merged(old: np.ndarray, new: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct fingerprints of both in their order, and the number of each of the old and of the new."""
    both = np.concatenate([old, new])
    first, inverse = unique_fingerprints(both)
    return rows_at(both, first), inverse


def _words(user: np.ndarray, item: np.ndarray) -> np.ndarray:
    return (user.astype(np.uint64) << np.uint64(32)) | item.astype(np.uint64)


def _next_ranks(
    words: np.ndarray,
    used: np.ndarray,
    user_fp: np.ndarray,
    item_fp: np.ndarray,
    sample_key: bytes,
    max_items: int,
) -> np.ndarray:
    """Rank of every new pair, 0 where its user has none left. (pairs,) int32."""
    user, item = (words >> np.uint64(32)).astype(np.int64), (words & _LOW).astype(np.int64)
    bits = pair_bits(sample_key, user_fp, item_fp, user, item)
    order = np.lexsort((item, bits[:, 1], bits[:, 0], user))
    counts = np.bincount(user, minlength=len(used))
    counts = counts[counts > 0]
    position = np.empty(len(words), np.int64)
    position[order] = segment_rows(np.zeros(len(counts), np.int64), counts)
    rank = used[user] + 1 + position
    return np.where(rank <= max_items, rank, 0).astype(np.int32)


def _binary(array: pa.Array) -> pa.Array:
    plain = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
    return plain.cast(pa.large_binary())
