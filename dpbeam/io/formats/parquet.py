"""Reading Parquet: row groups that begin in a byte range, only the columns needed, as record batches.

A work unit is a range of bytes of a file; it reads the row groups whose first byte lies in it, so that the ranges of
a file can be planned without opening it. String items are read as dictionaries: their distinct values then
cost once per row group, where decoding and hashing every row would cost most of the reading.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from dpbeam.errors import DataError, advice
from dpbeam.io.formats.base import Format, Look, Piece
from dpbeam.io.rows import ROWS_PER_BATCH, Counts, Rows, check_types, schema_types
from dpbeam.io.streams import open_input
from dpbeam.kernels.canonical import Kinds
from dpbeam.rows.nested import column_at, type_at

if TYPE_CHECKING:
    from dpbeam.io.spec import InputSpec

_MAGIC = b"PAR1"
_BYTES_PER_BATCH = 64 << 20
_LENGTH_BYTES = 4  # before each plain value; of the footer
_FOOTER_END = 8  # the length of the footer, and the mark
_ENCRYPTED = b"PARE"  # in place of the mark, where the footer is encrypted too
_DECRYPT = "encrypted Parquet is not read; write the file anew without encryption"
_FIELD_ID = b"PARQUET:field_id"


class Parquet(Format):
    """Parquet files."""

    name, title = "parquet", "a Parquet"
    suffixes: tuple[str, ...] = ("parquet",)
    magic = _MAGIC
    lacks = "footer"
    bytes_per_pair = 6
    why_not_compressed = "Parquet is compressed inside; decompress the file itself"
    why_no_pipe = "Parquet is not read from a pipe, its index is at the end"
    has_lists = True
    declares_types = True

    def splits(self, spec: InputSpec) -> bool:
        return True

    def look(self, piece: Piece, spec: InputSpec) -> Look:
        with open_input(piece.path) as file:
            source = ParquetInput(piece, file, spec)
            user, items = source.types
            size, seen = source.item_sizes() if spec.tokenizer is None else (0, 0)
            return Look(user, items, rows=source.num_rows, item_bytes=size, items_seen=seen)

    def check_head(self, path: str, formats: Iterable[Format]) -> None:
        """Nothing: `ParquetInput` looks at both ends of a file."""

    def read(
        self, piece: Piece, file: BinaryIO, spec: InputSpec, kinds: Kinds, counts: Counts
    ) -> Iterator[Rows]:
        source = ParquetInput(piece, file, spec)
        check_types(piece.path, spec, source.types, kinds)
        counts.state(piece, source.num_rows)
        yield from source.rows(piece.start, piece.end)


class ParquetInput:
    """An opened Parquet file.

    A column is the file's own; else a constant of the piece; else, of a table that has it, null in this file.

    Attributes:
      num_rows: of the whole file.
      types: of the user and item columns, from `schema_types`.

    Raises:
      InputError: the file is not whole Parquet, a column is missing or has a type that is not read.
    """

    def __init__(self, piece: Piece, file: BinaryIO, spec: InputSpec):
        path = self._path = piece.path
        self._constants = dict(piece.constants)
        self._spec = spec
        self._source = file
        try:
            self._file = pq.ParquetFile(file)
            schema = self._file.schema_arrow
        except (pa.ArrowException, OSError, ValueError) as error:
            raise DataError(f"{path}: {complaint(file, error)}") from None
        self.num_rows = self._file.metadata.num_rows
        self._stored = self._stored_names(schema)
        self._check_no_encryption()
        self._others = {name: self._other_type(name) for name in spec.columns if name not in self._stored}
        if spec.table:
            columns = [(name, schema.field(stored).type) for name, stored in self._stored.items()]
        else:  # all, for messages
            columns = [(column.name, column.type) for column in schema]
        columns += [(name, kind) for name, kind in self._others.items() if kind is not None]
        self.types = schema_types(spec, pa.schema(columns), path)

    def _stored_names(self, schema: pa.Schema) -> dict[str, str]:
        """Column of the spec -> its name in the file; by the field's id where the table has ids."""
        wanted = self._spec.columns
        if any(schema.names.count(name) > 1 for name in wanted):
            raise self._spec.no_columns(self._path, schema.names, schema.names)
        columns = self._spec.table.columns if self._spec.table else ()
        ids = {column.name: column.field_id for column in columns if column.field_id is not None}
        if not ids:
            return {name: name for name in wanted if type_at(schema, name) is not None}
        names = {int((field.metadata or {}).get(_FIELD_ID, -1)): field.name for field in schema}
        if -1 in names:
            raise DataError(f"{self._path}: a column has no field id: such files of a table are not read")
        return {name: names[ids[name]] for name in wanted if ids.get(name) in names}

    def _check_no_encryption(self) -> None:
        """Refuse encrypted columns behind a footer that is not: Arrow ends the process when it is asked what is stored
        of one, but not when it is to read one. Of the first column it is always asked where a row group begins.

        Raises:
          InputError: one that is needed is encrypted.
        """
        metadata = self._file.metadata
        self._source.seek(-_FOOTER_END, os.SEEK_END)
        size = int.from_bytes(self._source.read(_LENGTH_BYTES), "little")
        if size == metadata.serialized_size or not metadata.num_row_groups:
            return
        # A signature follows the footer.
        for leaf in dict.fromkeys([self._file.schema.column(0).path, *self._leaves()]):
            try:
                for _ in self._file.iter_batches(1, row_groups=[0], columns=[leaf], use_threads=False):
                    break
            except (pa.ArrowException, OSError):
                raise DataError(f"{self._path}: column '{leaf}' is encrypted; {_DECRYPT}") from None

    def _other_type(self, name: str) -> pa.DataType | None:
        """The type of a column that is not in the file; None where there is no such column."""
        column = self._spec.table.column(name) if self._spec.table else None
        if column is None:
            return pa.string() if name in self._constants else None
        if column.always and name not in self._constants:
            raise DataError(
                f"{self._path}: holds no values of column '{name}', which the table has elsewhere; this is not read"
            )
        return column.type

    def rows(self, start: int, end: int) -> Iterator[Rows]:
        """Rows of the row groups whose first byte lies in [start, end)."""
        metadata = self._file.metadata
        # Arrow reads dictionaries inside lists from one row group at a time only.
        limit = 0 if self._spec.lists else ROWS_PER_BATCH
        runs: list[tuple[int, list[int]]] = []  # number of the first row; row groups that are read at once
        first_row, held = 0, 0  # rows of the last run, while it may go on
        for group in range(metadata.num_row_groups):
            size = metadata.row_group(group).num_rows
            if not (size and start <= first_byte(metadata.row_group(group)) < end):
                held = 0
            elif held and held + size <= limit:
                runs[-1][1].append(group)
                held += size
            else:
                runs.append((first_row, [group]))
                held = size
            first_row += size
        for first_row, groups in runs:
            for table in self._tables(groups):
                yield self._to_rows(table, first_row)
                first_row += table.num_rows

    def _tables(self, groups: list[int]) -> Iterator[pa.Table]:
        size, leaves = self._batch_rows(groups), self._leaves()
        try:
            file = pq.ParquetFile(
                self._source,
                metadata=self._file.metadata,
                read_dictionary=self._dictionary_columns,
                page_checksum_verification=True,
            )
            if size >= self._num_rows(groups):
                yield file.read_row_groups(groups, columns=leaves, use_threads=False)
            else:
                for batch in file.iter_batches(size, row_groups=groups, columns=leaves, use_threads=False):
                    yield pa.Table.from_batches([batch])
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{self._path}: {complaint(self._source, error)}") from None

    def _to_rows(self, table: pa.Table, first_row: int) -> Rows:
        spec = self._spec

        def column(name: str) -> pa.Array:
            if name in self._others:
                value, kind = self._constants.get(name), self._others[name]
                if value is None:
                    return pa.nulls(table.num_rows, kind)
                return pa.repeat(pa.scalar(value).cast(kind), table.num_rows)
            values = column_at(table, self._stored[name])
            if pa.types.is_dictionary(values.type):
                values = values.unify_dictionaries()
            elif pa.types.is_string(values.type):
                values = values.cast(pa.large_string())  # one array of 32-bit offsets may be too short
            return values.combine_chunks()

        return Rows(
            user=None if spec.user_column is None else column(spec.user_column),
            items=[column(name) for name in spec.item_columns],
            where=lambda row: f"{self._path}: row {first_row + row + 1}",
            path=self._path,
        )

    def item_sizes(self) -> tuple[int, int]:
        """Bytes of the item columns before compression, as the footer has them, and the number of items."""
        chunks = self._chunks(self._spec.item_columns)
        size = sum(chunk.total_uncompressed_size for leaf in chunks for chunk in leaf)
        return size, sum(chunk.num_values for chunk in chunks[0]) if chunks else 0

    def _chunks(
        self, columns: Iterable[str], groups: Iterable[int] | None = None
    ) -> list[list[pq.ColumnChunkMetaData]]:
        """What is stored of each leaf of the columns in these row groups, or in all."""
        metadata, stored = self._file.metadata, self._in_file(columns)
        leaves = [i for i, leaf in enumerate(self._leaf_columns()) if _below(leaf.path, stored)]
        of = [metadata.row_group(g) for g in (range(metadata.num_row_groups) if groups is None else groups)]
        return [[group.column(i) for group in of] for i in leaves]

    def _in_file(self, columns: Iterable[str]) -> list[str]:
        return [self._stored[name] for name in columns if name in self._stored]

    @functools.cached_property
    def _dictionary_columns(self) -> list[str]:
        """Leaf paths of the columns to be read as dictionaries: byte strings that are stored so.

        To make dictionaries of others costs less later, for fewer rows at once. Text to tokenise is read plain, and so
        are fields of structs, of which Arrow makes no dictionaries.
        """
        spec = self._spec
        columns = [name for name in spec.item_columns if spec.tokenizer is None and name not in spec.numbers]
        if spec.layout == "pairs" and spec.user_column is not None:
            columns.append(spec.user_column)
        columns = [name for name in columns if self._mostly_indices(name)]
        in_structs = [
            f"{field.name}.{inner.name}"
            for field in self._file.schema_arrow
            if pa.types.is_struct(field.type)
            for inner in field.type
        ]
        return [
            column.path
            for column in self._leaf_columns()
            if _below(column.path, self._in_file(columns))
            and not _below(column.path, in_structs)
            and column.physical_type == "BYTE_ARRAY"
        ]

    def _mostly_indices(self, name: str) -> bool:
        """Whether a column's values are stored as indices of dictionaries.

        A plain value takes at least its length; of other encodings no size tells.
        """
        chunks = [chunk for leaf in self._chunks([name]) for chunk in leaf]
        if any(encoding.startswith("DELTA") for chunk in chunks for encoding in chunk.encodings):
            return False
        size = sum(chunk.total_uncompressed_size for chunk in chunks)
        return size < _LENGTH_BYTES * sum(chunk.num_values for chunk in chunks)

    def _leaf_columns(self) -> list[pq.ColumnSchema]:
        schema = self._file.schema
        return [schema.column(i) for i in range(len(schema))]

    def _leaves(self) -> list[str]:
        # A name with a dot would be read as a path by the column selection, so leaf paths are given in full.
        columns = self._in_file(self._spec.columns)
        return [column.path for column in self._leaf_columns() if _below(column.path, columns)]

    def _num_rows(self, groups: list[int]) -> int:
        return sum(self._file.metadata.row_group(group).num_rows for group in groups)

    def _batch_rows(self, groups: list[int]) -> int:
        """Rows per batch such that, on average, no needed column has much more than
        ROWS_PER_BATCH values or _BYTES_PER_BATCH bytes."""
        rows = self._num_rows(groups)
        batch = max(rows, 1)
        for chunks in self._chunks(self._spec.columns, groups):
            values = sum(chunk.num_values for chunk in chunks)
            size = sum(chunk.total_uncompressed_size for chunk in chunks)
            batch = min(
                batch, 2 * ROWS_PER_BATCH * rows // max(values, 1), _BYTES_PER_BATCH * rows // max(size, 1)
            )
        return max(1, batch)


def first_byte(group: pq.RowGroupMetaData) -> int:
    """Where the first column of a row group begins in its file."""
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
    if head == tail == _ENCRYPTED:
        return _DECRYPT
    if head != _MAGIC:
        return "not a Parquet file" + advice("; pass the right --input_format")
    if tail != _MAGIC:
        return "truncated Parquet file"
    return "damaged Parquet file"
