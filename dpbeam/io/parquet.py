"""Reading Parquet: row groups that begin in a byte range, only the columns needed, as record batches.

A work unit is a range of bytes of a file; it reads the row groups whose first byte lies in it, so that the ranges of
a file can be planned without opening it. String items are read as dictionaries: their distinct values then
cost once per row group, where decoding and hashing every row would cost most of the reading.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from dpbeam.errors import InputError
from dpbeam.io.rows import ROWS_PER_BATCH, Rows, is_list
from dpbeam.io.spec import InputSpec
from dpbeam.kernels import canonical
from dpbeam.kernels.canonical import Kinds

_MAGIC = b"PAR1"
_BYTES_PER_BATCH = 64 << 20
_LENGTH_BYTES = 4  # before each plain value


class ParquetInput:
    """An opened Parquet file.

    Raises:
      InputError: the file is not whole Parquet, a column is missing or has a type that is not read.
    """

    def __init__(self, path: str, file: BinaryIO, spec: InputSpec):
        self._path = path
        self._spec = spec
        self._source = file
        try:
            self._file = pq.ParquetFile(file)
            self.schema = self._file.schema_arrow
        except (pa.ArrowException, OSError, ValueError) as error:
            raise InputError(f"{path}: {complaint(file, error)}") from None
        self.num_rows = self._file.metadata.num_rows
        self.kinds = self._check_columns()

    def _check_columns(self) -> tuple[str | None, tuple[str | None, ...]]:
        """Kinds of the user and item columns; None where all values are null or there is no user column."""
        spec = self._spec
        user = None
        if spec.user_column is not None:
            user = canonical.kind_of(self._type(spec.user_column), self._name(spec.user_column))
        return user, tuple(self._item_kind(name) for name in spec.item_columns)

    def _item_kind(self, name: str) -> str | None:
        spec, where = self._spec, self._name(name)
        found = self._type(name)
        if spec.layout == "grouped":
            if is_list(found):
                found = found.value_type
            elif spec.tokenizer is None:
                raise InputError(
                    f"{where} has type {found}, but --input_layout=grouped needs a list column; "
                    "use --input_layout=pairs for one item per row"
                )
        elif is_list(found):
            raise InputError(f"{where} is a list column; pass --input_layout=grouped for one user per row")
        kind = canonical.kind_of(found, where)
        if spec.tokenizer is not None and kind not in (canonical.STRING, None):
            raise InputError(f"{where} has type {found}, but --tokenizer needs a string column")
        return kind

    def _type(self, name: str) -> pa.DataType:
        found = self.schema.get_all_field_indices(name)
        if len(found) != 1:
            raise self._spec.no_column(self._path, name, self.schema.names)
        return self.schema.field(found[0]).type

    def _name(self, column: str) -> str:
        return f"{self._path}: column '{column}'"

    def rows(self, start: int, end: int) -> Iterator[Rows]:
        """Rows of the row groups whose first byte lies in [start, end)."""
        metadata = self._file.metadata
        # Arrow reads dictionaries inside lists from one row group at a time only.
        limit = 0 if self._spec.layout == "grouped" else ROWS_PER_BATCH
        first_row = 0
        waiting: list[int] = []
        waiting_rows, waiting_first = 0, 0
        for group in range(metadata.num_row_groups):
            size = metadata.row_group(group).num_rows
            if size and start <= first_byte(metadata.row_group(group)) < end:
                if waiting and waiting_rows + size > limit:
                    yield from self._read(waiting, waiting_first)
                    waiting = []
                if not waiting:
                    waiting_rows, waiting_first = 0, first_row
                waiting.append(group)
                waiting_rows += size
            elif waiting:
                yield from self._read(waiting, waiting_first)
                waiting = []
            first_row += size
        if waiting:
            yield from self._read(waiting, waiting_first)

    def _read(self, groups: list[int], first_row: int) -> Iterator[Rows]:
        for table in self._tables(groups):
            yield self._to_rows(table, first_row)
            first_row += table.num_rows

    def _tables(self, groups: list[int]) -> Iterator[pa.Table]:
        size, leaves = self._batch_rows(groups), self._leaves()
        try:
            file = pq.ParquetFile(
                self._source, metadata=self._file.metadata, read_dictionary=self._dictionary_columns()
            )
            if size >= self._num_rows(groups):
                yield file.read_row_groups(groups, columns=leaves, use_threads=False)
            else:
                for batch in file.iter_batches(size, row_groups=groups, columns=leaves, use_threads=False):
                    yield pa.Table.from_batches([batch])
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{self._path}: {complaint(self._source, error)}") from None

    def _to_rows(self, table: pa.Table, first_row: int) -> Rows:
        spec = self._spec

        def column(name: str) -> pa.Array:
            found = table.column(name)
            if pa.types.is_dictionary(found.type):
                found = found.unify_dictionaries()
            elif pa.types.is_string(found.type):
                found = found.cast(pa.large_string())  # one array of 32-bit offsets may be too short
            return found.combine_chunks()

        return Rows(
            user=None if spec.user_column is None else column(spec.user_column),
            items=[column(name) for name in spec.item_columns],
            where=lambda row: f"{self._path}: row {first_row + row + 1}",
            path=self._path,
        )

    def item_sizes(self) -> tuple[int, int]:
        """Bytes of the item columns before compression, as the footer has them, and the number of items."""
        metadata = self._file.metadata
        leaves = [
            i for i, leaf in enumerate(self._leaf_columns()) if _below(leaf.path, self._spec.item_columns)
        ]
        groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
        size = sum(group.column(i).total_uncompressed_size for group in groups for i in leaves)
        return size, sum(group.column(leaves[0]).num_values for group in groups)

    def _dictionary_columns(self) -> list[str]:
        """Leaf paths of the columns to be read as dictionaries: byte strings that are not text to tokenise.

        Of users only where they are stored so: making one of users in random order would cost more than it saves.
        """
        spec = self._spec
        columns: list[str] = list(spec.item_columns) if spec.tokenizer is None else []
        if spec.layout == "pairs" and spec.user_column is not None and self._mostly_indices(spec.user_column):
            columns.append(spec.user_column)
        return [
            column.path
            for column in self._leaf_columns()
            if _below(column.path, columns) and column.physical_type == "BYTE_ARRAY"
        ]

    def _mostly_indices(self, name: str) -> bool:
        """Whether a column's values are stored as indices of dictionaries: a plain one takes at least its length."""
        metadata = self._file.metadata
        leaves = [i for i, leaf in enumerate(self._leaf_columns()) if leaf.path == name]
        chunks = [metadata.row_group(g).column(i) for g in range(metadata.num_row_groups) for i in leaves]
        size = sum(chunk.total_uncompressed_size for chunk in chunks)
        return size < _LENGTH_BYTES * sum(chunk.num_values for chunk in chunks)

    def _leaf_columns(self) -> list[pq.ColumnSchema]:
        schema = self._file.schema
        return [schema.column(i) for i in range(len(schema))]

    def _leaves(self) -> list[str]:
        # A name with a dot would be read as a path by the column selection, so leaf paths are given in full.
        return [column.path for column in self._leaf_columns() if _below(column.path, self._spec.columns)]

    def _num_rows(self, groups: list[int]) -> int:
        return sum(self._file.metadata.row_group(group).num_rows for group in groups)

    def _batch_rows(self, groups: list[int]) -> int:
        """Rows per batch such that, on average, no needed column has much more than
        ROWS_PER_BATCH values or _BYTES_PER_BATCH bytes."""
        metadata, leaves = self._file.metadata, set(self._leaves())
        rows = self._num_rows(groups)
        batch = max(rows, 1)
        for i in range(metadata.num_columns):
            if self._file.schema.column(i).path in leaves:
                chunks = [metadata.row_group(group).column(i) for group in groups]
                values = sum(chunk.num_values for chunk in chunks)
                size = sum(chunk.total_uncompressed_size for chunk in chunks)
                batch = min(
                    batch,
                    2 * ROWS_PER_BATCH * rows // max(values, 1),
                    _BYTES_PER_BATCH * rows // max(size, 1),
                )
        return max(1, batch)


