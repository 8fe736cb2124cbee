"""Reading CSV and TSV: lines are checked here, and parsed by Arrow; the first line is the header.

One line is one row. Where quotes may hold line breaks, a single quote out of place makes other rows part of its
value, or lets a value pass for rows: one user could erase others, or pose as many. So:

- CSV is quoted as RFC 4180 says, and a quoted value ends on its line. A line with an odd number of quotes is an error
  even where bad rows are skipped, for it is unknown which lines belong to it. A line whose quotes are even but out
  of place is a bad row. With `--csv_multiline` values may hold line breaks; the file is then read from its start, and
  whatever is wrong with a row of several lines is an error.
- TSV has no quotes, as its media type says: a field cannot hold a tab or newline.
- Lines end with a newline, or a carriage return and a newline. Any other carriage return outside of quotes makes a
  bad row, for Arrow would begin a new one there.

Neither has nulls. An empty user field means that the user is unknown, so it is treated as a null: taken as a value it
would merge all such rows into one user. An empty item is no item, as in every format
(`dpbeam.kernels.pair_rules`). Blank lines are skipped.
"""

from __future__ import annotations

import csv
import io
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from dpbeam.errors import DataError, advice
from dpbeam.io.formats.base import Format, Look, Piece
from dpbeam.io.lines import Chunk, chunks, count_lines
from dpbeam.io.rows import NOT_UTF_8, Counts, Rows, refuse_row
from dpbeam.io.streams import open_input
from dpbeam.kernels import canonical
from dpbeam.kernels.canonical import BYTES, INT, STRING, Kinds
from dpbeam.kernels.pair_rules import BAD_ROWS

if TYPE_CHECKING:
    from dpbeam.io.spec import InputSpec

BLOCK_BYTES = 8 << 20
_HEADER_BYTES = 1 << 16  # read at a time, to the end of the header
_QUOTE, _RETURN, _NEWLINE = 0x22, 0x0D, 0x0A
_UNEVEN = "a quoted value does not end on its line, or a quote inside a value is not doubled"


class _Delimited(Format):
    """What CSV and TSV share.

    Attributes:
      quoted: whether values may stand in quotes.
      misplaced: what is wrong with a line that `record` does not match.
    """

    lacks = "header"
    compressible = True
    pipes = True
    quoted: bool
    misplaced: str

    def separator(self, spec: InputSpec) -> str:
        """Between two fields."""
        return spec.csv_delimiter

    def record(self, spec: InputSpec, fields: int | None = None) -> str:
        """Regular expression of a line whose quotes and carriage returns are where they may be.

        Args:
          fields: how many it has; None: any number.
        """
        comma = f"\\x{ord(self.separator(spec)):02x}"
        more = "*" if fields is None else f"{{{fields - 1}}}"
        return rf"\A{self.field(comma)}(?:{comma}{self.field(comma)}){more}\r?\n?\z"

    def field(self, comma: str) -> str:
        """Regular expression of a field."""
        return rf"[^{comma}\r\n]*"

    def fields(self, line: str, spec: InputSpec) -> list[str]:
        """The fields of a header, which is one record. Raises csv.Error."""
        raise NotImplementedError

    def look(self, piece: Piece, spec: InputSpec) -> Look:
        read_header(piece.path, spec, self)
        return Look(user=None if spec.user_column is None else STRING)

    def count_rows(self, path: str, spec: InputSpec) -> int:
        return max(0, count_lines(path) - 1)

    def splits(self, spec: InputSpec) -> bool:
        return not spec.csv_multiline

    def read(
        self,
        piece: Piece,
        file: BinaryIO,
        spec: InputSpec,
        kinds: Kinds,
        counts: Counts,
        block_bytes: int = BLOCK_BYTES,
    ) -> Iterator[Rows]:
        """Rows of the lines that begin in a piece; of the whole file with `csv_multiline`."""
        header = read_header(piece.path, spec, self)
        lines = chunks(piece.path, file, piece.start, piece.end, block_bytes)
        records = _joined(lines, block_bytes) if spec.csv_multiline else map(_by_line, lines)
        at_header = piece.start == 0
        for batch in records:
            batch = batch.without_blank()
            if at_header and len(batch):
                at_header, batch = False, batch.keep(np.arange(len(batch)) > 0)
            if len(batch):
                rows = _parse(batch, header, spec, counts, self)
                if len(rows):
                    yield rows


