"""The one encoding of columnar data: named arrays of any lengths <-> bytes of an Arrow IPC stream.

Everything that crosses a shuffle or lies in a private file is encoded here. Not pickle: pickling an Arrow slice
writes its whole parent buffer, and pickle is neither self-describing nor stable.

Layout: one record batch with a single row; each array is one large-list cell, so lengths may differ. Numeric columns
decode without a copy, and decoded numpy arrays are read-only. Byte strings travel as narrow lengths and compressed
bytes: items are most of what the first shuffles carry, and a short one would take as much in offsets as in text.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from dpbeam.randomness.prf import string_buffers

Columns = dict[str, "np.ndarray | pa.Array"]

_LENGTHS, _PLAIN, _ZSTD = ".lengths", ".plain", ".zstd"
_COMPRESS_BYTES = 1024  # below it, headers and calls cost more than they save


def encode(columns: Mapping[str, np.ndarray | pa.Array]) -> bytes:
    """Arrow IPC bytes of named arrays: numpy 1-D, numpy (n, 2), or Arrow arrays without nulls.

    Raises:
      ValueError: an array of another shape, or a name that ends like the parts of packed strings.
    """
    cells: dict[str, pa.Array] = {}
    for name, values in columns.items():
        if name.endswith((_LENGTHS, _PLAIN, _ZSTD)):
            raise ValueError(f"cannot encode a column of the name {name!r}")
        if not isinstance(values, pa.Array):
            cells[name] = _cell(_to_arrow(np.asarray(values)))
        elif pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
            cells.update({name + key: _cell(part) for key, part in _pack_strings(values).items()})
        else:
            cells[name] = _cell(values)
    batch = pa.RecordBatch.from_arrays(list(cells.values()), names=list(cells))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def decode(data: bytes) -> Columns:
    """The named arrays of `encode`; byte strings become large_binary, other strings stay as they were, all others
    become numpy."""
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        batch = reader.read_next_batch()
    columns: Columns = {}
    lengths: dict[str, np.ndarray] = {}
    for i, key in enumerate(batch.schema.names):
        values = batch.column(i).flatten()
        name, dot, kind = key.rpartition(".")
        if dot + kind == _LENGTHS:
            lengths[name] = values.to_numpy()
        elif dot + kind in (_PLAIN, _ZSTD) and name in lengths:
            columns[name] = _unpack_strings(lengths[name], values, dot + kind)
        else:
            columns[key] = _from_arrow(values)
    return columns


def _cell(array: pa.Array) -> pa.Array:
    return pa.LargeListArray.from_arrays(pa.array([0, len(array)], pa.int64()), array)


def _pack_strings(values: pa.Array) -> dict[str, pa.Array]:
    """Lengths and concatenated bytes; the order of the keys is what `decode` relies on."""
    if not len(values):
        return {_LENGTHS: pa.array([], pa.uint8()), _PLAIN: pa.array([], pa.uint8())}
    offsets, text = string_buffers(values)
    size = int(offsets[-1] - offsets[0])
    text = text.slice(int(offsets[0]), size) if size else pa.py_buffer(b"")
    key = _PLAIN if size < _COMPRESS_BYTES else _ZSTD
    if key == _ZSTD:
        text = pa.Codec("zstd", compression_level=1).compress(text)
    packed = pa.Array.from_buffers(pa.uint8(), text.size, [None, text])
    return {_LENGTHS: pa.array(narrow(np.diff(offsets))), key: packed}


def _unpack_strings(lengths: np.ndarray, text: pa.Array, key: str) -> pa.Array:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    buffer = text.buffers()[1].slice(text.offset, len(text)) if len(text) else pa.py_buffer(b"")
    if key == _ZSTD:
        buffer = pa.Codec("zstd").decompress(buffer, decompressed_size=int(offsets[-1]))
    return pa.Array.from_buffers(pa.large_binary(), len(lengths), [None, pa.py_buffer(offsets), buffer])


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


def rows_within(size: int, values: pa.Array) -> int:
    """How many rows make about `size` bytes, by the mean over `values`; at least one."""
    return max(1, size * len(values) // max(values.nbytes, 1))
