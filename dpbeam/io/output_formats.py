"""The formats of the output, and how a value is written in each; `item_lists` reads them all back.

- Parquet: columns by name and type.
- Text: one row a line, no header, values separated by tabs. Backslash, tab, newline and carriage return are written
  as `\\\\`, `\\t`, `\\n`, `\\r`, other control characters as `\\xNN` and Unicode's two line separators as `\\u2028`
  and `\\u2029`: a line stays a line in every program, and shows on a terminal as what it is. Of the bytes kind,
  everything outside printable ASCII is `\\xNN`, a byte.
- CSV: a header and RFC 4180. Values stand as they are, quoted where they hold a comma, quote, control character or
  nothing; line breaks too, so that a row may have several lines. Bytes are written as in text.
- JSON lines: an object per row. Integers are numbers, bytes are strings as in text, null is null.
"""

from __future__ import annotations

import re
from typing import BinaryIO

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dpbeam.io.new_files import OUTPUT_FORMATS
from dpbeam.kernels import canonical

SHARD_NAME = re.compile(rf"(\d{{5}})-of-(\d{{5}})\.({'|'.join(OUTPUT_FORMATS.values())})")

_ROWS_PER_GROUP = 1_000_000
_NAMED = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
_CONTROL = r"[\x00-\x1f\x7f-\x{9f}\x{2028}\x{2029}]"
_CONTROL_PYTHON = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.|$)", re.DOTALL)
_PLAIN_OF = {"\\": "\\", "t": "\t", "n": "\n", "r": "\r"}
_BYTE = {
    byte: _NAMED.get(chr(byte), chr(byte) if 0x20 <= byte < 0x7F else f"\\x{byte:02x}") for byte in range(256)
}
# What must be quoted, and a little more: readers differ about spaces at the ends.
_CSV_SPECIAL = r'\A\z|[",\x00-\x1f\x7f]|\A | \z'


def shard_name(shard: int, num_shards: int, format: str) -> str:
    """`00000-of-00003.parquet`"""
    return f"{shard:05d}-of-{num_shards:05d}.{OUTPUT_FORMATS[format]}"


def write_columns(file: BinaryIO, arrays: list[pa.Array], schema: pa.Schema, format: str) -> None:
    """Write columns in the order of their rows.

    Args:
      arrays: large_string, large_binary, int64, float64 or bool each, of one length.
    """
    if format == "parquet":
        _write_parquet(file, arrays, schema)
        return
    if format not in OUTPUT_FORMATS:
        raise ValueError(f"format must be one of {', '.join(OUTPUT_FORMATS)}, got {format!r}")
    if format == "csv":
        file.write(
            ",".join(csv_column(pa.array(schema.names, pa.large_string())).to_pylist()).encode() + b"\n"
        )
    write = _write_json if format == "jsonl" else _write_lines
    for start in range(0, len(arrays[0]), _ROWS_PER_GROUP):
        write(file, [array.slice(start, _ROWS_PER_GROUP) for array in arrays], schema.names, format)


def _write_parquet(file: BinaryIO, arrays: list[pa.Array], schema: pa.Schema) -> None:
    table = pa.Table.from_arrays(arrays, schema=schema)
    # The Arrow schema is left out: other readers would be none the wiser, and pyarrow would read large types.
    with pq.ParquetWriter(file, schema, compression="zstd", store_schema=False) as writer:
        writer.write_table(table, row_group_size=_ROWS_PER_GROUP)
        if schema.metadata:
            writer.add_key_value_metadata(schema.metadata)


def _write_lines(file: BinaryIO, arrays: list[pa.Array], names: list[str], format: str) -> None:
    column, separator = (text_column, "\t") if format == "text" else (csv_column, ",")
    columns = [column(array) for array in arrays]
    lines = pc.binary_join_element_wise(*columns, pa.scalar(separator, pa.large_string()))
    lines = pc.binary_join_element_wise(lines, *(pa.scalar(text, pa.large_string()) for text in ("", "\n")))
    file.write(canonical.bytes_views(lines)[1].data)


def _write_json(file: BinaryIO, arrays: list[pa.Array], names: list[str], format: str) -> None:
    columns = [
        (text_column(array) if pa.types.is_large_binary(array.type) else array).to_pylist()
        for array in arrays
    ]
    for row in zip(*columns):
        file.write(orjson.dumps(dict(zip(names, row)), option=orjson.OPT_APPEND_NEWLINE))


def text_column(array: pa.Array) -> pa.Array:
    """Values as they stand in text: (n,) large_string, escaped."""
    if pa.types.is_large_binary(array.type):
        return pa.array(
            ["".join(_BYTE[byte] for byte in value) for value in array.to_pylist()], pa.large_string()
        )
    if not pa.types.is_large_string(array.type):
        return array.cast(pa.large_string()).fill_null("")  # a number, or none
    for raw, escaped in _NAMED.items():
        array = pc.replace_substring(array, raw, escaped)
    if pc.any(pc.match_substring_regex(array, _CONTROL)).as_py():
        array = pa.array(
            [_CONTROL_PYTHON.sub(_code, value) for value in array.to_pylist()], pa.large_string()
        )
    return array


def csv_column(array: pa.Array) -> pa.Array:
    """Values as they stand in CSV: (n,) large_string, quoted where needed."""
    if not (pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)):
        return text_column(array)  # a null is an empty field, which an empty string is not
    if pa.types.is_large_binary(array.type):
        array = text_column(array)
    quoted = pc.binary_join_element_wise(
        pa.scalar('"', pa.large_string()),
        pc.replace_substring(array, '"', '""'),
        pa.scalar('"', pa.large_string()),
        pa.scalar("", pa.large_string()),
    )
    return pc.if_else(pc.match_substring_regex(array, _CSV_SPECIAL), quoted, array)


def _code(character: re.Match[str]) -> str:
    number = ord(character[0])
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}"


def unescape(text: str) -> str:
    """The string that `text_column` wrote. Raises ValueError with a complaint."""

    def plain(escape: re.Match[str]) -> str:
        code = escape[1]
        if code in _PLAIN_OF:
            return _PLAIN_OF[code]
        if len(code) < 3 or 0xD800 <= int(code[1:], 16) < 0xE000:
            raise ValueError("a backslash must be written as two")
        return chr(int(code[1:], 16))

    return _ESCAPE.sub(plain, text)


def unescape_bytes(text: str) -> bytes:
    """The bytes that `text_column` wrote. Raises ValueError with a complaint."""
    try:
        return unescape(text).encode("latin-1")
    except UnicodeEncodeError:
        raise ValueError("a character that is no byte; write \\xNN") from None
