"""Lists of items: public ones (`--public_items`, `--domain`), or those of an earlier run (`--released`).

A list has the form of the output, so that the items of one run can be the public items of the next: Parquet, CSV or
JSON lines with the item columns by name, else text with an item a line, escaped, composite parts separated by tabs.
Text has no header: where an output of ours has a rank, a noisy weight or a noisy count beside the item, its ledger
says so. The prefix of a finished output stands for its files.
"""

from __future__ import annotations

import csv
import hashlib
import io
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from apache_beam.io.filesystem import BeamIOError

from dpbeam.errors import InputError
from dpbeam.families.registry import family_of
from dpbeam.io.files import InputFile, identity, match_files
from dpbeam.io.output import read_ledger, shards_named
from dpbeam.io.output_formats import SHARD_NAME, unescape, unescape_bytes
from dpbeam.io.paths import format_of, is_pipe, is_wild, local_path
from dpbeam.io.sinks import OutputColumns
from dpbeam.io.streams import ByteSource, open_input
from dpbeam.kernels import canonical
from dpbeam.kernels.canonical import BYTES, INT
from dpbeam.storage import FileSystems

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_SHARD_PATH = re.compile(rf"(.+)-{SHARD_NAME.pattern}")
_BLOCK = 8 << 20
_LONGEST_HEADER = 1 << 20
_LONGEST_FIELD = 1 << 28

_Row = tuple[int, list[bytes]]  # line number, canonical parts of the item


def read_items(path: str, columns: OutputColumns, flag: str) -> pa.Array:
    """Distinct canonical items of a list.

    Args:
      path: files, by a name or glob, or the prefix of a finished output. The format follows from the extension
        (`.parquet`, `.csv`, `.jsonl`, `.ndjson`, else text); but for Parquet it may be compressed (`.gz`, `.zst`).
      columns: names and kinds of the item columns of the job.
      flag: names the option in errors, for example `--public_items`.

    Returns:
      (n,) large_binary, in the order of first occurrence.

    Raises:
      InputError: the file cannot be read, a column is missing or has another kind, a value is null or no item.
    """
    parts = []
    for file in list_files(path, flag):
        format = format_of(file)
        if format == "parquet":
            parts.append(_read_parquet(file, columns, flag))
        else:
            rows = {"csv": _csv_rows, "jsonl": _json_rows}.get(format, _text_rows)
            parts.append(_gather(rows(file, columns, flag), columns))
    items = pa.chunked_array(parts).unique()
    return items.filter(pc.greater(pc.binary_length(items), 0))  # an empty string is no item


def list_files(path: str, flag: str) -> list[str]:
    """The files of a list, as `read_items` takes it. Raises InputError if there are none."""
    path = local_path(path, flag)
    if not (is_wild(path) or is_pipe(path)):
        try:
            ledger = None if FileSystems.exists(path) else read_ledger(path)
        except (BeamIOError, OSError, ValueError, ImportError):
            ledger = None  # looking up the file says what is wrong
        if ledger is not None:
            return shards_named(path, ledger)
    return [file.path for file in match_files([path], flag, pipes=True)]


def refuse_input(path: str, flag: str, patterns: Sequence[str], inputs: Sequence[InputFile]) -> None:
    """Refuse a list that is said to be public and is the private input itself: all of it would be released.

    Args:
      path: of the list, as `read_items` takes it.
      patterns: of the input.
      inputs: its files.

    Raises:
      InputError: a file of the list is one of the input, by whatever name, or a copy of one.
    """
    taken = {identity(file.path) for file in inputs} | {identity(p) for p in patterns if is_pipe(p)}
    sizes = {file.size for file in inputs if file.size}
    for name in list_files(path, flag):
        same = identity(name) in taken - {None}
        if not (same or is_pipe(name)) and _size(name, flag) in sizes:
            digest = _digest(name)
            same = any(_digest(file.path) == digest for file in inputs if file.size == _size(name, flag))
        if same:
            raise InputError(
                f"{flag}: '{name}' is the input of this run, or a copy of it; a public list must not come from the data"
            )


def _size(path: str, flag: str) -> int:
    return sum(file.size for file in match_files([path], flag))


def _digest(path: str) -> bytes:
    digest = hashlib.blake2b()
    with open_input(path) as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.digest()


def has_column(path: str, flag: str, name: str) -> bool:
    """Whether a file of the list has a column of this name besides its items, by its schema or its first row.

    Raises:
      InputError: there is no such list, or it cannot be read.
    """
    return any(name in _names_in(file) for file in list_files(path, flag) if not is_pipe(file))


def _names_in(path: str) -> Collection[str]:
    format = format_of(path)
    if format not in ("parquet", "csv", "jsonl"):
        return ()
    try:
        with open_input(path) as file:
            if format == "parquet":
                return pq.read_schema(file).names
            source = ByteSource(path, file)
            first = source.read(_LONGEST_HEADER).removeprefix(b"\xef\xbb\xbf").partition(b"\n")[0]
        if format == "csv":
            return next(csv.reader([first.decode()]), [])
        row = orjson.loads(first)
        return row if isinstance(row, dict) else ()
    except (pa.ArrowException, OSError, ValueError, csv.Error):
        return ()  # whoever reads the list says what is wrong with it


