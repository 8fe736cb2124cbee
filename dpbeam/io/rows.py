"""From rows of a file to (user, item) pairs: nulls, kinds, UTF-8, lists, tokens, empties; the same for every format.

Readers hand over `Rows`: the raw user and item columns of some rows, and a way to name a row. What is wrong with a
row is decided here, once: an InputError that names file and row, or a drop that is counted. Counts of dropped
rows are exact functions of private data: they go to a `Counts`, never to logs or metrics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpbeam.errors import DataError, InputError, advice
from dpbeam.io.tokens import Tokenizer
from dpbeam.kernels import canonical
from dpbeam.kernels.canonical import Kinds, is_list
from dpbeam.kernels.pair_rules import BAD_ROWS, EMPTY_ITEMS, NULL_ROWS, PairRules, Pairs
from dpbeam.rows.nested import level_missing, type_at

if TYPE_CHECKING:
    from dpbeam.io.formats.base import Piece
    from dpbeam.io.spec import InputSpec

FILTERED_PAGES = "filtered_pages"
#: What to do about text that is no UTF-8.
CONVERT = "convert the file if it has another encoding, as iconv -f CP1252 -t UTF-8 does"
NOT_UTF_8 = f"not valid UTF-8; {CONVERT}"
ROWS_PER_BATCH = 1_000_000
_MAX_UNITS = (1 << 31) - 1


class RowsError(DataError):
    """Rows of the input were lost on the way from a file, or came twice."""


class Counts(Counter):
    """How many rows or items were dropped, by the names above. Private: neither log nor publish.

    Attributes:
      read: rows that readers gave, and those that they dropped themselves.
      stated: rows that the files have of which a reader has read the beginning, as the files say; None: none says it.
    """

    read = 0
    stated: int | None = None

    def state(self, piece: Piece, rows: int) -> None:
        """Take down how many rows a file says it has, once for all its pieces."""
        if piece.start == 0:
            self.stated = (self.stated or 0) + rows

    def add_read(self, batches: Iterator[Rows]) -> Iterator[Rows]:
        """The same batches, whose rows are taken down as read."""
        while True:
            dropped = self[BAD_ROWS]
            rows = next(batches, None)
            self.read += self[BAD_ROWS] - dropped
            if rows is None:
                return
            self.read += len(rows)
            yield rows

    def check_read(self, where: str, read: int = 0, stated: int = 0) -> None:
        """Refuse what gave fewer rows than its files say, or more, once it was read.

        Args:
          where: what it is, for the message; read, stated: what was taken down before it.

        Raises:
          RowsError: never with a number of rows, which is private.
        """
        if self.stated is not None and self.stated - stated != self.read - read:
            raise RowsError(
                f"{where}: not as many rows were read as are stated there; the file may be damaged"
            )


@dataclass
class Rows:
    """Some rows of one file.

    Attributes:
      user: (n,) raw Arrow column, or None where each row is a user.
      items: raw Arrow columns, each (n,): values, or one column of lists of values.
      where: names row i in a message, for example "a.csv:17" or "a.parquet: row 17".
      utf8: whether strings are known to be valid UTF-8.
      path: the file, for messages about a column.
    """

    user: pa.Array | None
    items: list[pa.Array]
    where: Callable[[int], str]
    utf8: bool = False
    path: str = "the input"

    def __len__(self) -> int:
        return len(self.items[0])


class Documents:
    """Texts on their way into Rows of some megabytes, however small each is; all have users, or none."""

    def __init__(self, path: str = "the input"):
        self._path = path
        self._rows: list[tuple[str, bytes, str | None]] = []
        self.size = 0

    def add(self, where: str, text: bytes, user: str | None = None) -> None:
        """One more row; `where` names it in a message."""
        self._rows.append((where, text, user))
        self.size += len(text)

    def take(self) -> Iterator[Rows]:
        """What was gathered, if anything was; begins anew."""
        if not self._rows:
            return
        places, texts, users = zip(*self._rows)
        self._rows, self.size = [], 0
        user = None if users[0] is None else pa.array(users, pa.large_string())
        text = pa.array(texts, pa.large_binary()).view(pa.large_string())
        yield Rows(user, [text], places.__getitem__, path=self._path)


class PairMaker:
    """Turns Rows into Pairs as an InputSpec says."""

    def __init__(self, spec: InputSpec, kinds: Kinds, counts: Counts):
        self._spec = spec
        self._kinds = kinds
        self._counts = counts
        self._tokenizer = Tokenizer(spec) if spec.tokenizer else None
        self._typed = spec.file_format.declares_types

    def __call__(self, rows: Rows) -> Pairs:
        """Pairs of some rows. Raises InputError as `on_null` and `on_bad_row` say."""
        spec, columns = self._spec, rows.items
        row = lost = users = None
        if is_list(columns[0].type):
            lost = columns[0].is_null().to_numpy(zero_copy_only=False)
            row, values = explode(columns[0])
            columns = [values]
        if rows.user is not None:
            users, _ = canonical.encode(rows.user, f"{rows.path}: column '{spec.user_column}'")
        names = spec.item_columns or ("item",)
        items = [canonical.encode(c, f"{rows.path}: column '{name}'")[0] for c, name in zip(columns, names)]
        rules = PairRules(spec.user_column, names, self._kinds, partial(self._refuse, rows), self._counts)
        pairs = rules.pairs(users, items, row=row, lost=lost, num_rows=len(rows), utf8=rows.utf8)
        if self._tokenizer is not None:
            document, tokens, empty = self._tokenizer(canonical.plain(pairs.items))
            pairs.row = document if pairs.row is None else pairs.row[document]
            pairs.items = tokens
            self._counts[EMPTY_ITEMS] += empty
        rules.drop_empty(pairs)
        return pairs

    def _refuse(self, rows: Rows, fault: str, row: int, column: str) -> None:
        """Raise InputError, unless the spec says that such rows are dropped."""
        if fault == BAD_ROWS:
            if self._spec.on_bad_row == "error":
                fix = "write the column in UTF-8 or as bytes" if self._typed else CONVERT
                raise DataError(f"{rows.where(row)}: not valid UTF-8; {fix}")
        elif self._spec.on_null == "error" and (fault == NULL_ROWS or self._tokenizer is None):
            # A tokeniser's empty tokens are no fault of the data.
            what = "null" if fault == NULL_ROWS else "empty item"
            raise DataError(
                f"{rows.where(row)}: {what} in column '{column}'"
                + advice("; pass --on_null=drop to drop such rows")
            )


def refuse_row(spec: InputSpec, where: str, problem: str) -> None:
    """Refuse a bad row of text, unless the spec says that such rows are skipped: but in another encoding all are bad.

    Raises:
      InputError: naming the row.
    """
    if spec.on_bad_row == "error":
        raise DataError(f"{where}: {problem}" + ("" if problem.endswith(NOT_UTF_8) else f"; {spec.fix_row}"))


def column_type(spec: InputSpec, name: str, data_type: pa.DataType, path: str) -> str | None:
    """The type of a column as `canonical` has it; None for the null type, and for columns that are to hold numbers.

    Raises:
      InputError: the spec does not read such a column.
    """
    where, stored = f"{path}: column '{name}'", data_type
    if name in spec.numbers:
        if name in spec.lists:
            if not is_list(stored):
                raise DataError(f"{where} has type {stored}, expected a list of numbers")
            stored = stored.value_type
        if not (pa.types.is_floating(stored) or pa.types.is_integer(stored) or pa.types.is_decimal(stored)):
            raise DataError(f"{where} has type {stored}, expected numbers")
        return None
    if name in spec.lists:
        if is_list(stored):
            stored = stored.value_type
        elif spec.tokenizer is None:
            raise DataError(
                f"{where} has type {stored}, but --input_layout=grouped needs a list column; "
                "use --input_layout=pairs for one item per row"
            )
    elif is_list(stored):
        raise DataError(
            f"{where} is a list column{advice('; pass --input_layout=grouped for one user per row')}"
        )
    kind = canonical.kind_of(stored, where)
    if spec.tokenizer is not None and name in spec.item_columns and kind not in (canonical.STRING, None):
        raise DataError(f"{where} has type {stored}, but --tokenizer needs a string column")
    return canonical.type_of(stored, where)


def schema_types(spec: InputSpec, schema: pa.Schema, path: str) -> tuple[str | None, tuple[str | None, ...]]:
    """Types of the user and item columns of a declared schema; None where they are open, or there is no user column.

    Raises:
      InputError: a column is missing, occurs twice or has a type that is not read.
    """
    held = {name: type_at(schema, name) for name in spec.columns if schema.names.count(name) < 2}
    missing = [name for name in spec.columns if held.get(name) is None]
    if missing:
        nested = [name for name, kind in held.items() if kind is not None and name not in schema.names]
        raise spec.no_columns(path, [*schema.names, *nested], schema.names, level_missing(schema, missing[0]))
    types = {name: column_type(spec, name, kind, path) for name, kind in held.items() if kind is not None}
    user = None if spec.user_column is None else types[spec.user_column]
    return user, tuple(types[name] for name in spec.item_columns)


def check_types(path: str, spec: InputSpec, types: tuple, expected: Kinds) -> None:
    """Refuse a file whose columns have other types than those of the whole input. Raises InputError."""
    user, items = types
    for column, held, wanted in zip((spec.user_column, *spec.item_columns), (user, *items), expected.types):
        if held is not None and held != wanted:
            raise mixed_types(path, column, held, wanted)


def mixed_types(
    path: str, column: str | None, held: str, wanted: str | None, other: str = "other input"
) -> InputError:
    """The error for ids that mix types; `other`: a file that holds the wanted ones."""
    return DataError(
        f"{path}: column '{column}' holds {held} values where {other} holds {wanted} values; "
        "ids must have one type throughout, convert them"
    )


def explode(lists: pa.Array) -> tuple[np.ndarray, pa.Array]:
    """Row (ascending int64) and value of every element of a list column; a null list has no elements."""
    return pc.list_parent_indices(lists).to_numpy().astype(np.int64, copy=False), pc.list_flatten(lists)


def scattered_batches(pairs: Pairs, kinds: Kinds) -> Iterator[pa.RecordBatch]:
    """RecordBatches of columns `user` and `item`, at most ROWS_PER_BATCH rows each."""
    batch = pa.RecordBatch.from_arrays([pairs.users_of_items(), pairs.items], names=["user", "item"])
    batch = batch.replace_schema_metadata(kinds.metadata())
    for start in range(0, batch.num_rows, ROWS_PER_BATCH):
        yield batch.slice(start, ROWS_PER_BATCH)


class BlockMaker:
    """Cuts the users of one work unit into blocks of whole users with about `target_pairs` pairs.

    A block ends with the user that fills it, unless less than half a block would be left: so a block has between
    1/2 and 3/2 of the target, plus one user, if the unit has that many. Where blocks end depends on the users
    alone, not on how rows arrived; a block's number holds those of the unit and of the block in it. Both are the
    same in every retry.

    Args:
      unit: number of the unit, which no other unit of the input has.
    """

    def __init__(self, unit: int, kinds: Kinds, target_pairs: int):
        if target_pairs < 1:
            raise ValueError(f"target_pairs must be at least 1, got {target_pairs}")
        self._unit = unit
        self._metadata = kinds.metadata()
        self._target = target_pairs
        self._ordinal = 0
        self._next_user = 0
        self._users = np.empty(0, np.int64)
        self._items: list[pa.Array] = []

    def add(self, pairs: Pairs) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Take pairs whose rows are users; yield the blocks that they fill."""
        row = np.arange(pairs.num_rows, dtype=np.int64) if pairs.row is None else pairs.row
        if not len(row):
            return
        users = np.concatenate(([0], np.cumsum(row[1:] != row[:-1]))) + self._next_user
        self._next_user = int(users[-1]) + 1
        self._users = np.concatenate((self._users, users))
        self._items.append(pairs.items)
        while len(self._users) >= self._target + self._target // 2:
            # The user that fills the block is whole: users never straddle two calls.
            yield self._cut(int(np.searchsorted(self._users, self._users[self._target - 1], side="right")))

    def finish(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The last block, if any."""
        if len(self._users):
            yield self._cut(len(self._users))

    def _cut(self, count: int) -> tuple[int, pa.RecordBatch]:
        """Make a block of the first `count` pairs."""
        users, self._users = self._users[:count], self._users[count:]
        parts: list[pa.Array] = []
        while count:
            part = self._items.pop(0)
            parts.append(part.slice(0, count))
            if len(part) > count:
                self._items.insert(0, part.slice(count))
            count -= len(parts[-1])
        items = concat_items(parts)
        schema = pa.schema([("user", pa.int64()), ("item", items.type)], metadata=self._metadata)
        batch = pa.RecordBatch.from_arrays([pa.array(users - users[0]), items], schema=schema)
        self._ordinal += 1
        return block_id(self._unit, self._ordinal - 1), batch


def concat_items(parts: list[pa.Array]) -> pa.Array:
    """One array of all parts; dictionaries are unified."""
    if len(parts) == 1:
        return parts[0]
    if len({part.type for part in parts}) > 1:
        parts = [canonical.plain(part) for part in parts]
    if pa.types.is_dictionary(parts[0].type):
        return pa.chunked_array(parts).unify_dictionaries().combine_chunks()
    return pa.concat_arrays(parts)


def block_id(unit: int, ordinal: int) -> int:
    """The positive 63-bit number of a block: of the unit and of the block in it, so that no two blocks share one.

    Rows that are users are named by it and by their place in the block: two blocks of one number would merge users.

    Raises:
      ValueError: a number is out of range.
    """
    if not (0 <= unit < _MAX_UNITS and 0 <= ordinal < 1 << 32):
        raise ValueError(f"no block has the number {ordinal} of unit {unit}")
    return (unit + 1) << 32 | ordinal
