"""Reading CSV and TSV through Arrow's parser; every column is text, the first line is the header.

- CSV is quoted as RFC 4180 says, newlines in quotes included; where a line begins cannot be known without reading
  from the start, so a file is one work unit: split large CSV files, or use Parquet.
- TSV has no quotes, as its media type says: a field cannot hold a tab or newline. It can be read from any line.

Neither has nulls. An empty user field means that the user is unknown, so it is treated as a null: taken as a
value it would merge all such rows into one user. An empty item field is an empty item, dropped and counted.
Blank lines are skipped.
"""

from __future__ import annotations

import csv
import io
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from dpbeam.errors import InputError
from dpbeam.io.files import ByteSource, open_input
from dpbeam.io.lines import Chunk, chunks
from dpbeam.io.rows import BAD_ROWS, Counts, Rows
from dpbeam.io.spec import InputSpec

BLOCK_BYTES = 8 << 20
_BOM = b"\xef\xbb\xbf"


def read(
    path: str,
    file: BinaryIO,
    start: int,
    end: int,
    spec: InputSpec,
    counts: Counts,
    block_bytes: int = BLOCK_BYTES,
) -> Iterator[Rows]:
    """Rows of a CSV file, or of the TSV lines that begin in [start, end).

    Raises:
      InputError: no header or column; malformed rows unless they are skipped.
    """
    header = read_header(path, spec)
    if header is None:
        return
    if spec.format == "csv":
        yield from _read_csv(path, file, spec, counts, block_bytes)
        return
    at_header = start == 0
    for chunk in chunks(path, file, "tsv", start, end, block_bytes):
        if at_header:
            at_header, chunk = False, _skip_header(chunk)
        if chunk.data.strip(b"\r\n"):
            yield from _read_tsv_chunk(chunk, header, spec, counts)


def read_header(path: str, spec: InputSpec) -> list[str] | None:
    """Column names in the first line that is not blank; None for an empty file.

    Raises:
      InputError: the header is no text, or a needed column is missing or occurs twice.
    """
    with open_input(path) as file:
        source = ByteSource(path, file, spec.format)
        data = b""
        while True:
            block = source.read(1 << 16)
            data += block
            head = data.removeprefix(_BOM).lstrip(b"\r\n")
            if not block or b"\n" in head:
                break
    if not head:
        return None
    try:
        text = head.decode() if not block else head[: head.rfind(b"\n")].decode(errors="surrogateescape")
        if spec.format == "tsv":
            header = text.split("\n", 1)[0].removesuffix("\r").split("\t")
        else:
            header = next(csv.reader(io.StringIO(text, newline="")))
    except (UnicodeDecodeError, csv.Error):
        raise InputError(f"{path}: its header cannot be read; is it {spec.format} in UTF-8?") from None
    _check_header(path, header, spec)
    return header


def _check_header(path: str, header: list[str], spec: InputSpec) -> None:
    for name in spec.columns:
        times = header.count(name)
        if times == 1:
            continue
        flag = "--user_column" if name == spec.user_column else "--item_column"
        what = "several columns" if times else "no column"
        # The header is not quoted here: without one, the first row is data.
        hint = f"; the first line must be a header of {spec.format} column names" if not times else ""
        raise InputError(f"{flag}: {path} has {what} '{name}'{hint}")


class _BadRows:
    """Arrow's handler of rows with a wrong number of fields; remembers their record numbers."""

    def __init__(self, skip: bool):
        self._skip = skip
        self.numbers = array("q")
        self.fields = (0, 0)

    def __call__(self, row: pacsv.InvalidRow) -> str:
        self.numbers.append(row.number)
        self.fields = (row.actual_columns, row.expected_columns)
        return "skip" if self._skip else "error"

    def record(self, good: int) -> int:
        """Number, counted with the bad ones, of the good record that is `good`-th counted without them."""
        number = good
        while (found := good + bisect_right(self.numbers, number)) != number:
            number = found
        return number