def _read_parquet(path: str, columns: OutputColumns, flag: str) -> pa.Array:
    with open_input(path) as file:
        try:
            source = pq.ParquetFile(file)
            _check_columns(path, source.schema_arrow.names, columns, flag)
            table = source.read(columns=list(columns.names))
        except (pa.ArrowException, OSError):
            raise InputError(f"{flag}: {path}: not a whole Parquet file") from None
    parts = []
    for name, wanted in zip(columns.names, columns.kinds):
        where = f"{path}: column '{name}'"
        encoded, kind = canonical.encode(table.column(name), where)
        if kind not in (wanted, None):
            raise InputError(f"{flag}: {where} holds {kind} values, but the items of the input are {wanted}")
        if encoded.null_count:
            raise InputError(f"{flag}: {where} holds nulls; remove them")
        parts.append(canonical.plain(encoded))
    return parts[0] if len(parts) == 1 else canonical.encode_parts(parts)


def _check_columns(path: str, names: list[str], columns: OutputColumns, flag: str) -> None:
    for name in columns.names:
        if names.count(name) != 1:
            what = "several columns" if name in names else "no column"
            raise InputError(f"{flag}: {path} has {what} '{name}'")


def _gather(rows: Iterator[_Row], columns: OutputColumns) -> pa.Array:
    values: list[list[bytes]] = [[] for _ in columns.kinds]
    for _, parts in rows:
        for column, part in zip(values, parts):
            column.append(part)
    arrays = [pa.array(column, pa.large_binary()) for column in values]
    return arrays[0] if len(arrays) == 1 else canonical.encode_parts(arrays)


def _text_rows(path: str, columns: OutputColumns, flag: str) -> Iterator[_Row]:
    before, after = _beside_items(path)
    width = before + len(columns.kinds) + after
    for number, line in enumerate(_content(path).split(b"\n"), start=1):
        if line := line.removesuffix(b"\r"):
            with _complaints(f"{flag}: {path}:{number}"):
                fields = _decoded(line).split("\t")
                if len(fields) != width:
                    raise ValueError(f"{len(fields)} fields separated by tabs, expected {width}")
                fields = fields[before : width - after]
                yield number, [_written(f, kind, unescape) for f, kind in zip(fields, columns.kinds)]


def _beside_items(path: str) -> tuple[int, int]:
    """How many fields come before and after the item in a text output of ours; none in other files."""
    shard = _SHARD_PATH.fullmatch(path)
    ledger = read_ledger(shard[1]) if shard else None
    if ledger is None:
        return 0, 0
    family = family_of(ledger["method"])
    return (0, 0) if family is None else family.beside_items(ledger["parameters"])


def _csv_rows(path: str, columns: OutputColumns, flag: str) -> Iterator[_Row]:
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_FIELD))
    with _complaints(f"{flag}: {path}"):
        text = _decoded(_content(path))
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    number, header = 1, None
    while True:
        with _complaints(f"{flag}: {path}:{number}"):
            row = next(reader, None)
            if row is None:
                return
            if row and header is None:
                _check_columns(path, row, columns, flag)
                header, places = row, [row.index(name) for name in columns.names]
            elif row:
                if len(row) != len(header):
                    raise ValueError(f"{len(row)} fields where the header has {len(header)}")
                yield number, [_written(row[p], kind, str) for p, kind in zip(places, columns.kinds)]
        number = reader.line_num + 1


def _json_rows(path: str, columns: OutputColumns, flag: str) -> Iterator[_Row]:
    for number, line in enumerate(_content(path).split(b"\n"), start=1):
        if line and not line.isspace():
            with _complaints(f"{flag}: {path}:{number}"):
                row = orjson.loads(line)
                if type(row) is not dict:
                    raise ValueError("not an object")
                yield number, [_of_json(row, n, kind) for n, kind in zip(columns.names, columns.kinds)]


@contextmanager
def _complaints(where: str) -> Iterator[None]:
    """Turns what is wrong with a line into an InputError that names it."""
    try:
        yield
    except InputError:
        raise
    except orjson.JSONDecodeError:
        raise InputError(f"{where}: not a JSON value") from None
    except csv.Error as error:
        if "NUL" in str(error):  # Python 3.10
            raise InputError(
                f"{where}: a NUL character, which CSV has from Python 3.11 on; give the list as JSON lines or Parquet"
            ) from None
        raise InputError(
            f"{where}: malformed CSV; quote values with quotes, and double quotes inside"
        ) from None
    except ValueError as complaint:
        raise InputError(f"{where}: {complaint}") from None


def _content(path: str) -> bytes:
    data = []
    with open_input(path) as file:
        source = ByteSource(path, file)
        while block := source.read(_BLOCK):
            data.append(block)
    return b"".join(data).removeprefix(b"\xef\xbb\xbf")


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ValueError("not valid UTF-8") from None


def _written(field: str, kind: str, plain: Callable[[str], str]) -> bytes:
    """Canonical bytes of a value as it is written. Raises ValueError with a complaint."""
    if kind == INT:
        return _integer(int(field) if _INTEGER.fullmatch(field) else None)
    return unescape_bytes(field) if kind == BYTES else plain(field).encode()


def _of_json(row: dict[str, Any], name: str, kind: str) -> bytes:
    value = row.get(name)
    if value is None:
        raise ValueError(f"no '{name}', or null")
    if kind == INT:
        return _integer(value if type(value) is int else None)
    if type(value) is not str:
        raise ValueError(f"'{name}' is no string, as the items of the input are")
    return _written(value, kind, str)


def _integer(value: int | None) -> bytes:
    if value is None or not -(2**63) <= value < 2**63:
        raise ValueError("not a 64-bit integer, as the items of the input are")
    return value.to_bytes(8, "big", signed=True)
