"""The one encoding of columnar data: named arrays of any lengths <-> bytes of an Arrow IPC stream.

Everything that crosses a shuffle or lies in a private file is encoded here. Not pickle: pickling an Arrow slice
writes its whole parent buffer, and pickle is neither self-describing nor stable.

Layout: one record batch with a single row; each array is one large-list cell, so lengths may differ. Decoding
is zero-copy, and decoded numpy arrays are read-only.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

Columns = dict[str, "np.ndarray | pa.Array"]


def encode(columns: Mapping[str, np.ndarray | pa.Array]) -> bytes:
    """Arrow IPC bytes of named arrays: numpy 1-D, numpy (n, 2), or Arrow arrays without nulls."""
    names, cells = [], []
    for name, values in columns.items():
        array = values if isinstance(values, pa.Array) else _to_arrow(np.asarray(values))
        offsets = pa.array([0, len(array)], pa.int64())
        names.append(name)
        cells.append(pa.LargeListArray.from_arrays(offsets, array))
    batch = pa.RecordBatch.from_arrays(cells, names=names)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def decode(data: bytes) -> Columns:
    """The named arrays of `encode`; binary and string columns stay Arrow arrays, all others become numpy."""
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        batch = reader.read_next_batch()
    return {name: _from_arrow(batch.column(i).flatten()) for i, name in enumerate(batch.schema.names)}


def _to_arrow(values: np.ndarray) -> pa.Array:
    if values.ndim == 2 and values.shape[1] == 2:
        flat = pa.array(np.ascontiguousarray(values).reshape(-1))
        return pa.FixedSizeListArray.from_arrays(flat, 2)
    if values.ndim != 1:
        raise ValueError(f"cannot encode an array of shape {values.shape}")
    return pa.array(np.ascontiguousarray(values))


def _from_arrow(array: pa.Array) -> np.ndarray | pa.Array:
    kind = array.type
    if pa.types.is_fixed_size_list(kind):
        return array.flatten().to_numpy().reshape(-1, 2)
    if pa.types.is_boolean(kind):
        return array.to_numpy(zero_copy_only=False)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return array.to_numpy()
    return array


def pack(name: str, values: np.ndarray, default: float = 0) -> Columns:
    """A numeric column in few bytes: one bit per entry that differs from `default`, and those entries.

    Integers shrink to the narrowest type that holds them; the result decodes by `unpack`.
    """
    length = np.array([len(values)], np.int64)
    kept = values != default
    count = int(np.count_nonzero(kept))
    if count == len(values):
        return {f"{name}.length": length, f"{name}.values": narrow(values)}
    columns: Columns = {f"{name}.length": length, f"{name}.values": narrow(values[kept])}
    if count:
        columns[f"{name}.bits"] = np.packbits(kept)
    return columns


def unpack(
    name: str, columns: Mapping[str, np.ndarray | pa.Array], dtype: type, default: float = 0
) -> np.ndarray:
    """The column that `pack` encoded, as a new array of `dtype`."""
    length = int(columns[f"{name}.length"][0])
    values = columns[f"{name}.values"]
    if len(values) == length:
        return values.astype(dtype)
    result = np.full(length, default, dtype)
    if len(values):
        kept = np.unpackbits(columns[f"{name}.bits"], count=length).view(bool)
        result[kept] = values
    return result


def narrow(values: np.ndarray) -> np.ndarray:
    """Integers in the narrowest of a few types that holds them all; other arrays as they are."""
    if values.dtype.kind not in "iu" or not len(values):
        return values
    low, high = int(values.min()), int(values.max())
    for candidate in (np.uint8, np.uint16, np.int32, np.uint32):
        info = np.iinfo(candidate)
        if info.min <= low and high <= info.max:
            return values.astype(candidate, copy=False)
    return values