def check_kinds(path: str, spec: InputSpec, found: tuple, expected: Kinds) -> None:
    """Refuse a file whose columns have other kinds than those of the whole input. Raises InputError."""
    user, items = found
    pairs = [(spec.user_column, user, expected.user), *zip(spec.item_columns, items, expected.item)]
    for column, kind, wanted in pairs:
        if kind is not None and kind != wanted:
            raise mixed_kinds(path, column, kind, wanted)


def mixed_kinds(path: str, column: str, kind: str, wanted: str) -> InputError:
    """The error for ids that mix types."""
    return InputError(
        f"{path}: column '{column}' holds {kind} values where other input holds {wanted} values; "
        "ids must have one type throughout, convert them"
    )


def first_byte(group: pq.RowGroupMetaData) -> int:
    column = group.column(0)
    first = column.data_page_offset
    if column.has_dictionary_page and column.dictionary_page_offset:
        first = min(first, column.dictionary_page_offset)
    return first


def _below(leaf: str, columns: Iterable[str]) -> bool:
    """The leaf's path lies in one of the columns."""
    return any(leaf == name or leaf.startswith(f"{name}.") for name in columns)


def complaint(file: BinaryIO, error: BaseException) -> str:
    """Why a file is not readable Parquet, in few words and without its content."""
    if isinstance(error, pa.ArrowNotImplementedError):
        return "holds Parquet data that Arrow cannot read; write it again with another writer"
    try:
        file.seek(0)
        head = file.read(4)
        file.seek(0, 2)
        size = file.tell()
        file.seek(max(size - 4, 0))
        tail = file.read(4)
    except (OSError, ValueError):
        return f"cannot be read: {type(error).__name__}"
    if head != _MAGIC:
        return "not a Parquet file; pass the right --input_format"
    if tail != _MAGIC:
        return "truncated Parquet file"
    return "damaged Parquet file"
