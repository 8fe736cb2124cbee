"""Keyed pseudo-random functions of users and items.

A runner may execute any step twice (failure, speculation, a second consumer). All randomness is therefore a
pseudo-random function (PRF) of *what* is randomised -- stage, round, user, item -- under a fresh 256-bit key per
run, never the state of a generator: every execution of a step draws the same values.

Two primitives, both AES-256 through `cryptography`:

- `fingerprints`: a keyed 128-bit hash of byte strings. It stands for the identity of users and items; two
  different values of one run collide with probability below n^2 / 2^129.
- `prf_bits`: 128 pseudo-random bits per fingerprint, AES in ECB mode under a key derived from a label. ECB is
  right here, and a stream mode is not: each block is one input of the PRF, and a stream would key the noise by
  position instead of by item. (AES is a permutation: the distance from a random function is below n^2 / 2^129.)
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from dpbeam.randomness.once import Once

KEY_BYTES = 32
# Longer strings go through keyed BLAKE2b, one by one: a single huge string would otherwise cost one
# vectorised step per 16 bytes.
_LONG = 1024
# Strings at once: fewer leave threads waiting for each other, more leave the processor's cache.
_AT_ONCE = 1 << 16
_BLOCK = 16  # bytes
_FIRST = 12  # bytes of a string in its first block, whose other four hold its length
# (17, 2): the leading n bytes of a block.
_MASKS = np.array([[(1 << 8 * min(n, 8)) - 1, (1 << 8 * max(n - 8, 0)) - 1] for n in range(17)], dtype="<u8")


class RunKey:
    """The 256-bit secret of one run.

    It never appears in flags, logs, options or pickles: printing hides it and pickling raises. Workers read it
    from the run's private folder (`dpbeam.engine.beam.store`), where it may lie encrypted (`dpbeam.engine.seal`).

    A run is begun with a `fresh` key, which no other run can have, or with an `insecure_fixed` one. A key of known
    bytes may have served a run, so it counts as spent.

    Args:
      secret: 32 bytes.
      insecure: a fixed key of tests.

    Raises:
      ValueError: another number of bytes.
    """

    __slots__ = ("_once", "_secret", "insecure")

    def __init__(self, secret: bytes, *, insecure: bool = False):
        if len(secret) != KEY_BYTES:
            raise ValueError(f"a run key has {KEY_BYTES} bytes, got {len(secret)}")
        self._secret = bytes(secret)
        self._once = Once(taken=True)
        self.insecure = insecure

    @classmethod
    def fresh(cls) -> RunKey:
        """A new key from the operating system's entropy."""
        key = cls(secrets.token_bytes(KEY_BYTES))
        key._once = Once()
        return key

    @classmethod
    def insecure_fixed(cls, text: str) -> RunKey:
        """A fixed key for tests, derived from any text; the run's output is NOT PRIVATE."""
        return cls(hashlib.blake2b(text.encode(), digest_size=KEY_BYTES).digest(), insecure=True)

    def spend(self) -> None:
        """Take the key for a run; every run needs one of its own, or two would draw the same noise.

        Raises:
          ValueError: a run has it already, or may have: also one of the process that this one was forked from. Fixed
            keys of tests may serve several.
        """
        if not self._once.take() and not self.insecure:
            raise ValueError(
                "this key has served a run, or was made from bytes that may have, or before this process was forked: a "
                "second run would draw the same noise; take RunKey.fresh()"
            )

    def derive(self, label: str) -> bytes:
        """An independent 256-bit key for `label` (HMAC-SHA-256 of the label under the run key)."""
        return hmac.new(self._secret, label.encode(), hashlib.sha256).digest()

    def secret_bytes(self) -> bytes:
        """The raw secret, for the run's private folder only."""
        return self._secret

    def __repr__(self) -> str:
        return "RunKey(<secret>)" if not self.insecure else "RunKey(<fixed test key: NOT PRIVATE>)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a RunKey must not be pickled: it would stay behind in the job graph")


def _encrypt(key: bytes, blocks: np.ndarray) -> np.ndarray:
    """AES-256 of each row of `blocks` (n, 2) uint64, in place order; returns a new (n, 2) array."""
    n = len(blocks)
    out = np.empty((n + 1, 2), np.uint64)  # one spare block, which the cipher's interface asks for
    if n:
        source = np.ascontiguousarray(blocks)
        cipher = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
        cipher.update_into(source.data.cast("B"), out.data.cast("B"))
    return out[:n]


def prf_bits(key: bytes, fingerprint: np.ndarray) -> np.ndarray:
    """128 pseudo-random bits for each fingerprint.

    Args:
      key: 32 bytes, from `RunKey.derive(label)`; the label names stage and round.
      fingerprint: (n, 2) uint64.

    Returns:
      (n, 2) uint64.
    """
    return _encrypt(key, fingerprint)


