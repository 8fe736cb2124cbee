"""Lists of items that are public: `--public_items` and `--domain` files.

A list has the form of the output, so that the items of one run can be the public items of the next: Parquet with
the item columns by name, or text with one item per line, escaped, composite parts separated by tabs.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dpbeam.errors import InputError
from dpbeam.io.files import ByteSource, match_files, open_input
from dpbeam.io.sinks import OutputColumns
from dpbeam.kernels import canonical
from dpbeam.kernels.canonical import BYTES, INT

_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|.|$)", re.DOTALL)
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_SIMPLE = {"\\": "\\", "t": "\t", "n": "\n", "r": "\r"}
_BLOCK = 8 << 20


def read_items(path: str, columns: OutputColumns, flag: str) -> pa.Array:
    """Distinct canonical items of a file.

    Args:
      path: a Parquet file (`.parquet`), else text, which may be compressed (`.gz`, `.zst`).
      columns: names and kinds of the item columns of the job.
      flag: names the option in errors, for example `--public_items`.

    Returns:
      (n,) large_binary, in the order of first occurrence.

    Raises:
      InputError: the file cannot be read, a column is missing or has another kind, a value is null, empty or no item.
    """
    files = match_files([path], flag)
    parts = []
    for file in files:
        read = _read_parquet if file.path.lower().endswith(".parquet") else _read_text
        parts.append(read(file.path, columns, flag))
    items = pa.chunked_array(parts).unique()
    return items.filter(pc.greater(pc.binary_length(items), 0))  # an empty string is no item


def _read_parquet(path: str, columns: OutputColumns, flag: str) -> pa.Array:
    with open_input(path) as file:
        try:
            source = pq.ParquetFile(file)
            names = source.schema_arrow.names
            for name in columns.names:
                if names.count(name) != 1:
                    raise InputError(f"{flag}: {path} has no column '{name}'")
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


def _read_text(path: str, columns: OutputColumns, flag: str) -> pa.Array:
    data = []
    with open_input(path) as file:
        source = ByteSource(path, file, "text")
        while block := source.read(_BLOCK):
            data.append(block)
    lines = b"".join(data).removeprefix(b"\xef\xbb\xbf").split(b"\n")
    values: list[list[bytes]] = [[] for _ in columns.kinds]
    for number, line in enumerate(lines, start=1):
        if line := line.removesuffix(b"\r"):
            try:
                fields = _fields(line, columns.kinds)
            except ValueError as error:
                raise InputError(f"{flag}: {path}:{number}: {error}") from None
            for column, field in zip(values, fields):
                column.append(field)
    parts = [pa.array(column, pa.large_binary()) for column in values]
    return parts[0] if len(parts) == 1 else canonical.encode_parts(parts)


def _fields(line: bytes, kinds: tuple[str, ...]) -> list[bytes]:
    """Canonical bytes of the parts of one line. Raises ValueError with a complaint."""
    try:
        fields = line.decode().split("\t")
    except UnicodeDecodeError:
        raise ValueError("not valid UTF-8") from None
    if len(fields) != len(kinds):
        raise ValueError(f"{len(fields)} fields separated by tabs, expected {len(kinds)}")
    return [_value(field, kind) for field, kind in zip(fields, kinds)]


def _value(field: str, kind: str) -> bytes:
    if kind == INT:
        if not _INTEGER.fullmatch(field) or not -(2**63) <= int(field) < 2**63:
            raise ValueError("not a 64-bit integer, as the items of the input are")
        return int(field).to_bytes(8, "big", signed=True)
    if kind == BYTES:
        text = _ESCAPE.sub(_unescape(lambda code: chr(int(code, 16))), field)
        try:
            return text.encode("latin-1")
        except UnicodeEncodeError:
            raise ValueError("a character that is no byte; write \\xNN") from None
    return _ESCAPE.sub(_unescape(None), field).encode()


def _unescape(hexadecimal: Callable[[str], str] | None) -> Callable[[re.Match[str]], str]:
    def replace(match: re.Match[str]) -> str:
        code = match[1]
        if code in _SIMPLE:
            return _SIMPLE[code]
        if hexadecimal is not None and len(code) == 3:
            return hexadecimal(code[1:])
        raise ValueError("a backslash must be written as two")

    return replace