class Csv(_Delimited):
    """Values between commas, quoted where they must be."""

    name, title, suffixes = "csv", "a CSV", ("csv",)
    options = ("csv_multiline", "csv_delimiter")
    quoted = True
    misplaced = (
        "a quote inside a value is not doubled, or a value with quotes or a carriage return is not quoted as a "
        "whole"
    )

    def field(self, comma: str) -> str:
        # Within quotes a line break is a character like others: whether a record may have several is decided before.
        return rf'(?:[^"{comma}\r\n]*|"(?:[^"]|"")*")'

    def fields(self, line: str, spec: InputSpec) -> list[str]:
        reader = csv.reader(io.StringIO(line, newline=""), delimiter=spec.csv_delimiter, strict=True)
        header, *more = reader
        if more:  # a carriage return outside of quotes ends a row for this reader, and no line
            raise csv.Error(self.misplaced)
        return header


class Tsv(_Delimited):
    """Values between tabs, never quoted."""

    name, title, suffixes = "tsv", "a TSV", ("tsv",)
    quoted = False
    misplaced = "a carriage return inside the line"

    def separator(self, spec: InputSpec) -> str:
        return "\t"

    def fields(self, line: str, spec: InputSpec) -> list[str]:
        if "\r" in line:
            raise csv.Error(self.misplaced)
        return line.split("\t")


@dataclass(frozen=True)
class _Records:
    """Some rows of a file, not yet parsed.

    Attributes:
      chunk: the lines.
      starts, ends: (n,) int64 offsets of each record in the chunk; a record includes its newline.
    """

    chunk: Chunk
    starts: np.ndarray
    ends: np.ndarray

    def __len__(self) -> int:
        return len(self.starts)

    def keep(self, mask: np.ndarray) -> _Records:
        return _Records(self.chunk, self.starts[mask], self.ends[mask])

    def without_blank(self) -> _Records:
        data = self.bytes()
        length = self.ends - self.starts
        breaks = (data[self.ends - 1] == _NEWLINE).astype(np.int64)
        returns = (length > breaks) & (data[np.maximum(self.ends - 1 - breaks, 0)] == _RETURN)
        return self.keep(length > breaks + returns)

    def bytes(self) -> np.ndarray:
        return np.frombuffer(self.chunk.data, np.uint8)

    def count(self, byte: int) -> np.ndarray:
        """(n,) how often a byte occurs in each record."""
        at = np.flatnonzero(self.bytes() == byte)
        return np.searchsorted(at, self.ends) - np.searchsorted(at, self.starts)

    def values(self) -> pa.Array:
        """(n,) large_binary: the records with their newlines."""
        if not len(self):
            return pa.array([], pa.large_binary())
        bounds = np.append(np.column_stack((self.starts, self.ends)).reshape(-1), self.ends[-1:])
        slices = canonical.slices_of(bounds, self.bytes())
        return slices.take(pa.array(np.arange(0, 2 * len(self), 2)))

    def text(self) -> pa.Buffer:
        """All records, one after the other."""
        if np.array_equal(self.starts[1:], self.ends[:-1]):
            return pa.py_buffer(self.chunk.data).slice(
                int(self.starts[0]), int(self.ends[-1] - self.starts[0])
            )
        return pa.py_buffer(canonical.bytes_views(self.values())[1])

    def where(self, record: int) -> str:
        return f"{self.chunk.path}:{self.chunk.line_number(int(self.starts[record]))}"


def _by_line(chunk: Chunk) -> _Records:
    bounds = chunk.bounds()
    return _Records(chunk, bounds[:-1], bounds[1:])


def _joined(lines: Iterator[Chunk], limit: int) -> Iterator[_Records]:
    """Records that end where the number of quotes is even; a record may have `limit` bytes."""
    rest: Chunk | None = None
    for chunk in lines:
        if rest is not None:
            chunk = Chunk(rest.path, rest.offset, rest.data + chunk.data)
        split = _by_line(chunk)
        closed = np.cumsum(split.count(_QUOTE)) % 2 == 0
        ends = split.ends[closed]
        used = int(ends[-1]) if len(ends) else 0
        rest = Chunk(chunk.path, chunk.offset + used, chunk.data[used:]) if used < len(chunk.data) else None
        if rest is not None and len(rest.data) > limit:
            raise _unended(rest)
        if len(ends):
            yield _Records(chunk, np.append(0, ends[:-1]), ends)
    if rest is not None:
        raise _unended(rest)