def _options(spec: InputSpec, handler: _BadRows, names: list[str] | None, block_bytes: int) -> dict:
    quoted = spec.format == "csv"
    return {
        "read_options": pacsv.ReadOptions(use_threads=False, block_size=block_bytes, column_names=names),
        "parse_options": pacsv.ParseOptions(
            delimiter="," if quoted else "\t",
            quote_char='"' if quoted else False,
            newlines_in_values=quoted,
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


def _read_csv(path: str, file: BinaryIO, spec: InputSpec, counts: Counts, block_bytes: int) -> Iterator[Rows]:
    handler = _BadRows(spec.on_bad_row == "skip")
    source = _QuoteCounter(ByteSource(path, file, "csv"))

    def where(record: int) -> str:
        return f"{path}:{_line_of_record(path, record)}"

    done = 1  # the header is record 1
    try:
        stream = pa.PythonFile(source, mode="r")
        for batch in pacsv.open_csv(stream, **_options(spec, handler, None, block_bytes)):
            first, done = done + 1, done + batch.num_rows
            if batch.num_rows:
                yield _rows(batch, spec, lambda row, first=first: where(handler.record(first + row)))
    except pa.ArrowInvalid:
        raise _malformed(path, handler, where, block_bytes) from None
    if source.quotes % 2:
        if spec.on_bad_row == "error":
            raise InputError(
                f"{path}: an odd number of quotes: a quoted value does not end, or a quote inside a value is not "
                "doubled; mend the file, or pass --on_bad_row=skip"
            )
        counts[BAD_ROWS] += 1
    counts[BAD_ROWS] += len(handler.numbers)


class _QuoteCounter:
    """A readable file for Arrow that counts the quotes passing through.

    Arrow takes a quoted value that never ends as one that ends with the file, swallowing all rows on the way; an
    odd number of quotes tells. It also adds a final newline, without which Arrow refuses a header alone.
    """

    closed = False

    def __init__(self, source: ByteSource):
        self._source = source
        self._ended = False
        self.quotes = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._source.read(size)
        self.quotes += data.count(b'"')
        if len(data) < size and not self._ended:
            self._ended = True
            data += b"\n"
        return data

    def close(self) -> None:
        self.closed = True


def _malformed(path: str, handler: _BadRows, where: Callable[[int], str], block_bytes: int) -> InputError:
    if not handler.numbers:
        return InputError(
            f"{path}: malformed CSV: a row is longer than {block_bytes >> 20} MB, or a quoted value does not end"
        )
    found, expected = handler.fields
    return InputError(
        f"{where(handler.numbers[-1])}: malformed row: {found} fields where the header has {expected}; "
        "mend the line, or pass --on_bad_row=skip"
    )


def _line_of_record(path: str, record: int) -> int:
    """Line on which a CSV record begins; both count from 1, records without blank lines."""
    line, seen, quoted = 0, 0, False
    with open_input(path) as file:
        for chunk in chunks(path, file, "csv", 0, 1 << 62):
            for text in chunk.data.split(b"\n")[: chunk.bounds().size - 1]:
                line += 1
                if not quoted and text not in (b"", b"\r"):
                    seen += 1
                    if seen == record:
                        return line
                quoted ^= bool(text.count(b'"') & 1)
    return line


def _read_tsv_chunk(chunk: Chunk, header: list[str], spec: InputSpec, counts: Counts) -> Iterator[Rows]:
    handler = _BadRows(spec.on_bad_row == "skip")

    def where(record: int) -> str:
        return f"{chunk.path}:{_line_in_chunk(chunk, record)}"

    options = _options(spec, handler, header, max(len(chunk.data), 1 << 10))
    try:
        table = pacsv.read_csv(pa.py_buffer(chunk.data), **options)
    except pa.ArrowInvalid:
        raise _malformed(chunk.path, handler, where, len(chunk.data)) from None
    counts[BAD_ROWS] += len(handler.numbers)
    for batch in table.combine_chunks().to_batches():
        yield _rows(batch, spec, lambda row: where(handler.record(row + 1)))


def _line_in_chunk(chunk: Chunk, record: int) -> int:
    """Line of the file that holds the `record`-th line of a chunk, blank ones not counted."""
    at = seen = 0
    for text in chunk.data.split(b"\n"):
        seen += text not in (b"", b"\r")
        if seen == record:
            break
        at += len(text) + 1
    return chunk.line_number(at)


def _skip_header(chunk: Chunk) -> Chunk:
    """The rest of a file's first chunk."""
    blank = len(chunk.data) - len(chunk.data.lstrip(b"\r\n"))
    cut = chunk.data.find(b"\n", blank) + 1 or len(chunk.data)
    return Chunk(chunk.path, chunk.format, chunk.offset + cut, chunk.data[cut:])


def _rows(batch: pa.RecordBatch, spec: InputSpec, where) -> Rows:
    columns = {name: batch.column(name).view(pa.large_string()) for name in spec.columns}
    user = None
    if spec.user_column is not None:
        user = columns[spec.user_column]
        empty = pc.equal(pc.binary_length(user), 0)
        if pc.any(empty).as_py():
            user = pc.if_else(empty, pa.scalar(None, pa.large_string()), user)
    return Rows(user, [columns[name] for name in spec.item_columns], where)
