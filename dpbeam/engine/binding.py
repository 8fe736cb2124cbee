"""One key, one set of data: what noise is added to is committed to before the noise is drawn.

Noise is a function of key, round and item. Added to two sets of data it would show their difference exactly: where a
pipeline runs twice, a step is tried again after a file was replaced, or a folder is opened again. So before a draw its
place (a shard or the hub, on a trip) is bound to a digest of the exact numbers that the noise meets; another draw in
that place must have the same digest, or nothing is drawn. An honest retry has it: everything that a step computes is a
function of its input and the key.

In memory a key serves one run (`RunKey.spend`), which draws once in each place, and nothing needs to be bound.
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Callable, Iterable, Mapping

import numpy as np
import pyarrow as pa

from dpbeam.randomness.prf import string_buffers

#: Binds a place to a digest for good: whether it is the digest that the place was bound to first.
Bind = Callable[[str, bytes], bool]

OTHER_DATA = (
    "the noise of this run belongs to other data or settings: its input has changed since, or its pipeline or private "
    "folder is used a second time; start a new run, with a new private folder"
)


def digest_of(key: bytes, parts: Iterable[Mapping[str, np.ndarray | pa.Array]]) -> bytes:
    """Keyed digest of columns, 32 bytes: HMAC-SHA-256 of names, types, shapes and values, each with its length.

    Guarantee: for two lists of different columns the digests differ, but for a collision of SHA-256; without the key
    it tells nothing.

    Args:
      parts: numpy arrays without objects, Arrow (large_)binary arrays without nulls.
    """
    mac = hmac.new(key, digestmod="sha256")
    for columns in parts:
        mac.update(struct.pack("<Q", len(columns)))
        for name in sorted(columns):
            for piece in _pieces(name, columns[name]):
                mac.update(struct.pack("<Q", len(piece)))
                mac.update(piece)
    return mac.digest()


def _pieces(name: str, values: np.ndarray | pa.Array) -> tuple[bytes | memoryview, ...]:
    """Type, shape and name, then the values: one piece of numbers, two of byte strings."""
    if not isinstance(values, pa.Array):
        return f"{values.dtype.str} {values.shape} {name}".encode(), _bytes_of(values)
    if not len(values):
        return f"text {name}".encode(), b"", b""
    offsets, text = string_buffers(values)
    held = memoryview(b"" if text is None else text)[int(offsets[0]) : int(offsets[-1])]
    return f"text {name}".encode(), _bytes_of(np.diff(offsets).astype(np.int64)), held


def _bytes_of(values: np.ndarray) -> memoryview:
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8).data