class _UnendedError(DataError):
    """A quoted value that does not end."""


def _unended(rest: Chunk) -> _UnendedError:
    return _UnendedError(
        f"{rest.path}:{rest.line_number(0)}: a quoted value that begins here does not end, or a quote before it is "
        "not doubled; fix the file"
    )


def _parse(records: _Records, header: list[str], spec: InputSpec, counts: Counts, form: _Delimited) -> Rows:
    good = _well_formed(records, spec, counts, form)
    # Of a row with too many or too few fields pyarrow makes a string first, and prints what it thinks of the others.
    if len(canonical.invalid_utf8(pa.array([good.chunk.data], pa.large_binary()))):
        odd = canonical.invalid_utf8(good.values())
        pattern = form.record(spec, fields=len(header))
        good = _drop(good, odd, pattern, f"malformed row, {NOT_UTF_8}", spec, counts)
    if not len(good):
        return Rows(None, [pa.nulls(0)], good.where)
    handler = _BadRows(spec.on_bad_row == "skip")
    text = good.text()
    try:
        table = pacsv.read_csv(text, **_options(spec, form, handler, header, max(text.size, 1 << 10)))
    except pa.ArrowInvalid:
        if not handler.numbers:
            raise DataError(f"{records.chunk.path}: malformed {form.name.upper()}") from None
        where, (fields, expected) = good.where(handler.numbers[-1] - 1), handler.fields
        problem = f"malformed row: {fields} fields where the header has {expected}"
        raise DataError(f"{where}: {problem}; {spec.fix_row}") from None
    if table.num_rows + len(handler.numbers) != len(good):
        raise DataError(f"{records.chunk.path}: malformed {form.name.upper()}: lines and rows do not agree")
    bad = np.asarray(handler.numbers, np.int64) - 1
    if spec.csv_multiline and len(bad):
        several = bad[good.keep(bad).count(_NEWLINE) > 1]
        if len(several):
            where = good.where(int(several[0]))
            raise DataError(f"{where}: malformed row of several lines; fix the file")
    counts[BAD_ROWS] += len(bad)
    good = good.keep(np.delete(np.arange(len(good)), bad))
    return _rows(table.combine_chunks(), good, spec, counts)


def _well_formed(records: _Records, spec: InputSpec, counts: Counts, form: _Delimited) -> _Records:
    """The records whose quotes and carriage returns are where they may be; see the module's docstring."""
    quotes = records.count(_QUOTE)
    if form.quoted and (quotes & 1).any():
        first = int((quotes & 1).argmax())
        raise DataError(
            f"{records.where(first)}: {_UNEVEN}; fix the line"
            + advice(", or pass --csv_multiline if values hold line breaks")
        )
    unsure = records.count(_RETURN) > 0
    if form.quoted:
        unsure |= quotes > 0
    positions = np.flatnonzero(unsure)
    if not len(positions):
        return records
    return _drop(records, positions, form.record(spec), form.misplaced, spec, counts)


def _drop(
    records: _Records, positions: np.ndarray, pattern: str, problem: str, spec: InputSpec, counts: Counts
) -> _Records:
    """The records without those, of these positions, that a regular expression does not match."""
    fits = pc.match_substring_regex(records.keep(positions).values(), pattern)
    bad = positions[~fits.to_numpy(zero_copy_only=False)]
    if not len(bad):
        return records
    several = bad[records.keep(bad).count(_NEWLINE) > 1]
    if len(several):
        raise DataError(f"{records.where(int(several[0]))}: {problem}; fix the file")
    refuse_row(spec, records.where(int(bad[0])), problem)
    counts[BAD_ROWS] += len(bad)
    return records.keep(np.delete(np.arange(len(records)), bad))