def pair_bits(
    key: bytes,
    user: np.ndarray,
    item: np.ndarray,
    of_user: np.ndarray | None = None,
    of_item: np.ndarray | None = None,
) -> np.ndarray:
    """128 pseudo-random bits for each (user, item): CBC-MAC over the two fingerprints.

    Messages have the fixed length of two blocks, for which CBC-MAC is a PRF (Bellare, Kilian, Rogaway 2000).

    Args:
      user, item: (users, 2) and (items, 2) uint64.
      of_user, of_item: (n,) their rows for each pair; None: pair i is user i with item i.

    Returns:
      (n, 2) uint64.
    """
    state = _encrypt(key, user)
    if of_user is None or of_item is None:
        return _encrypt(key, state ^ item)
    result = np.empty((len(of_user), 2), np.uint64)
    for start in range(0, len(of_user), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        blocks = state.take(of_user[part], axis=0)
        blocks ^= item.take(of_item[part], axis=0)
        result[part] = _encrypt(key, blocks)
    return result


def fingerprints(key: bytes, values: pa.Array) -> np.ndarray:
    """Keyed 128-bit fingerprint of every value of a (large_)binary or (large_)string array without nulls.

    AES-CBC-MAC with the length in the first block (prefix-free, hence a PRF on strings of any length),
    vectorised over the strings; strings above 1,024 bytes through BLAKE2b with a key of its own.

    Returns:
      (n, 2) uint64.
    """
    if values.null_count:
        raise ValueError("cannot fingerprint nulls")
    result = np.empty((len(values), 2), np.uint64)
    for start in range(0, len(values), _AT_ONCE):
        result[start : start + _AT_ONCE] = _fingerprints(key, values.slice(start, _AT_ONCE))
    return result


def _fingerprints(key: bytes, values: pa.Array) -> np.ndarray:
    start, length, windows = _string_views(values)
    first = _leading(windows[start], np.minimum(length, _FIRST))
    first.view("<u4")[:, 3] = length
    state = _encrypt(key, first)
    active = np.flatnonzero((length > _FIRST) & (length <= _LONG))
    start, left = start.take(active) + _FIRST, length.take(active) - _FIRST
    while len(active):
        block = _leading(windows[start], np.minimum(left, _BLOCK))
        block ^= state.take(active, axis=0)
        _whole(state)[active] = _whole(_encrypt(key, block))
        more = np.flatnonzero(left > _BLOCK)
        active, start, left = active.take(more), start.take(more) + _BLOCK, left.take(more) - _BLOCK
    long_key = hmac.new(key, b"long strings", hashlib.sha256).digest()
    for i in np.flatnonzero(length > _LONG):
        text = values[int(i)].as_py()
        text = text.encode() if isinstance(text, str) else text
        digest = hashlib.blake2b(text, digest_size=16, key=long_key, person=b"dpbeam long").digest()
        state[i] = np.frombuffer(digest, np.uint64)
    return state


def _leading(windows: np.ndarray, count: np.ndarray) -> np.ndarray:
    """The leading `count` bytes of each window, the others zero, (n, 2) uint64."""
    blocks: np.ndarray = windows.view("<u8").reshape(-1, 2)
    blocks &= _MASKS.take(count, axis=0)
    return blocks


def _whole(blocks: np.ndarray) -> np.ndarray:
    """(n, 2) uint64 as (n,) blocks, which numpy moves ten times as fast as rows; a view."""
    return blocks.view(f"V{_BLOCK}").reshape(-1)


def _string_views(values: pa.Array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Start (int64) and length (int64) of each string, and the bytes as windows: one from each byte on."""
    offsets, data = string_buffers(values)
    begin, end = int(offsets[0]), int(offsets[-1])
    raw = np.zeros(end - begin + _BLOCK, np.uint8)  # padding: windows may reach past the last byte
    if data is not None and end > begin:
        raw[: end - begin] = np.frombuffer(data, np.uint8)[begin:end]
    windows = np.ndarray(shape=(end - begin + 1,), dtype=f"V{_BLOCK}", buffer=raw, strides=(1,))
    starts = offsets[:-1].astype(np.int64) - begin
    return starts, np.diff(offsets).astype(np.int64), windows


def string_buffers(values: pa.Array) -> tuple[np.ndarray, pa.Buffer | None]:
    """Offsets (n + 1,) of a non-empty (large_)binary or (large_)string array, and the buffer that they point into."""
    if pa.types.is_large_binary(values.type) or pa.types.is_large_string(values.type):
        kind: type[np.integer[Any]] = np.int64
    elif pa.types.is_binary(values.type) or pa.types.is_string(values.type):
        kind = np.int32
    else:
        raise TypeError(f"cannot fingerprint values of type {values.type}")
    _, offsets, data = values.buffers()
    return np.frombuffer(offsets, kind)[values.offset : values.offset + len(values) + 1], data
