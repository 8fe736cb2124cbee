"""The one encoding of columnar data: named arrays of any lengths <-> bytes.

Everything that crosses a shuffle or lies in a private file is encoded here. Not pickle: pickling an Arrow slice
writes its whole parent buffer, and pickle is neither self-describing nor stable. Not Arrow IPC: a stream of a few
short columns takes half a millisecond and 2 kB, and with 10^10 pairs most messages are short.

Layout: a msgpack map from name to (numpy type, raw bytes). Decoded numpy arrays are read-only. Byte strings travel as
narrow lengths and compressed bytes: items are most of what the first shuffles carry, and a short one would take as
much in offsets as in text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgpack
import numpy as np
import pyarrow as pa

from dpbeam.randomness.prf import string_buffers

Columns = dict[str, np.ndarray | pa.Array]

_PAIRS, _PLAIN, _ZSTD = "2", "text", "zstd"
_COMPRESS_BYTES = 1024  # below it, headers and calls cost more than they save
_PIECES = (8, 4, 2, 1)  # bytes, as numpy has them
_AS_IS, _BITS, _KEPT, _LEAST, _WORDS = "array", "bits", "kept", "least", "words"  # parts of `pack_arrays`
_NARROW = [
    (kind, int(np.iinfo(kind).min), int(np.iinfo(kind).max))
    for kind in (np.uint8, np.uint16, np.int32, np.uint32)
]


def encode(columns: Mapping[str, np.ndarray | pa.Array]) -> bytes:
    """Bytes of named arrays: numpy 1-D, numpy (n, 2), or Arrow (large_)binary without nulls.

    Raises:
      ValueError: an array of another shape or type, or of more than 4 GB.
    """
    return msgpack.packb({name: _to_cell(values) for name, values in columns.items()})


def decode(data: bytes) -> Columns:
    """The named arrays of `encode`; byte strings become large_binary."""
    return {name: _from_cell(*cell) for name, cell in msgpack.unpackb(data, use_list=False).items()}


def _to_cell(values: np.ndarray | pa.Array) -> tuple:
    if isinstance(values, pa.Array):
        return _pack_strings(values)
    values = np.asarray(values)
    if values.dtype.hasobject:
        raise ValueError(f"cannot encode an array of {values.dtype}")
    if values.ndim == 2 and values.shape[1] == 2:
        return _PAIRS + values.dtype.str, np.ascontiguousarray(values).data
    if values.ndim != 1:
        raise ValueError(f"cannot encode an array of shape {values.shape}")
    return values.dtype.str, np.ascontiguousarray(values).data


def _from_cell(kind: str, *parts: Any) -> np.ndarray | pa.Array:
    if kind in (_PLAIN, _ZSTD):
        return _unpack_strings(kind, *parts)
    if kind.startswith(_PAIRS):
        return np.frombuffer(parts[0], kind[len(_PAIRS) :]).reshape(-1, 2)
    return np.frombuffer(parts[0], kind)


def _pack_strings(values: pa.Array) -> tuple:
    """Kind, type of the lengths, lengths, text."""
    if not (pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type)) or values.null_count:
        raise ValueError(f"cannot encode an Arrow array of {values.type} with {values.null_count} nulls")
    if not len(values):
        return _PLAIN, "|u1", b"", b""
    offsets, text = string_buffers(values)
    size = int(offsets[-1] - offsets[0])
    lengths = narrow(np.diff(offsets))
    text = text.slice(int(offsets[0]), size) if text is not None and size else b""
    if size < _COMPRESS_BYTES:
        return _PLAIN, lengths.dtype.str, lengths.data, memoryview(text)
    return (
        _ZSTD,
        lengths.dtype.str,
        lengths.data,
        memoryview(pa.Codec("zstd", compression_level=1).compress(text)),
    )


def _unpack_strings(kind: str, lengths_type: str, lengths: bytes, text: bytes) -> pa.Array:
    offsets = np.concatenate(
        [np.zeros(1, np.int64), np.cumsum(np.frombuffer(lengths, lengths_type), dtype=np.int64)]
    )
    buffer = pa.py_buffer(text)
    if kind == _ZSTD:
        buffer = pa.Codec("zstd").decompress(buffer, decompressed_size=int(offsets[-1]))
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), buffer])


def pack(name: str, values: np.ndarray, default: float = 0) -> Columns:
    """A numeric column in few bytes: one bit per entry that differs from `default`, and those entries.

    Integers shrink to the narrowest type that holds them; the result decodes by `unpack`.
    """
    length = np.array([len(values)], np.int64)
    kept = values != default
    count = int(np.count_nonzero(kept))
    if count == len(values):
        return {f"{name}.length": length, f"{name}.values": narrow(values)}
    columns: Columns = {f"{name}.length": length, f"{name}.values": narrow(np.compress(kept, values))}
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
    result: np.ndarray = np.full(length, default, dtype)
    if len(values):
        kept = np.unpackbits(columns[f"{name}.bits"], count=length).view(bool)
        result[np.flatnonzero(kept)] = values
    return result


def pack_words(name: str, values: np.ndarray) -> Columns:
    """Integers of at least 0, each in as many bytes as the largest needs, as columns of 8, 4, 2 and 1 bytes.

    Decodes by `unpack_words`.
    """
    width = max(1, -(-int(values.max()).bit_length() // 8)) if len(values) else 1
    columns: Columns = {}
    shift = 0
    for size in _PIECES:
        if width & size:
            columns[f"{name}.{shift}"] = (values >> values.dtype.type(shift)).astype(f"<u{size}")
            shift += 8 * size
    return columns


def unpack_words(name: str, columns: Mapping[str, np.ndarray | pa.Array], dtype: type) -> np.ndarray:
    """The column that `pack_words` encoded, as a new array of `dtype`, which must hold it."""
    pieces = {int(key[len(name) + 1 :]): part for key, part in columns.items() if key.startswith(f"{name}.")}
    values: np.ndarray = pieces.pop(0).astype(dtype)
    for shift, part in pieces.items():
        values |= part.astype(dtype) << dtype(shift)
    return values


def pack_arrays(arrays: Mapping[str, np.ndarray]) -> Columns:
    """Arrays of one length in few bytes: a bit for a truth value; of int64 the bytes that vary, of those not 0.

    Other arrays stay as they are. Decodes by `unpack_arrays`.
    """
    columns: Columns = {}
    for number, (name, values) in enumerate(arrays.items()):
        if values.ndim == 1 and values.dtype == bool:
            columns[f"{_BITS}:{number}:{name}"] = np.packbits(values)
        elif values.ndim == 1 and values.dtype == np.int64:
            kept = values != 0
            if not kept.all():
                columns[f"{_KEPT}:{number}"] = np.packbits(kept)
                values = np.compress(kept, values)
            least = np.array([values.min(initial=0)])
            columns[f"{_LEAST}:{number}:{name}"] = least
            # Differences of 64 bits wrap around, and back.
            columns.update(pack_words(f"{_WORDS}:{number}", values.view(np.uint64) - least.view(np.uint64)))
        else:
            columns[f"{_AS_IS}:{number}:{name}"] = values
    return columns


def unpack_arrays(columns: Mapping[str, np.ndarray | pa.Array], length: int) -> dict[str, np.ndarray]:
    """The arrays of this length that `pack_arrays` encoded."""
    arrays: dict[str, np.ndarray] = {}
    for key, column in columns.items():
        kind, number, name = (*key.split(":", 2), "")[:3]
        if kind == _AS_IS:
            arrays[name] = np.asarray(column)
        elif kind == _BITS:
            arrays[name] = np.unpackbits(column, count=length).view(bool)
        elif kind == _LEAST:
            words = unpack_words(f"{_WORDS}:{number}", columns, np.uint64)
            words += np.asarray(column).view(np.uint64)
            values = arrays[name] = words.view(np.int64)
            bits = columns.get(f"{_KEPT}:{number}")
            if bits is not None:
                arrays[name] = np.zeros(length, np.int64)
                arrays[name][np.flatnonzero(np.unpackbits(bits, count=length))] = values
    return arrays


def narrow(values: np.ndarray) -> np.ndarray:
    """Integers in the narrowest of a few types that holds them all; other arrays as they are."""
    if values.dtype.kind not in "iu" or not len(values):
        return values
    low, high = int(values.min()), int(values.max())
    for candidate, least, most in _NARROW:
        if least <= low and high <= most:
            return values.astype(candidate, copy=False)
    return values


def rows_within(size: int, values: pa.Array) -> int:
    """How many rows make about `size` bytes, by the mean over `values`; at least one."""
    return max(1, size * len(values) // max(values.nbytes, 1))
