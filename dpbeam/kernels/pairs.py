"""From raw (user, item) pairs to user blocks: partition, distinct, bottom-D0 sample.

A *block* holds whole users as a CSR matrix: user u holds `links[offsets[u]:offsets[u + 1]]`, indices of the
block's own items. Items are numbered in the order of their keyed fingerprints and item shards are ranges of
fingerprints, so the order of a user's items -- and with it every floating-point sum over them -- is the same
for any number of shards and blocks.

Nothing here merges by a short hash: equality of users and items is equality of 128-bit keyed fingerprints.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from dpbeam.errors import DataError
from dpbeam.kernels.columns import Columns, narrow, pack, pack_words, unpack, unpack_words
from dpbeam.kernels.csr import running_sums, segment_rows
from dpbeam.kernels.kept import KeptItems
from dpbeam.kernels.users import UserRows
from dpbeam.randomness import fingerprints, pair_bits

_MIN_SAMPLED_ROWS = 256  # rows that tell how rare items are in messages
_MAX_BLOCK_IMBALANCE = 1.25  # largest block / mean block, where every user has one row
_MAX_DICTIONARY_RATIO = 8  # length of a dictionary / rows, from which on it is not walked through
_MIN_ROWS_PER_ENTRY = 2  # from which on a block looks its entries up by their known fingerprints
_LOOKED_AT = 1 << 14  # rows that tell whether items are rare
# Rows that share a dictionary: a hash table of more leaves the processor's cache, and takes twice the time a row to
# find a sixth more of the repetitions, where most values are rare.
TABLE_ROWS = 1 << 17
_PAIRS_AT_ONCE = 1 << 16  # of users that are sampled: as many as the cache holds


@dataclass(frozen=True)
class PairKeys:
    """Derived keys of the steps that build blocks, 32 bytes each."""

    user: bytes
    item: bytes
    sample: bytes


_VALUES = ("state", "user_values", "pair_values")


@dataclass
class Block:
    """Whole users and their distinct items.

    Attributes:
      id: the block's number, unique in the run.
      offsets: (users + 1,) int64.
      links: (pairs,) int32 indices of `items`, ascending within a user.
      shard_offsets: (shards + 1,) int64; items of shard s are shard_offsets[s]:shard_offsets[s + 1].
      identity: `item_fp`, or what finds it: few programs look at it after the first trip.
      user_fp: (users, 2) uint64.
      items: the items' canonical bytes, or the numbers under which they are kept, int64; None once the block is
        reloaded from its file.
      kinds: what the canonical bytes of users and items stand for (opaque here); one value in the whole run.
      state: arrays that the program keeps between trips.
      user_values: name -> (users,) array, what the input says of each user.
      pair_values: name -> (pairs,) array, what the input says of each pair.
      broadcast: what the hub last said; set by the engine, not stored with the block.
      scratch: what a program keeps of it in memory from trip to trip, and makes anew where it is None; not stored.
    """

    id: int
    offsets: np.ndarray
    links: np.ndarray
    shard_offsets: np.ndarray
    identity: np.ndarray | Callable[[], np.ndarray]
    user_fp: np.ndarray
    items: pa.Array | None = None
    kinds: bytes = b""
    state: Columns = field(default_factory=dict)
    user_values: Columns = field(default_factory=dict)
    pair_values: Columns = field(default_factory=dict)
    broadcast: Columns = field(default_factory=dict)
    scratch: Any = field(default=None, init=False)  # a copy made by `replace` has none

    @classmethod
    def unread(cls, number: int) -> Block:
        """A block of which nothing is known but its number."""
        none = np.zeros(1, np.int64)
        fp = np.zeros((0, 2), np.uint64)
        return cls(number, none, np.zeros(0, np.int32), none, fp, fp)

    @property
    def item_fp(self) -> np.ndarray:
        """(items, 2) uint64 fingerprints of the items, lexicographically ascending."""
        if callable(self.identity):
            self.identity = self.identity()
        return self.identity

    @property
    def degrees(self) -> np.ndarray:
        """(users,) number of items per user."""
        return np.diff(self.offsets)

    @property
    def num_items(self) -> int:
        """How many distinct items its users hold."""
        return int(self.shard_offsets[-1])

    def to_columns(self, *, with_items: bool = True, with_identity: bool = True) -> Columns:
        """Columns of its message; without the items, or what tells users and items apart, where none needs them."""
        columns: Columns = {
            "id": np.array([self.id], np.int64),
            "degrees": narrow(self.degrees),
            **pack_words("links", self.links),
            "shard_offsets": self.shard_offsets,
            "user_fp": self.user_fp,
            "kinds": kinds_column(self.kinds),
        }
        if with_identity:
            columns["item_fp"] = self.item_fp
        if with_items and self.items is not None:
            columns["items"] = self.items
        for prefix in _VALUES:
            columns.update({f"{prefix}.{name}": v for name, v in getattr(self, prefix).items()})
        return columns

    @classmethod
    def from_columns(cls, columns: Columns, identity: Callable[[], np.ndarray] | None = None) -> Block:
        """Inverse of `to_columns`; `identity` finds `item_fp` where the columns lack it."""
        known = columns.get("item_fp", identity)
        if known is None:
            raise KeyError("item_fp")
        values = {
            prefix: {n[len(prefix) + 1 :]: v for n, v in columns.items() if n.startswith(f"{prefix}.")}
            for prefix in _VALUES
        }
        return cls(
            id=int(columns["id"][0]),
            offsets=running_sums(columns["degrees"]),
            links=unpack_words("links", columns, np.int32),
            shard_offsets=columns["shard_offsets"],
            identity=known,
            user_fp=columns["user_fp"],
            items=columns.get("items"),
            kinds=columns["kinds"][0].as_py(),
            **values,
        )


def kinds_column(kinds: bytes) -> pa.Array:
    """The kinds as a column of a message."""
    return pa.array([kinds], pa.large_binary())


def common_kinds(messages: Iterable[Columns]) -> bytes:
    """The kinds of all messages.

    Raises:
      InputError: they differ; canonical bytes of a string and of an integer may be equal, so mixing would merge
        different users or items.
    """
    return one_kind(message["kinds"][0].as_py() for message in messages)


def one_kind(kinds: Iterable[bytes]) -> bytes:
    """The one value of all kinds; empty if there are none. Raises InputError as `common_kinds`."""
    distinct = set(kinds)
    if len(distinct) > 1:
        raise DataError(
            "user or item ids mix types (strings, integers, bytes, dates, timestamps, decimals, UUIDs) across the "
            "input; convert them to one type"
        )
    return distinct.pop() if distinct else b""


def range_bucket(fingerprint: np.ndarray, buckets: int) -> np.ndarray:
    """Bucket of each fingerprint: equal ranges of its leading 32 bits, so order is kept. (n,) int64."""
    return ((fingerprint[:, 0] >> np.uint64(32)) * np.uint64(buckets) >> np.uint64(32)).astype(np.int64)


def argsort_fingerprints(fp: np.ndarray) -> np.ndarray:
    """Indices that sort (n, 2) fingerprints lexicographically."""
    return _sort_and_mark(fp)[0]


def unique_fingerprints(fp: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Row of one occurrence of each distinct fingerprint, in fingerprint order, and the inverse.

    Returns:
      first: (distinct,) int64 row numbers; inverse: (n,) int32, if that holds n, with fp[i] == fp[first[inverse[i]]].
    """
    first, inverse, _ = distinct_fingerprints(fp)
    return first, inverse


