"""What a series remembers between nights, all of it private but what is released.

Users' open pairs with the rank in which each came, how many ranks every user has used, and the accumulators of every
item that was ever in somebody's sample and is not released. An erased user keeps its row, without pairs: who comes
back finds the ranks that are used. Nothing here is ever recomputed: a night only adds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpbeam.kernels.canonical import METADATA_KEY, Kinds
from dpbeam.kernels.columns import Columns
from dpbeam.kernels.pairs import (
    Block,
    PairKeys,
    kinds_column,
    offsets_of,
    rows_at,
    segment_rows,
    unique_fingerprints,
)
from dpbeam.kernels.shards import Shard
from dpbeam.randomness import fingerprints, pair_bits
from dpbeam.series.program import RANK

#: Accumulators of an open item, as `GsuProgram` keeps them.
ACCUMULATORS = {"z": np.float64, "y": np.float64, "a": np.float64, "score": np.uint16}
_LOW = np.uint64(0xFFFFFFFF)


@dataclass(frozen=True)
class SeriesState:
    """After some nights.

    Attributes:
      night: nights that were made; rounds: rounds that were made.
      user_fp: (users, 2) uint64, ascending; used: (users,) int32 ranks that each has used.
      offsets: (users + 1,) int64; links: (pairs,) int32 into the open items, ascending within a user.
      ranks: (pairs,) int32, from 1.
      item_fp: (items, 2) uint64 of open items, ascending; items: their canonical bytes.
      accumulators: name -> (items,).
      released_fp: (released, 2), ascending; released: canonical bytes; released_night: (released,) int32;
        released_count: (released,) int64 noisy counts, 0 in a series without them.
      kinds: what canonical bytes of users and items stand for; empty before the first pairs.
    """

    night: int
    rounds: int
    user_fp: np.ndarray
    used: np.ndarray
    offsets: np.ndarray
    links: np.ndarray
    ranks: np.ndarray
    item_fp: np.ndarray
    items: pa.Array
    accumulators: dict[str, np.ndarray]
    released_fp: np.ndarray
    released: pa.Array
    released_night: np.ndarray
    released_count: np.ndarray
    kinds: bytes = b""

    @classmethod
    def empty(cls) -> SeriesState:
        none, nobody = pa.array([], pa.large_binary()), np.zeros((0, 2), np.uint64)
        return cls(
            night=0,
            rounds=0,
            user_fp=nobody,
            used=np.zeros(0, np.int32),
            offsets=np.zeros(1, np.int64),
            links=np.zeros(0, np.int32),
            ranks=np.zeros(0, np.int32),
            item_fp=nobody,
            items=none,
            accumulators={name: np.zeros(0, kind) for name, kind in ACCUMULATORS.items()},
            released_fp=nobody,
            released=none,
            released_night=np.zeros(0, np.int32),
            released_count=np.zeros(0, np.int64),
        )

    def to_columns(self) -> Columns:
        """For `dpbeam.kernels.columns.encode`."""
        return {
            "made": np.array([self.night, self.rounds], np.int64),
            "kinds": kinds_column(self.kinds),
            **{name: getattr(self, name) for name in _ARRAYS},
            **{f"accumulators.{name}": self.accumulators[name] for name in ACCUMULATORS},
        }

    @classmethod
    def from_columns(cls, columns: Columns) -> SeriesState:
        """Inverse of `to_columns`; states from before there were counts have none."""
        columns = {"released_count": np.zeros(len(columns["released"]), np.int64), **columns}
        return cls(
            night=int(columns["made"][0]),
            rounds=int(columns["made"][1]),
            kinds=columns["kinds"][0].as_py(),
            accumulators={name: columns[f"accumulators.{name}"] for name in ACCUMULATORS},
            **{name: columns[name] for name in _ARRAYS},
        )

    def released_until(self, night: int) -> tuple[pa.Array, np.ndarray, np.ndarray]:
        """Items that were released up to a night, in the order of nights and of their bytes; night and noisy count of
        each.
        """
        order = np.asarray(pc.array_sort_indices(self.released))
        order = order[np.argsort(self.released_night[order], kind="stable")]
        order = order[self.released_night[order] <= night]
        return self.released.take(pa.array(order)), self.released_night[order], self.released_count[order]

    def block(self) -> Block:
        """All users with their open pairs."""
        return Block(
            id=0,
            offsets=self.offsets,
            links=self.links,
            shard_offsets=np.array([0, len(self.item_fp)]),
            identity=self.item_fp,
            user_fp=self.user_fp,
            pair_values={RANK: self.ranks},
        )

    def shard(self) -> Shard:
        """All open items with their accumulators."""
        count = len(self.item_fp)
        return Shard(
            id=0,
            fp=self.item_fp,
            block_ids=np.zeros(1, np.int64),
            slot_offsets=np.array([0, count]),
            slots=np.arange(count, dtype=np.int32),
            state={
                **self.accumulators,
                "released": np.zeros(count, bool),
                "weight": np.zeros(count, np.int64),
            },
            items=self.items,
        )

    def without(self, users: pa.Array, keys: PairKeys) -> SeriesState:
        """After an erasure: these users (canonical bytes) give no weight any more.

        Items stay candidates and keep what was added to them; the ranks that the users have used stay used. Users
        who are not here change nothing, and nobody is told who was.
        """
        if not len(users):
            return self
        gone = _among(self.user_fp, fingerprints(keys.user, pc.unique(users)))
        keep = ~np.repeat(gone, np.diff(self.offsets))
        return replace(
            self, offsets=_kept_pairs(self.offsets, keep), links=self.links[keep], ranks=self.ranks[keep]
        )

    def arrived(
        self, users: pa.Array, items: pa.Array, keys: PairKeys, max_items: int
    ) -> tuple[SeriesState, np.ndarray]:
        """After the pairs of a night came in.

        A user's new items take the ranks that follow those it has used, in the order of PRF(user, item), until D0 are
        used; what comes later is left out for good. Items that are released take no rank.

        Args:
          users, items: (n,) canonical bytes, without nulls; pairs may repeat.

        Returns:
          The state, with zero accumulators for new items, and (items,) bool, which items are new.
        """
        if not len(users):
            return self, np.zeros(len(self.item_fp), bool)
        released = _among(found_items := fingerprints(keys.item, items), self.released_fp)
        open_rows = np.flatnonzero(~released)
        user_fp = rows_at(fingerprints(keys.user, users), open_rows)
        new_fp = rows_at(found_items, open_rows)
        all_users, user = _merged(self.user_fp, user_fp)
        all_items, item = _merged(self.item_fp, new_fp)
        old = _words(np.repeat(user[: len(self.user_fp)], np.diff(self.offsets)), item[self.links])
        words, first = np.unique(
            _words(user[len(self.user_fp) :], item[len(self.item_fp) :]), return_index=True
        )
        fresh = ~np.isin(words, old, assume_unique=True)
        words, first = words[fresh], first[fresh]
        used = np.zeros(len(all_users), np.int32)
        used[user[: len(self.user_fp)]] = self.used
        rank = _next_ranks(words, used, all_users, all_items, keys.sample, max_items)
        words, first, rank = words[rank > 0], first[rank > 0], rank[rank > 0]
        np.maximum.at(used, (words >> np.uint64(32)).astype(np.int64), rank)
        return self._with(words, rank, old, used, (all_users, all_items, item), items, open_rows[first])

    def _with(
        self,
        words: np.ndarray,
        rank: np.ndarray,
        old: np.ndarray,
        used: np.ndarray,
        numbers: tuple[np.ndarray, np.ndarray, np.ndarray],
        items: pa.Array,
        rows: np.ndarray,
    ) -> tuple[SeriesState, np.ndarray]:
        """Merge new pairs into the old; items and users that got no pair are left out again."""
        all_users, all_items, item = numbers
        known = item[: len(self.item_fp)]
        source = np.full(len(all_items), -1, np.int64)  # of a new item: a row of the input that names it
        source[(words & _LOW).astype(np.int64)] = rows
        stays = source >= 0
        stays[known] = True
        new = stays.copy()
        new[known] = False
        place = np.cumsum(stays) - 1
        together = np.concatenate([old, words])
        order = np.argsort(together, kind="stable")
        together = together[order]
        row = (together >> np.uint64(32)).astype(np.int64)
        present = used > 0
        names = pa.concat_arrays([self.items, _binary(items.take(pa.array(source[new])))])
        where = np.empty(int(stays.sum()), np.int64)
        where[place[known]] = np.arange(len(known))
        where[place[new]] = len(known) + np.arange(int(new.sum()))
        accumulators = {}
        for name, kind in ACCUMULATORS.items():
            accumulators[name] = np.zeros(len(where), kind)
            accumulators[name][place[known]] = self.accumulators[name]
        state = replace(
            self,
            user_fp=rows_at(all_users, np.flatnonzero(present)),
            used=used[present],
            offsets=offsets_of((np.cumsum(present) - 1)[row], int(present.sum())),
            links=place[(together & _LOW).astype(np.int64)].astype(np.int32),
            ranks=np.concatenate([self.ranks, rank])[order].astype(np.int32),
            item_fp=rows_at(all_items, np.flatnonzero(stays)),
            items=names.take(pa.array(where)),
            accumulators=accumulators,
        )
        return state, new[stays]

    def after(self, shard: Shard, night: int, rounds: int, noisy: np.ndarray | None = None) -> SeriesState:
        """After a night: what it released is out, with its pairs; the others keep their accumulators.

        Args:
          noisy: (items,) int64 noisy counts, of which those of released items are kept.
        """
        out = shard.state["released"]
        stays = np.flatnonzero(~out)
        place = np.cumsum(~out) - 1
        keep = ~out[self.links]
        released_fp = np.concatenate([self.released_fp, rows_at(self.item_fp, np.flatnonzero(out))])
        released = pa.concat_arrays([self.released, self.items.filter(pa.array(out))])
        nights = np.concatenate([self.released_night, np.full(int(out.sum()), night, np.int32)])
        noisy = np.zeros(len(out), np.int64) if noisy is None else noisy
        counts = np.concatenate([self.released_count, noisy[out]])
        order, _ = unique_fingerprints(released_fp)
        return replace(
            self,
            night=night,
            rounds=rounds,
            offsets=_kept_pairs(self.offsets, keep),
            links=place[self.links[keep]].astype(np.int32),
            ranks=self.ranks[keep],
            item_fp=rows_at(self.item_fp, stays),
            items=self.items.take(pa.array(stays)),
            accumulators={name: shard.state[name][stays] for name in ACCUMULATORS},
            released_fp=rows_at(released_fp, order),
            released=released.take(pa.array(order)),
            released_night=nights[order],
            released_count=counts[order],
        )


def kinds_of(metadata: bytes) -> Kinds:
    """The kinds that `SeriesState.kinds` stands for."""
    return Kinds.of(pa.schema([], metadata={METADATA_KEY: metadata}))


_ARRAYS = (
    *("user_fp", "used", "offsets", "links", "ranks", "item_fp", "items"),
    *("released_fp", "released", "released_night", "released_count"),
)


def input_fingerprint(users: pa.Array, items: pa.Array, keys: PairKeys) -> Iterable[bytes]:
    """The distinct pairs of an input in an order of their own, for a keyed digest."""
    if len(users):
        user, item = fingerprints(keys.user, users), fingerprints(keys.item, items)
        pairs = np.unique(np.concatenate([user, item], axis=1), axis=0)
        yield np.ascontiguousarray(pairs).tobytes()


def _among(fp: np.ndarray, listed: np.ndarray) -> np.ndarray:
    """(n,) bool: which fingerprints are listed."""
    if not len(fp) or not len(listed):
        return np.zeros(len(fp), bool)
    first, inverse = unique_fingerprints(np.concatenate([listed, fp]))
    is_listed = np.zeros(len(first), bool)
    is_listed[inverse[: len(listed)]] = True
    return is_listed[inverse[len(listed) :]]


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
    bits = pair_bits(sample_key, rows_at(user_fp, user), rows_at(item_fp, item))
    order = np.lexsort((item, bits[:, 1], bits[:, 0], user))
    counts = np.bincount(user, minlength=len(used))
    counts = counts[counts > 0]
    position = np.empty(len(words), np.int64)
    if len(words):
        position[order] = segment_rows(np.zeros(len(counts), np.int64), counts)
    rank = used[user] + 1 + position
    return np.where(rank <= max_items, rank, 0).astype(np.int32)


def _kept_pairs(offsets: np.ndarray, keep: np.ndarray) -> np.ndarray:
    """The users' offsets when only these pairs are left."""
    return np.concatenate(([0], np.cumsum(keep)))[offsets]


def _binary(array: pa.Array) -> pa.Array:
    plain = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
    return plain.cast(pa.large_binary())
