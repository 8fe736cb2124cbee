"""The one encoding of columnar data: named arrays of any lengths <-> bytes.

Everything that crosses a shuffle or lies in a private file is encoded here. Not pickle: pickling an Arrow slice
writes its whole parent buffer, and pickle is neither self-describing nor stable. Not Arrow IPC: a stream of a few
short columns takes half a millisecond and 2 kB, and with 10^10 pairs most messages are short.

Layout: a msgpack map from name to (numpy type, raw bytes). In more than a few kB the map has sizes in place of the
bytes, which follow it: they are copied once to be encoded and never to be decoded. Decoded numpy arrays are read-only,
and may hold all that they were decoded from. Byte strings travel as narrow lengths and compressed bytes: items are most
of what the first shuffles carry, and a short one would take as much in offsets as in text.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgpack
import numpy as np
import pyarrow as pa
import zstandard

from dpbeam.randomness.prf import string_buffers

Columns = dict[str, np.ndarray | pa.Array]

_PAIRS, _PLAIN, _ZSTD = "2", "text", "zstd"
_APART, _ALIGNED = b"\xc1dpb", 8  # nothing that msgpack writes begins so
_APART_BYTES = 4096  # below, a head of its own takes longer than copies
_COMPRESS_BYTES = 1024  # below it, headers and calls cost more than they save
_PIECES = (8, 4, 2, 1)  # bytes, as numpy has them
_AS_IS, _BITS, _KEPT, _LEAST, _WORDS = "array", "bits", "kept", "least", "words"  # parts of `pack_arrays`
_NARROW = [
    (kind, int(np.iinfo(kind).min), int(np.iinfo(kind).max))
    for kind in (np.uint8, np.uint16, np.int32, np.uint32)
]


@dataclass(frozen=True)
class Packed:
    """A column as a message has it: made once for several messages, or taken from one as it is."""

    cell: tuple

    @classmethod
    def of(cls, values: np.ndarray | pa.Array) -> Packed:
        """As `encode` writes these values, which raises what it raises."""
        return cls(_to_cell(values))

    @classmethod
    def from_cell(cls, cell: tuple) -> Packed:
        """Of the parts of a message."""
        return cls(tuple(part if isinstance(part, str) else memoryview(part) for part in cell))

    @property
    def nbytes(self) -> int:
        """Bytes of the packed values."""
        return sum(part.nbytes for part in self.cell if not isinstance(part, str))

    def unpack(self) -> np.ndarray | pa.Array:
        """The values."""
        return _from_cell(*self.cell)


class _Zstd(threading.local):
    """What a thread compresses by, made once: to make it takes as long as to compress 10 kB."""

    def __init__(self) -> None:
        self._compressor = zstandard.ZstdCompressor(level=1)
        self._decompressor = zstandard.ZstdDecompressor()

    def compress(self, text: Any) -> bytes:
        return self._compressor.compress(text)

    def decompress(self, data: bytes | memoryview, size: int) -> bytes:
        """Raises ValueError where it is not text of this many bytes."""
        try:
            if zstandard.frame_content_size(data) == size:
                return self._decompressor.decompress(data)
        except zstandard.ZstdError:
            pass
        raise ValueError(f"this is no compressed text of {size} bytes")


_zstd = _Zstd()

Encodable = Mapping[str, np.ndarray | pa.Array | Packed]


def encode(columns: Encodable) -> bytes:
    """Bytes of named arrays: numpy 1-D, numpy (n, 2), or Arrow (large_)binary without nulls.

    Raises:
      ValueError: an array of another shape or type.
    """
    cells = _to_cells(columns)
    parts = [part for cell in cells.values() for part in cell if not isinstance(part, str)]
    if sum(part.nbytes for part in parts) < _APART_BYTES:
        return msgpack.packb(cells)
    sizes = {
        n: [part if isinstance(part, str) else part.nbytes for part in cell] for n, cell in cells.items()
    }
    head = memoryview(msgpack.packb(sizes))
    pieces = [_APART, head.nbytes.to_bytes(_ALIGNED - len(_APART), "little")]
    for part in (head, *parts):
        pieces += (part, bytes(-part.nbytes % _ALIGNED))
    return b"".join(pieces)


def encode_map(columns: Encodable) -> bytes:
    """As `encode`, as one map of any size: what is kept for other runs, so that version 1.0 reads it too.

    Raises:
      ValueError: an array of another shape or type, or of more than 4 GB.
    """
    return msgpack.packb(_to_cells(columns))


def decode(data: bytes, packed: Callable[[str], bool] | None = None) -> Columns:
    """The named arrays of `encode` or `encode_map`; byte strings become large_binary.

    Args:
      packed: columns of which it is true stay as they are, `Packed`, for another message or for later.

    Raises:
      ValueError: these are no bytes of `encode`, or not all.
    """
    return {
        name: Packed.from_cell(cell) if packed is not None and packed(name) else _from_cell(*cell)
        for name, cell in _cells(data).items()
    }


def _cells(data: bytes) -> dict[str, tuple]:
    if not data.startswith(_APART):
        return msgpack.unpackb(data, use_list=False)
    view, end = memoryview(data), _ALIGNED

    def next_part(size: int) -> memoryview:
        nonlocal end
        begin, end = end, end + size + -size % _ALIGNED
        return view[begin : begin + size]

    sizes = msgpack.unpackb(next_part(int.from_bytes(view[len(_APART) : _ALIGNED], "little")))
    cells = {
        n: tuple(part if isinstance(part, str) else next_part(part) for part in cell)
        for n, cell in sizes.items()
    }
    if end != len(data):
        raise ValueError(f"{len(data)} bytes of columns in place of {end}")
    return cells


def _to_cells(columns: Encodable) -> dict[str, tuple]:
    return {
        n: values.cell if isinstance(values, Packed) else _to_cell(values) for n, values in columns.items()
    }


def _to_cell(values: np.ndarray | pa.Array) -> tuple:
    """Kind, and for byte strings the type of their lengths; then the buffers, as memoryviews."""
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
        return _PLAIN, "|u1", memoryview(b""), memoryview(b"")
    offsets, text = string_buffers(values)
    size = int(offsets[-1] - offsets[0])
    lengths = narrow(np.diff(offsets))
    text = text.slice(int(offsets[0]), size) if text is not None and size else b""
    kind = _PLAIN
    if size >= _COMPRESS_BYTES:
        kind, text = _ZSTD, _zstd.compress(text)
    return kind, lengths.dtype.str, lengths.data, memoryview(text)


def _unpack_strings(
    kind: str, lengths_type: str, lengths: bytes | memoryview, text: bytes | memoryview
) -> pa.Array:
    offsets = np.concatenate(
        [np.zeros(1, np.int64), np.cumsum(np.frombuffer(lengths, lengths_type), dtype=np.int64)]
    )
    buffer = pa.py_buffer(_zstd.decompress(text, int(offsets[-1])) if kind == _ZSTD else text)
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
