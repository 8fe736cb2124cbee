"""One key, one set of data: what noise is added to is committed to before the noise is drawn.

Noise is a function of key, round and item. Added to two sets of data it would show their difference exactly: where a
pipeline runs twice, a step is tried again after a file was replaced, or a folder is opened again. So before a draw its
place (a shard or the hub, on a trip) is bound to a digest of the exact numbers that the noise meets; another draw in
that place must have the same digest, or nothing is drawn. An honest retry has it: everything that a step computes is a
function of its input and the key. Blocks are bound before they first send, so that two shards never draw for two sets
of items of one user: an engine may build blocks again when some shards have drawn and others have not.

In memory a key serves one run (`RunKey.spend`), which draws once in each place, and nothing needs to be bound.
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
import pyarrow as pa
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from dpbeam.randomness.prf import string_buffers

#: Binds a place to a digest for good: whether it is the digest that the place was bound to first.
Bind = Callable[[str, bytes], bool]

_AT_ONCE = 1 << 30  # bytes: OpenSSL counts them in 32 bits

OTHER_DATA = (
    "the noise of this run belongs to other data or settings: its input has changed since, or its pipeline or private "
    "folder is used a second time; start a new run, with a new private folder"
)


def digest_of(key: bytes, parts: Iterable[Mapping[str, np.ndarray | pa.Array]]) -> bytes:
    """Keyed digest of columns, 32 bytes, of names, types, shapes and values, each with its length.

    A universal hash, and of that a pseudo-random function: HMAC-SHA-256 of the GMAC under a constant nonce. HMAC of the
    columns themselves takes ten times as long. No one may see the tags of GMAC under one nonce, and none leaves here.

    Guarantee: the digests of two different lists of n blocks of 16 bytes, which were chosen without the key, are equal
    with probability at most (n + 1) / 2^128 (GHASH is almost XOR universal: McGrew and Viega 2004, "The security and
    performance of the Galois/counter mode"), but for HMAC; without the key a digest tells nothing.

    Args:
      key: any number of secret bytes.
      parts: numpy arrays without objects, Arrow (large_)binary arrays without nulls.
    """
    mode = modes.GCM(bytes(12))
    hashed = Cipher(algorithms.AES(hmac.digest(key, b"universal hash", "sha256")), mode).encryptor()
    for data in _encoded(parts):
        for start in range(0, len(data), _AT_ONCE):
            hashed.authenticate_additional_data(data[start : start + _AT_ONCE])
    hashed.finalize()
    return hmac.digest(key, hashed.tag, "sha256")


def _encoded(parts: Iterable[Mapping[str, np.ndarray | pa.Array]]) -> Iterator[bytes | memoryview]:
    """Bytes that tell these columns from all others: pieces, each after its length."""
    for columns in parts:
        yield struct.pack("<Q", len(columns))
        for name in sorted(columns):
            for piece in _pieces(name, columns[name]):
                yield struct.pack("<Q", len(piece))
                yield piece


def _pieces(name: str, values: np.ndarray | pa.Array) -> tuple[bytes | memoryview, ...]:
    """Type, shape and name, then the values: one piece of numbers, two of byte strings."""
    if not isinstance(values, pa.Array):
        return f"{values.dtype.str} {values.shape} {name}".encode(), _bytes_of(values)
    if not len(values):
        return f"text {name}".encode(), b"", b""
    offsets, text = string_buffers(values)
    held = memoryview(b"" if text is None else text).cast("B")[int(offsets[0]) : int(offsets[-1])]
    return f"text {name}".encode(), _bytes_of(np.diff(offsets).astype(np.int64)), held


def _bytes_of(values: np.ndarray) -> memoryview:
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8).data
