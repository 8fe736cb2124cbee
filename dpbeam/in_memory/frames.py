"""Columns of whatever a caller holds in memory, as Arrow arrays: frames, mappings, pairs of columns; any library's.

No library of frames is imported: pandas, polars and others are met by the Arrow PyCapsule protocol, or by the few
methods that their columns share. Whether a column *declares* its type is kept beside it: the type of a declared column
is the caller's schema and public, that of Python values is the data's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dpbeam.errors import DataError
from dpbeam.kernels.canonical import from_values

_ACCEPTED = (
    "data is a frame of pandas or polars, a pyarrow table or record batch, a mapping of columns, or a tuple "
    "(users, items) of two columns"
)


@dataclass(frozen=True)
class Column:
    """A column in Arrow.

    Attributes:
      name: of the column, for messages.
      values: (n,) Arrow array or chunked array; nulls stand for missing values.
      declared: whether the type is that of the caller's column, not of its values.
    """

    name: str
    values: pa.Array | pa.ChunkedArray
    declared: bool


def frame_columns(data: Any, names: Sequence[str], what: str = "data") -> list[Column]:
    """The named columns of a frame: of pandas or polars, an Arrow table, record batch or stream, or a mapping.

    Args:
      what: names the argument in errors.

    Raises:
      InputError: this is no frame, a column is missing or doubled, or no Arrow type holds its values; the columns
        differ in length.
    """
    frame, known = _named(data, what)
    for name in names:
        if known.count(name) != 1:
            has = "several columns" if name in known else "no column"
            raise DataError(f"{what} has {has} '{name}'; its columns are {', '.join(map(str, known))}")
    return same_length([column(frame[name], name) for name in names])


def _named(data: Any, what: str) -> tuple[Any, list[Any]]:
    """A frame from which columns can be had by name, and these names. Raises InputError: this is none."""
    if isinstance(data, Mapping):
        return data, list(data)
    if isinstance(data, pa.Table | pa.RecordBatch):
        return data, data.schema.names
    if _has_columns(data):
        return data, list(data.columns)
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        frame = _table(data, what)
        return frame, frame.schema.names
    fix = "; call collect() first" if hasattr(data, "collect") else ""
    raise DataError(f"{_ACCEPTED}; got {type(data).__name__} as {what}{fix}")


def has_column(data: Any, name: str) -> bool:
    """Whether a frame has a column of this name. Raises InputError: this is no frame."""
    return name in _named(data, "data")[1]


def same_length(columns: list[Column]) -> list[Column]:
    """The columns; InputError if they differ in length."""
    if len({len(one.values) for one in columns}) > 1:
        raise DataError(f"columns {', '.join(repr(c.name) for c in columns)} differ in length")
    return columns


def is_frame(data: Any) -> bool:
    """Whether `frame_columns` would look for columns in it, rather than take it for a column."""
    if isinstance(data, pa.Array | pa.ChunkedArray | np.ndarray):
        return False
    return isinstance(data, Mapping) or hasattr(data, "columns") or hasattr(data, "schema")


def column(values: Any, name: str) -> Column:
    """One column: an Arrow, numpy, pandas or polars array, any that exports Arrow, or an iterable of Python values.

    Python values, also in arrays of objects, must all be strings, all integers or all bytes; None is a null.

    Raises:
      InputError: this is no column, its values mix types, or no Arrow type holds them.
    """
    where = f"column '{name}'"
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return Column(name, values, not pa.types.is_null(values.type))
    dtype = str(getattr(values, "dtype", ""))
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise DataError(f"{where} is an array or a list of values, got {type(values).__name__}")
    # Of polars too, which would hand its objects over as addresses.
    if dtype.lower() == "object" or not _is_array(values):
        return Column(name, _of_values(values, name), False)
    dimensions = getattr(values, "ndim", 1)
    if dimensions != 1:
        raise DataError(f"{where} has {dimensions} dimensions, not one")
    try:
        if hasattr(values, "__arrow_c_stream__"):
            array = pa.chunked_array(values)
        elif dtype.startswith("StringDType"):  # of numpy, which pyarrow does not know
            array = pa.array(list(values), pa.large_string())
        else:
            array = pa.array(values, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        # What the libraries say may quote a value.
        raise DataError(
            f"{where} cannot be read as an Arrow array; users and items are strings, integers or bytes"
        ) from None
    return Column(name, array, not pa.types.is_null(array.type))


def _is_array(values: Any) -> bool:
    exports = ("__arrow_c_stream__", "__arrow_c_array__", "__arrow_array__", "__array__")
    return any(hasattr(values, name) for name in exports)


def _has_columns(data: Any) -> bool:
    """Whether data[name] is a column: so in pandas and polars; in a relation it is another relation."""
    return all(hasattr(data, name) for name in ("columns", "dtypes", "to_dict", "__getitem__", "__len__"))


def _table(data: Any, what: str) -> pa.Table:
    try:
        return pa.table(data)
    except (pa.ArrowException, TypeError, ValueError, AttributeError):
        fix = "; call collect() first" if hasattr(data, "collect") else ""
        raise DataError(f"{_ACCEPTED}; {type(data).__name__} as {what} cannot be read as one{fix}") from None


def _of_values(values: Iterable[Any], name: str) -> pa.Array:
    """(n,) Arrow array of Python values or scalars of numpy; the null type where there is none but nulls."""
    isna = getattr(values, "isna", None)
    listed = list(values)
    null = np.array([value is None for value in listed], bool) if isna is None else np.asarray(isna(), bool)
    return from_values(
        [
            None if no else value.item() if isinstance(value, np.generic) else value
            for value, no in zip(listed, null)
        ],
        name,
    )
