"""Columns within columns: a name with dots reaches a field of a struct, unless a column has that name itself."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def type_at(schema: pa.Schema, name: str) -> pa.DataType | None:
    """The type of a column or of a field in one; None where there is none."""
    if name in schema.names:
        return schema.field(name).type
    return _fields(schema, name)[0]


def level_missing(schema: pa.Schema, name: str) -> str:
    """At what level a name reaches nothing, for the end of a message; empty where there is not even the column."""
    return _fields(schema, name)[1]


def _fields(schema: pa.Schema, name: str) -> tuple[pa.DataType | None, str]:
    """As of `type_at` and `level_missing`, where no column has the whole name."""
    first, *parts = name.split(".")
    if schema.names.count(first) != 1 or not parts:
        return None, ""
    at, kind = first, schema.field(first).type
    for part in parts:
        if not pa.types.is_struct(kind):
            return None, f"; '{at}' is of type {kind}, which has no fields"
        if kind.get_field_index(part) < 0:
            fields = ", ".join(field.name for field in kind)
            return None, f"; '{at}' has no field '{part}'" + (f", only {fields}" if fields else "")
        at, kind = f"{at}.{part}", kind.field(part).type
    return kind, ""


def column_at(table: pa.Table | pa.RecordBatch, name: str) -> pa.ChunkedArray | pa.Array:
    """The column, or the field in one, of a name that `type_at` knows; null where what it lies in is."""
    if name in table.schema.names:
        return table.column(name)
    first, *parts = name.split(".")
    return pc.struct_field(table.column(first), parts)


def getter(name: str) -> Callable[[Mapping[str, Any]], Any]:
    """What takes the value of a name out of an object; None where it, or what it lies in, is missing or null.

    The taker raises `NoObjectError` where a value on the way is none.
    """
    parts = name.split(".")
    if len(parts) == 1:
        return operator.methodcaller("get", name)

    def get(row: Mapping[str, Any]) -> Any:
        if name in row:
            return row[name]
        value: Any = row
        for depth, part in enumerate(parts):
            if value is None:
                return None
            if type(value) is not dict:
                raise NoObjectError(".".join(parts[:depth]), value)
            value = value.get(part)
        return value

    return get


def depth_of(row: Mapping[str, Any], name: str) -> int:
    """How many of the names in one an object has, from the outside."""
    parts = name.split(".")
    value: Any = row
    for depth, part in enumerate(parts):
        if name in row:
            break
        if type(value) is not dict or part not in value:
            return depth
        value = value[part]
    return len(parts)


class NoObjectError(TypeError):
    """A value has no fields, and one of them was asked for.

    Args:
      at: its name.
    """

    def __init__(self, at: str, value: Any):
        super().__init__(at)
        self.at, self.value = at, value