class _BadRows:
    """Arrow's handler of rows with a wrong number of fields; remembers their record numbers and fields."""

    def __init__(self, skip: bool):
        self._skip = skip
        self.numbers = array("q")
        self.fields: tuple[int, int] = (0, 0)

    def __call__(self, row: pacsv.InvalidRow) -> str:
        self.numbers.append(row.number)
        self.fields = (row.actual_columns, row.expected_columns)
        return "skip" if self._skip else "error"


def _options(
    spec: InputSpec, form: _Delimited, handler: _BadRows, names: list[str], block_bytes: int
) -> dict[str, object]:
    return {
        "read_options": pacsv.ReadOptions(use_threads=False, block_size=block_bytes, column_names=names),
        "parse_options": pacsv.ParseOptions(
            delimiter=form.separator(spec),
            quote_char='"' if form.quoted else False,
            newlines_in_values=spec.csv_multiline,
            ignore_empty_lines=True,
            invalid_row_handler=handler,
        ),
        "convert_options": pacsv.ConvertOptions(
            column_types={name: pa.large_binary() for name in spec.columns},
            include_columns=list(spec.columns),
            strings_can_be_null=False,
            check_utf8=False,
        ),
    }


def _rows(table: pa.Table, records: _Records, spec: InputSpec, counts: Counts) -> Rows:
    def column(name: str) -> pa.Array:
        return table.column(name).combine_chunks()

    user = None
    if spec.user_column is not None:
        user = column(spec.user_column).view(pa.large_string())
        empty = pc.equal(pc.binary_length(user), 0)
        if pc.any(empty).as_py():
            user = pc.if_else(empty, pa.scalar(None, pa.large_string()), user)
    items, bad = [], np.empty(0, np.int64)
    for name, kind in zip(spec.item_columns, spec.declared_types):
        raw = column(name)
        if kind == INT:
            values, wrong = canonical.parse_int64(raw)
            items.append(values)
            bad = np.union1d(bad, wrong)
            if len(wrong):
                problem = f"column '{name}' holds no 64-bit integer where one is expected"
                refuse_row(spec, records.where(int(wrong[0])), problem)
        else:
            items.append(raw if kind == BYTES else raw.view(pa.large_string()))
    if not len(bad):
        return Rows(user, items, records.where)
    counts[BAD_ROWS] += len(bad)
    kept = pa.array(np.delete(np.arange(len(records)), bad))
    records = records.keep(kept.to_numpy())
    user = None if user is None else user.take(kept)
    return Rows(user, [values.take(kept) for values in items], records.where)


def read_header(path: str, spec: InputSpec, form: _Delimited) -> list[str]:
    """Column names in the first line that is not blank.

    Raises:
      InputError: there is none, it is no text, or a needed column is missing or occurs twice.
    """
    try:
        with open_input(path) as file:
            lines = chunks(path, file, 0, 1 << 62, _HEADER_BYTES)
            records = _joined(lines, BLOCK_BYTES) if spec.csv_multiline else map(_by_line, lines)
            first = next((kept for batch in records if len(kept := batch.without_blank())), None)
        if first is None:
            raise form.no_header(path)
        # Arrow encodes the names again, also those of columns that nobody asks for.
        line = first.values()[0].as_py().decode(errors="backslashreplace")
        header = form.fields(line.removesuffix("\n").removesuffix("\r"), spec)
    except (_UnendedError, csv.Error):
        raise DataError(f"{path}: its header cannot be read; is it {form.name} in UTF-8?") from None
    _check_header(path, header, spec, form)
    return header


def _check_header(path: str, header: list[str], spec: InputSpec, form: _Delimited) -> None:
    # Without a header the first row is data, which no message may show: one name must fit before the rest is shown.
    there = header if any(name in header for name in spec.columns) else []
    if all(header.count(name) == 1 for name in spec.columns):
        return
    raise spec.no_columns(path, header, there, "" if there else _hint(header, spec, form))


def _hint(header: list[str], spec: InputSpec, form: _Delimited) -> str:
    """What may be wrong with a first line that holds none of the columns."""
    if form.quoted and len(header) == 1:
        for mark, shown in ((";", ";"), ("\t", "\\t"), ("|", "|")):
            if {name.strip() for name in header[0].split(mark)} & set(spec.columns):
                return f"; its fields seem to be separated by '{shown}'" + advice(
                    f": pass --csv_delimiter='{shown}'"
                )
    return f"; the first line must be a header of {form.name} column names"