def distinct_fingerprints(fp: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`unique_fingerprints`, and the distinct fingerprints themselves, ascending."""
    return distinct_in_parts([fp])


def distinct_in_parts(parts: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`distinct_fingerprints` of all parts, one after another. Empties the list: most of a shard's memory is made here.

    The parts are joined here, since before Python 3.11 a caller keeps what it passes until the call returns.
    """
    fp = parts[0] if len(parts) == 1 else np.concatenate(parts)
    parts.clear()
    order, new, ordered = _sort_and_mark(fp)
    del fp
    distinct = _rows_where(ordered, new)
    del ordered
    numbers = _numbers(order, new)
    return np.compress(new, order), numbers, distinct


def positions_in(listed: np.ndarray, fp: np.ndarray) -> np.ndarray:
    """Where each fingerprint stands in a list of distinct ones, -1 where it does not.

    Args:
      listed: (d, 2) uint64, distinct; fp: (n, 2) uint64.

    Returns:
      (n,) int64.
    """
    d = len(listed)
    if not d or not len(fp):
        return np.full(len(fp), -1)
    first, inverse = unique_fingerprints(np.concatenate([listed, fp]))
    place = np.full(len(first), -1)
    place[inverse[:d]] = np.arange(d)
    return place[inverse[d:]]


def _numbers(order: np.ndarray, new: np.ndarray) -> np.ndarray:
    """(n,) int32, if that holds n: of each row the number of its value; `new` says where in `order` one begins."""
    ordered: np.ndarray = np.cumsum(new, dtype=np.int32 if len(new) < 1 << 31 else np.int64)
    ordered -= 1
    numbers = np.empty_like(ordered)
    numbers[order] = ordered
    return numbers


def _sort_and_mark(fp: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sorting order of fingerprints; where in that order a new one begins; and they themselves in that order.

    Equal ones keep their order.

    One sort of words that hold the leading varying bits and the row (a few ns a row: numpy sorts words by vector
    instructions, and sorts indices ten times slower), then an exact sort of the rare runs that agree in these bits and
    differ elsewhere.
    """
    n = len(fp)
    if n < 256:
        order = np.lexsort((fp[:, 1], fp[:, 0]))
        ordered = rows_at(fp, order)
        return order, _begins(ordered), ordered
    high = fp[:, 0]
    low_end = high.min()
    span = int(high.max() - low_end)
    order, prefix = _sort_words(high - low_end, span.bit_length())
    new_prefix = _begins(prefix)
    del prefix
    ordered = rows_at(fp, order)
    if new_prefix.all():
        return order, new_prefix, ordered
    new = _begins(ordered)
    mixed = np.flatnonzero(new & ~new_prefix)
    if len(mixed):
        begins = np.append(np.flatnonzero(new_prefix), n)
        run = np.unique(np.searchsorted(begins, mixed, side="right") - 1)
        lengths = begins[run + 1] - begins[run]
        rows = segment_rows(begins[run], lengths)
        members = order[rows]
        order[rows] = members[np.lexsort((fp[members, 1], fp[members, 0], np.repeat(run, lengths)))]
        ordered[rows] = rows_at(fp, order[rows])
        new = _begins(ordered)
    return order, new, ordered


def _sort_words(words: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Order of words by as many of their leading bits as the row numbers leave room for, and these bits.

    Args:
      words: (n,) uint64 below 2^bits; overwritten.

    Returns:
      order: (n,) int64, rows of equal bits ascending; leading: (n,) uint64 in that order.
    """
    width = _bits_below(len(words))
    if bits + width > 64:
        words >>= np.uint64(bits + width - 64)
    words <<= np.uint64(width)
    words |= np.arange(len(words), dtype=np.uint64)
    words.sort()  # runs that ascend too are faster sorted anew than merged
    order = (words & np.uint64((1 << width) - 1)).view(np.int64)
    words >>= np.uint64(width)
    return order, words


def _bits_below(count: int) -> int:
    """Bits that hold the integers below `count`; at least one."""
    return max(count - 1, 1).bit_length()


def _distinct_words(words: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Distinct words (n,) uint64 below 2^bits, ascending, and the first row of each; overwrites them."""
    if bits + _bits_below(len(words)) > 64:  # no room for the row
        return np.unique(words, return_index=True)
    order, ordered = _sort_words(words, bits)
    new = np.flatnonzero(_begins(ordered))
    return ordered.take(new), order.take(new)


def rows_at(pairs: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """pairs[rows] of an (n, 2) array; eight times as fast.

    Columns too are taken, not indexed: by scattered rows or by a mask that changes often, in a third of the time.
    """
    return pairs.take(rows, axis=0)


def _rows_where(pairs: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """pairs[mask] of an (n, 2) array."""
    return pairs if mask.all() else rows_at(pairs, np.flatnonzero(mask))


def _begins(ordered: np.ndarray) -> np.ndarray:
    """(n,) bool: where a run of equal words, or of equal rows of two words, begins."""
    new = np.ones(len(ordered), bool)
    differs = ordered[1:] != ordered[:-1]
    new[1:] = differs if differs.ndim == 1 else differs.view(np.uint16)[:, 0]
    return new


def partition_pairs(
    users: pa.Array | UserRows,
    items: pa.Array,
    keys: PairKeys,
    num_blocks: int,
    cap: int,
    kinds: bytes = b"",
    *,
    group: int = 1,
    kept: KeptItems | None = None,
) -> Iterator[tuple[int, Columns]]:
    """Split pairs by user block, ready for the shuffle.

    Rows are sorted by user, so a user's fingerprint travels once per batch; where most users have one row, blocks sort
    them. A user with more than `cap` rows in this batch is cut to its bottom-`cap` distinct items here already, so
    that a single huge user never travels whole; `build_block` completes the sample.

    Args:
      users, items: (n,) canonical bytes, no nulls; both may be dictionary-encoded, users may be fingerprints already.
      cap: items kept per user.
      group: split by groups of this many blocks instead, for `partition_again`.
      kept: keeps the items, for messages that stay in this process: they hold numbers and fingerprints in their place.

    Yields:
      (block or group, columns): user_fp (users, 2) uint64; rows (users,) pairs of each user, left out where a user is
      named for each pair, in any order; item (pairs,) index of dictionary, left out where pair i has entry i;
      dictionary (binary); cut (1,) how many rows of its users were cut away, if any; kinds. Where items are `kept`, in
      place of the dictionary its entries' numbers, entry (m,) from first (1,) on, and item_fp (m, 2) uint64.
    """
    if len(users):
        index, dictionary = encode_dictionary(items, kept=kept is not None)
        rows = users if isinstance(users, UserRows) else UserRows.of(users, keys.user)
        table: pa.Array | _Entries = dictionary
        if kept is not None:
            if len(dictionary) > len(index):  # rows of a longer table
                index, entries = _compact(index, len(dictionary))
                dictionary = dictionary.take(pa.array(entries))
            table = _Entries(fingerprints(keys.item, dictionary), kept.keep(dictionary))
        yield from _partition(rows, index, table, keys, num_blocks, cap, kinds, group)


def partition_again(
    messages: Sequence[Columns], keys: PairKeys, num_blocks: int, cap: int
) -> Iterator[tuple[int, Columns]]:
    """Split messages of `partition_pairs` to groups by block; any subset at a time. Yields as it does."""
    if messages:
        rows = UserRows(
            np.concatenate([message["user_fp"] for message in messages]), lengths=_pairs_of(messages)
        )
        index, dictionary = _joined_dictionaries(messages)
        distinct, dictionary = encode_dictionary(dictionary.dictionary_encode())
        cut = sum(map(_cut_from, messages))
        for block, message in _partition(
            rows,
            distinct if index is None else distinct.take(index),
            dictionary,
            keys,
            num_blocks,
            cap,
            common_kinds(messages),
            1,
        ):
            # Of which block they were is not known, and does not matter: their number over all blocks does.
            if cut:
                message["cut"], cut = np.array([cut + _cut_from(message)], np.int64), 0
            yield block, message


def _pairs_of(messages: Sequence[Columns]) -> np.ndarray | None:
    """(users,) pairs of each user that messages name, in their order; None: one each."""
    if not any("rows" in message for message in messages):
        return None
    rows = [message.get("rows", np.ones(len(message["user_fp"]), np.uint8)) for message in messages]
    return np.concatenate(rows).astype(np.int64)


def _partition(
    rows: UserRows,
    index: np.ndarray,
    table: pa.Array | _Entries,
    keys: PairKeys,
    num_blocks: int,
    cap: int,
    kinds: bytes,
    group: int,
) -> Iterator[tuple[int, Columns]]:
    most = _MIN_ROWS_PER_ENTRY * len(table) - 1 if isinstance(table, _Entries) else len(table)
    rare = len(table) <= len(index) <= most
    if rare and rows.mostly_single:
        bucket = range_bucket(rows.fp, num_blocks) // group
        sizes = np.bincount(bucket)
        if len(sizes) * sizes.max() <= _MAX_BLOCK_IMBALANCE * len(
            bucket
        ):  # else one user may have the rows of many
            yield from _partition_single(rows.fp, index, table, bucket, sizes, kinds)
            return
    order, offsets, user_fp = _by_user(rows)
    came = offsets
    item = index.take(order)
    heavy = np.flatnonzero(np.diff(offsets) > cap)
    if len(heavy):
        item_fp = table.fp if isinstance(table, _Entries) else fingerprints(keys.item, table)
        keep = _cap_heavy(offsets, user_fp, heavy, item, item_fp, keys, cap)
        offsets = running_sums(keep).take(offsets)
        item = np.compress(keep, item)
    bucket = range_bucket(user_fp, num_blocks) // group
    bounds = [0, *(np.flatnonzero(bucket[1:] != bucket[:-1]) + 1).tolist(), len(bucket)]
    for start, stop in itertools.pairwise(bounds):
        items = _columns_of_items(item[offsets[start] : offsets[stop]], table, rare=rare)
        cut = int(came[stop] - came[start] - offsets[stop] + offsets[start])
        yield (
            int(bucket[start]),
            {
                "user_fp": user_fp[start:stop].copy(),  # a view would hold those of all blocks
                "rows": narrow(np.diff(offsets[start : stop + 1])),
                **items,
                **_columns_of_table(table),
                **({"cut": np.array([cut], np.int64)} if cut else {}),
                "kinds": kinds_column(kinds),
            },
        )


def _partition_single(
    user_fp: np.ndarray,
    index: np.ndarray,
    table: pa.Array | _Entries,
    bucket: np.ndarray,
    sizes: np.ndarray,
    kinds: bytes,
) -> Iterator[tuple[int, Columns]]:
    """As `_partition`, where most users have one row: each row has its user, and blocks sort them.

    Args:
      bucket: (n,) the block or group of each row; sizes: rows of each.
    """
    places = narrow(bucket)  # sorted in a third of the time of words
    ordered: list[tuple[list[int], Columns]] = []
    for start in range(0, len(places), TABLE_ROWS):  # what these rows and entries take stays in the cache
        part = places[start : start + TABLE_ROWS]
        rows = np.argsort(part, kind="stable") + start
        columns = {"user_fp": rows_at(user_fp, rows), **_columns_of_items(index.take(rows), table, rare=True)}
        ordered.append((running_sums(np.bincount(part, minlength=len(sizes))).tolist(), columns))
    for block in np.flatnonzero(sizes).tolist():
        pieces = [{n: c[b[block] : b[block + 1]] for n, c in columns.items()} for b, columns in ordered]
        yield block, {**_concatenated(pieces), **_columns_of_table(table), "kinds": kinds_column(kinds)}


def pack_pairs(message: Columns) -> Columns:
    """A message of `partition_pairs` in fewer bytes; all bits of the fingerprints stay.

    Where they ascend, the first halves travel as steps, of 6 bytes in place of 8 where 10,000 users share a message.
    """
    if "rows" not in message:
        return message
    columns = dict(message)
    fp = np.asarray(columns.pop("user_fp"))
    columns["user.first"] = fp[:1, 0].copy()
    columns.update(pack_words("user.steps", np.diff(fp[:, 0], prepend=fp[:1, 0])))
    columns["user.second"] = fp[:, 1].copy()
    columns.update(pack("rows", np.asarray(columns.pop("rows")), 1))
    return columns


def unpack_pairs(columns: Columns) -> Columns:
    """Inverse of `pack_pairs`."""
    if "user_fp" in columns:
        return columns
    second = columns["user.second"]
    fp = np.empty((len(second), 2), np.uint64)
    steps = unpack_words("user.steps", columns, np.uint64)
    steps[:1] = columns["user.first"]
    np.cumsum(steps, out=fp[:, 0])
    fp[:, 1] = second
    rest: Columns = {name: columns[name] for name in ("dictionary", "kinds", "cut") if name in columns}
    if "item" in columns:
        rest["item"] = np.array(columns["item"])  # a view would hold the whole message
    return {"user_fp": fp, "rows": unpack("rows", columns, np.int32, 1), **rest}


def _by_user(rows: UserRows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows in the order of their users' fingerprints, a user's own as they were.

    Returns:
      order: (n,) int64; offsets: (users + 1,) int64 into it; user_fp: (users, 2).
    """
    order, new, ordered = _sort_and_mark(rows.fp)
    if rows.entry is None:
        user_fp = _rows_where(ordered, new)
        starts = np.flatnonzero(new)
    else:
        number = _numbers(order, new)
        distinct_fp = _rows_where(ordered, new)
        words = number.take(rows.entry).astype(np.uint64)
        order, ranked = _sort_words(words, _bits_below(len(distinct_fp)))
        starts = np.flatnonzero(_begins(ranked))
        user_fp = rows_at(distinct_fp, ranked.take(starts).view(np.int64))
    if rows.lengths is None:
        return order, np.append(starts, len(order)), user_fp
    lengths = rows.lengths.take(order)
    ends = np.cumsum(lengths)
    begins = np.cumsum(rows.lengths) - rows.lengths
    offsets = np.append((ends - lengths)[starts], ends[-1])
    return segment_rows(begins.take(order), lengths), offsets, user_fp


def encode_dictionary(items: pa.Array, *, kept: bool = False) -> tuple[np.ndarray, pa.Array]:
    """Dictionary indices (int32) and values (large_binary) of an array without nulls; `kept`: see `as_dictionary`."""
    items = as_dictionary(items, kept=kept)
    dictionary = items.dictionary
    if pa.types.is_string(dictionary.type) or pa.types.is_large_string(dictionary.type):
        dictionary = dictionary.cast(pa.large_string())
    return items.indices.to_numpy(), dictionary.cast(pa.large_binary())


def as_dictionary(items: pa.Array, *, kept: bool = False) -> pa.DictionaryArray:
    """An array without nulls as a dictionary that has a value once for TABLE_ROWS rows; a dictionary as it is.

    Args:
      kept: entries stay in this process: where most would be of one row alone, each row has an entry of its own.
    """
    if isinstance(items, pa.ChunkedArray):
        items = items.combine_chunks()
    if pa.types.is_dictionary(items.type):
        return items
    if kept and _are_rare(items, _LOOKED_AT, 1 / 3):
        return entries_of_rows(items)
    starts = range(0, max(len(items), 1), TABLE_ROWS)
    return join_dictionaries([items.slice(start, TABLE_ROWS).dictionary_encode() for start in starts])


def entries_of_rows(items: pa.Array) -> pa.DictionaryArray:
    """An array without nulls as a dictionary in which each row has an entry of its own."""
    return pa.DictionaryArray.from_arrays(pa.array(np.arange(len(items), dtype=np.int32)), items)


def are_rare_in_messages(items: pa.Array, messages: int) -> bool:
    """Whether the rows of a table that one of so many messages has are mostly of different items."""
    return _are_rare(items, max(TABLE_ROWS // messages, _MIN_SAMPLED_ROWS), 0.7)


def _are_rare(items: pa.Array, rows: int, share: float) -> bool:
    """Whether of so many rows, the first, more than this share are of different items."""
    seen = items.slice(0, rows)
    return len(seen.dictionary_encode().dictionary) > share * len(seen)


def join_dictionaries(parts: Sequence[pa.DictionaryArray]) -> pa.DictionaryArray:
    """One array without nulls of several of one type, with the entries of all dictionaries."""
    if len(parts) == 1:
        return parts[0]
    index, dictionary = _concat_dictionaries(
        [(part.indices.to_numpy(), part.dictionary) for part in parts], np.int32
    )
    return pa.DictionaryArray.from_arrays(pa.array(index), dictionary)


@dataclass(frozen=True)
class _Entries:
    """Items that are kept: their fingerprints, (n, 2) uint64, and the number of the first."""

    fp: np.ndarray
    first: int

    def __len__(self) -> int:
        return len(self.fp)


def _columns_of_items(index: np.ndarray, table: pa.Array | _Entries, *, rare: bool) -> Columns:
    """A message's columns about its items, from the table's rows that its pairs have.

    Args:
      rare: most of the table's rows are of one pair: to send some twice takes less than to look for them.
    """
    local, entries = (None, index) if rare else _compact(index, len(table))
    columns: Columns = {} if local is None else {"item": local}
    if isinstance(table, _Entries):
        return {**columns, "entry": entries, "item_fp": rows_at(table.fp, entries)}
    return {**columns, "dictionary": table.take(pa.array(entries))}


def _columns_of_table(table: pa.Array | _Entries) -> Columns:
    """What a message says of the whole table."""
    return {"first": np.array([table.first])} if isinstance(table, _Entries) else {}


def _concatenated(pieces: Sequence[Columns]) -> Columns:
    return {
        name: (pa.concat_arrays if isinstance(column, pa.Array) else np.concatenate)(
            [p[name] for p in pieces]
        )
        for name, column in pieces[0].items()
    }


def _compact(index: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """The entries in use of a dictionary of this length, in its order, and for each row its place among them."""
    if len(index) * _MAX_DICTIONARY_RATIO < length:
        # One of many blocks: no step may take as long as the dictionary.
        order, leading = _sort_words(index.astype(np.uint64), _bits_below(length))
        new = _begins(leading)
        return narrow(_numbers(order, new)), index.take(np.compress(new, order))
    used = np.zeros(length, bool)
    used[index] = True
    count = int(np.count_nonzero(used))
    rank = np.cumsum(used, dtype=np.int32) - 1
    kind = np.uint16 if count <= 1 << 16 else np.int32
    return rank.astype(kind).take(index), np.flatnonzero(used)


def _cap_heavy(
    offsets: np.ndarray,
    user_fp: np.ndarray,
    heavy: np.ndarray,
    item: np.ndarray,
    item_fp: np.ndarray,
    keys: PairKeys,
    cap: int,
) -> np.ndarray:
    """Mask of the rows that stay: all of other users, the distinct bottom sample of the heavy ones."""
    keep = np.ones(int(offsets[-1]), bool)
    degrees = np.diff(offsets)
    _, rank, distinct_fp = distinct_fingerprints(item_fp)
    width = np.uint64(_bits_below(len(distinct_fp)))
    for users in _users_at_once(degrees[heavy]):
        some = heavy[users]
        lengths = degrees[some]
        rows = segment_rows(offsets[some], lengths)
        words = np.repeat(np.arange(len(some), dtype=np.uint64) << width, lengths)
        words |= rank.take(item.take(rows)).astype(np.uint64)
        pair, representative = _distinct_words(words, int(width) + len(some).bit_length())
        links = (pair & ((np.uint64(1) << width) - np.uint64(1))).view(np.int64)
        distinct = offsets_of(pair >> width, len(some))
        chosen = bottom_sample(distinct, rows_at(user_fp, some), distinct_fp, links, keys.sample, cap)
        keep[rows] = False
        keep[rows.take(np.compress(chosen, representative))] = True
    return keep


def bottom_sample(
    offsets: np.ndarray,
    user_fp: np.ndarray,
    item_fp: np.ndarray,
    links: np.ndarray,
    sample_key: bytes,
    cap: int,
) -> np.ndarray:
    """Mask of the pairs in each user's sample: the `cap` items with the smallest PRF(user, item).

    That is a uniform sample without replacement, it does not depend on duplicates or order, and partial samples
    merge: the bottom of a union is the bottom of the bottoms. Ties (which a PRF practically never has) go to
    the smaller item fingerprint.

    Args:
      offsets: (users + 1,); links: (pairs,) distinct item indices per user, ascending.

    Returns:
      (pairs,) bool, at most `cap` true per user.
    """
    degrees = np.diff(offsets)
    keep = np.ones(int(offsets[-1]), bool)
    heavy = np.flatnonzero(degrees > cap)
    for users in _users_at_once(degrees[heavy]):
        some = heavy[users]
        lengths = degrees[some]
        rows = segment_rows(offsets[some], lengths)
        user = np.repeat(np.arange(len(some)), lengths)
        bits = pair_bits(sample_key, rows_at(user_fp, some), item_fp, user, links.take(rows))
        # Sort by (user, leading PRF bits) in one word; the cap-th value of a user is its bar.
        width = len(some).bit_length()
        leading = (bits[:, 0] >> np.uint64(width)) | (user.astype(np.uint64) << np.uint64(64 - width))
        ends = np.cumsum(lengths)
        bar = np.sort(leading)[ends - lengths + cap - 1]
        kept = leading <= bar.take(user)
        # Where the leading bits tie at the bar, decide by all bits.
        tied = np.flatnonzero(np.add.reduceat(kept, ends - lengths, dtype=np.int64) > cap)
        for u in tied:
            part = slice(ends[u] - lengths[u], ends[u])
            order = np.lexsort((bits[part, 1], bits[part, 0]))
            kept[part] = False
            kept[part][order[:cap]] = True
        keep[rows] = kept
    return keep


def _users_at_once(lengths: np.ndarray) -> Iterator[slice]:
    """Consecutive users, of `lengths` (users,) pairs, that have about _PAIRS_AT_ONCE together, or one that has more."""
    if len(lengths):
        part = np.cumsum(lengths) // _PAIRS_AT_ONCE
        bounds = [0, *(np.flatnonzero(part[1:] != part[:-1]) + 1).tolist(), len(lengths)]
        yield from itertools.starmap(slice, itertools.pairwise(bounds))


def build_block(
    block_id: int, messages: Iterable[Columns], keys: PairKeys, num_shards: int, cap: int
) -> Block | None:
    """Merge the messages of `partition_pairs` for one block: distinct pairs, bottom-`cap` sample per user.

    The result does not depend on the order of the messages. Returns None for a block without pairs.
    """
    messages = list(messages)
    kinds = common_kinds(messages)
    user_fp = np.concatenate([message["user_fp"] for message in messages])
    _, user, distinct_fp = distinct_fingerprints(user_fp)
    rows = _pairs_of(messages)
    if rows is not None:
        user = np.repeat(user, rows)
    item, entries, entry_fp = _items_of(messages, keys)
    return _assemble(block_id, user, distinct_fp, item, entries, entry_fp, keys, num_shards, cap, kinds)


def _items_of(messages: Sequence[Columns], keys: PairKeys) -> tuple[np.ndarray | None, pa.Array, np.ndarray]:
    """The items of messages: each pair's entry, None where pair i has entry i; the entries and their fingerprints."""
    if "dictionary" in messages[0]:
        item, dictionary = _joined_dictionaries(messages)
        return item, dictionary, fingerprints(keys.item, dictionary)
    numbers = np.concatenate([m["entry"] + m["first"] for m in messages])
    return (
        _joined_items(messages, "entry"),
        pa.array(numbers),
        np.concatenate([m["item_fp"] for m in messages]),
    )


def _joined_dictionaries(messages: Sequence[Columns]) -> tuple[np.ndarray | None, pa.Array]:
    """The entries of messages, and each pair's among them; None where pair i has entry i."""
    dictionary = pa.concat_arrays([message["dictionary"] for message in messages])
    return _joined_items(messages, "dictionary"), dictionary


def pairs_in(message: Columns) -> int:
    """How many pairs a message of `partition_pairs` has."""
    return len(next(message[name] for name in ("item", "entry", "dictionary") if name in message))


def rows_in(message: Columns) -> int:
    """How many rows a message of `partition_pairs` stands for, with those that were cut away."""
    return pairs_in(message) + _cut_from(message)


def _cut_from(message: Columns) -> int:
    return int(message["cut"][0]) if "cut" in message else 0


def _joined_items(messages: Sequence[Columns], entries: str) -> np.ndarray | None:
    """Each pair's entry among those of all messages, of the column `entries`; None where pair i has entry i."""
    if not any("item" in message for message in messages):
        return None
    return _joined_indices([(m.get("item", np.arange(len(m[entries]))), m[entries]) for m in messages])


def build_complete_block(
    block_id: int,
    users: np.ndarray,
    items: pa.Array,
    keys: PairKeys,
    num_shards: int,
    cap: int,
    kinds: bytes = b"",
) -> Block | None:
    """A block from rows whose users are whole by declaration (`users`: int64 ordinals inside the block)."""
    if not len(users):
        return None
    distinct, user = np.unique(users, return_inverse=True)
    # The sampling order of such a user is keyed by (block, ordinal): both are functions of file and position.
    identity = np.empty((len(distinct), 2), np.uint64)
    identity[:, 0] = np.uint64(block_id)
    identity[:, 1] = distinct.astype(np.uint64)
    item, dictionary = encode_dictionary(items)
    entry_fp = fingerprints(keys.item, dictionary)
    return _assemble(block_id, user, identity, item, dictionary, entry_fp, keys, num_shards, cap, kinds)


def _concat_dictionaries(
    parts: Sequence[tuple[np.ndarray, pa.Array]], kind: type[np.signedinteger] = np.int64
) -> tuple[np.ndarray, pa.Array]:
    """Indices of `kind` and all entries, of several indices and dictionaries."""
    return _joined_indices(parts, kind), pa.concat_arrays([dictionary for _, dictionary in parts])


def _joined_indices(
    parts: Sequence[tuple[np.ndarray, Sized]], kind: type[np.signedinteger] = np.int64
) -> np.ndarray:
    """Indices of tables that come one after the other."""
    base = running_sums([len(table) for _, table in parts]).astype(kind)
    return np.concatenate([item.astype(kind) + start for (item, _), start in zip(parts, base)])


def _assemble(
    block_id: int,
    user: np.ndarray,
    user_fp: np.ndarray,
    item: np.ndarray | None,
    entries: pa.Array,
    entry_fp: np.ndarray,
    keys: PairKeys,
    num_shards: int,
    cap: int,
    kinds: bytes,
) -> Block | None:
    if not len(user):
        return None
    first, rank, item_fp = distinct_fingerprints(entry_fp)
    if item is not None:
        rank = rank.take(item)
    offsets, links = _distinct_pairs(user, rank, len(user_fp), len(first))
    keep = bottom_sample(offsets, user_fp, item_fp, links, keys.sample, cap)
    if not keep.all():
        offsets = running_sums(keep).take(offsets)
        links = np.compress(keep, links)
    used = np.zeros(len(item_fp), bool)
    used[links] = True
    if not used.all():
        links = (np.cumsum(used) - 1).take(links)
        item_fp, first = rows_at(item_fp, np.flatnonzero(used)), np.compress(used, first)
    return Block(
        id=block_id,
        offsets=offsets,
        links=links.astype(np.int32),
        shard_offsets=np.searchsorted(range_bucket(item_fp, num_shards), np.arange(num_shards + 1)),
        identity=item_fp,
        user_fp=user_fp,
        items=entries.take(pa.array(first)),
        kinds=kinds,
    )


def _distinct_pairs(
    user: np.ndarray, item: np.ndarray, num_users: int, num_items: int
) -> tuple[np.ndarray, np.ndarray]:
    """The distinct pairs by user, a user's items ascending: offsets (users + 1,) int64, links (pairs,) int32."""
    width = np.uint64(_bits_below(num_items))
    words = user.astype(np.uint64)
    words <<= width
    words |= item.astype(np.uint64)
    words.sort()  # 8 to 17 ns a row, where scipy's sparse matrices take 16 to 37 to bring these in order
    words = np.compress(_begins(words), words)
    offsets = offsets_of(words >> width, num_users)
    words &= (np.uint64(1) << width) - np.uint64(1)
    return offsets, words.astype(np.int32)


def offsets_of(sorted_ids: np.ndarray, count: int) -> np.ndarray:
    """CSR offsets of ids 0..count-1 in a sorted array of 64-bit integers, (count + 1,) int64."""
    counts = np.bincount(sorted_ids.view(np.int64), minlength=count)
    return running_sums(counts)
