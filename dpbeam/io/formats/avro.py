"""Reading Avro container files; needs the extra `avro`.

A file is read from its start by one worker: blocks have no index. Strings that are no UTF-8 are bad rows, as in every
format; what else is wrong with a file is an error whatever `on_bad_row` says, for nobody knows what is missing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa

from dpbeam.errors import DataError, InputError, UnavailableError
from dpbeam.io.formats.base import Format, Look, Piece
from dpbeam.io.rows import Counts, Rows, check_types, schema_types
from dpbeam.io.streams import open_input
from dpbeam.kernels.canonical import Kinds, decimal_text
from dpbeam.rows.nested import getter, type_at

if TYPE_CHECKING:
    from dpbeam.io.spec import InputSpec

_ROWS = 100_000  # at once
_TYPES = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.large_binary(),
    "fixed": pa.large_binary(),
    "string": pa.large_string(),
    "enum": pa.large_string(),
}
_OTHER = pa.struct([])  # which nothing reads, and messages name


class Avro(Format):
    """Avro container files."""

    name, title, suffixes = "avro", "an Avro", ("avro",)
    magic = b"Obj\x01"
    lacks = "header"
    bytes_per_pair = 15
    why_not_compressed = "Avro is compressed inside; decompress the file itself"
    pipes = True
    has_lists = True
    declares_types = True
    modules = ("fastavro",)
    extra = "avro"

    def look(self, piece: Piece, spec: InputSpec) -> Look:
        with open_input(piece.path) as file, _reading(piece.path):
            return Look(*schema_types(spec, _schema(_reader(file).writer_schema), piece.path))

    def count_rows(self, path: str, spec: InputSpec) -> int:
        from fastavro import block_reader

        with open_input(path) as file, _reading(path):
            return sum(block.num_records for block in block_reader(file))

    def read(
        self, piece: Piece, file: BinaryIO, spec: InputSpec, kinds: Kinds, counts: Counts
    ) -> Iterator[Rows]:
        path, first = piece.path, 0
        with _reading(path):
            records = _reader(file)
            schema = _schema(records.writer_schema)
        check_types(path, spec, schema_types(spec, schema, path), kinds)
        columns = {name: (getter(name), type_at(schema, name)) for name in spec.columns}
        while True:
            with _reading(path):
                batch = list(itertools.islice(records, _ROWS))
            if not batch:
                return
            arrays = {name: _array(list(map(get, batch)), kind) for name, (get, kind) in columns.items()}
            user = None if spec.user_column is None else arrays[spec.user_column]
            yield Rows(user, [arrays[name] for name in spec.item_columns], _where(path, first), path=path)
            first += len(batch)


def _where(path: str, first: int) -> Any:
    return lambda row: f"{path}: row {first + row + 1}"


def _reader(file: BinaryIO) -> Any:
    import fastavro

    # What is no UTF-8 comes as surrogates and goes back to its bytes, so that its row alone is bad.
    return fastavro.reader(file, handle_unicode_errors="surrogateescape")


@contextmanager
def _reading(path: str) -> Iterator[None]:
    """Makes an InputError of whatever the library raises over bytes that are no Avro: errors of many kinds."""
    try:
        yield
    except (InputError, UnavailableError):
        raise
    except Exception as error:
        if "codec" in str(error):
            problem = "is compressed in a way that is not read here; write it with null, deflate, snappy or zstandard"
        else:
            problem = "damaged Avro file, or cut off"
        raise DataError(f"{path}: {problem}") from None


def _schema(writer: Any) -> pa.Schema:
    """The columns of a record's schema; other schemas have none."""
    named: dict[str, pa.DataType] = {}
    fields = writer["fields"] if isinstance(writer, dict) and writer.get("type") == "record" else ()
    return pa.schema([(field["name"], _type(field["type"], named)) for field in fields])


def _type(schema: Any, named: dict[str, pa.DataType]) -> pa.DataType:
    if isinstance(schema, list):  # a union: of one type and null
        types = [_type(part, named) for part in schema]
        others = [kind for kind in types if not pa.types.is_null(kind)]
        return others[0] if len(others) == 1 else _OTHER if others else pa.null()
    if not isinstance(schema, dict):
        return _TYPES.get(schema) or named.get(schema, _OTHER)
    if schema["type"] == "array":
        items = _type(schema["items"], named)
        return _OTHER if pa.types.is_null(items) else pa.large_list(items)
    if schema["type"] == "record":
        return pa.struct([(field["name"], _type(field["type"], named)) for field in schema["fields"]])
    arrow = _TYPES.get(schema["type"], _OTHER) if isinstance(schema["type"], str) else _OTHER
    if schema.get("logicalType") in _LOGICAL:
        arrow = _LOGICAL[schema["logicalType"]]
    for name in {schema.get("name"), f"{schema.get('namespace', '')}.{schema.get('name')}"}:
        named[name or ""] = arrow
    return arrow


#: What the library makes of them.
_LOGICAL = {
    "uuid": pa.uuid(),
    "decimal": pa.decimal256(76),  # of any precision and scale
    "date": pa.date32(),
    "time-millis": pa.time32("ms"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("ms", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
}


#: Types that are read as the texts that `dpbeam.kernels.canonical` writes.
_TEXTS = (_LOGICAL["uuid"], _LOGICAL["decimal"])


def _text(value: Any) -> str:
    return decimal_text(value) if isinstance(value, Decimal) else str(value)


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if kind in (pa.large_string(), *_TEXTS):
        data = [
            None if value is None else _text(value).encode("utf-8", "surrogateescape") for value in values
        ]
        return pa.array(data, pa.large_binary()).view(pa.large_string())
    if pa.types.is_large_list(kind):
        sizes = [None if value is None else len(value) for value in values]
        flat = _array([item for value in values if value for item in value], kind.value_type)
        offsets = pa.array([0, *itertools.accumulate(size or 0 for size in sizes)], pa.int64())
        return pa.LargeListArray.from_arrays(offsets, flat, mask=pa.array([size is None for size in sizes]))
    return pa.array(values, kind)
