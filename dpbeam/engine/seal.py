"""Encryption of a private folder, for keepers who are not to read it: of a run (`RunFolder(encrypt=True)`) or a series.

The folder key, 256 bits in the environment of launcher and workers (`FOLDER_KEY`), never goes into the folder, a job or
a message. The run's key lies in the folder encrypted under it; the files are encrypted under a key derived from the
run's key. Both with AES-256-GCM (NIST SP 800-38D) of `cryptography`, so a file that was changed is refused:

- every file has a key of its own, HMAC-SHA-256 of its name under the folder's, so a file in another's place, or of
  another run, does not open. A key serves the few pieces of one file, far from the limit of random nonces;
- a piece is bound to its offset in the file, and each of its segments to its number and to whether it is the last.

An older copy of a file in its own place opens, and holds the same: retries write the same data under a name, for all of
it is a function of the input and the run's key. What is missing where it is read ends the run.

What a keeper of the store still sees: names, sizes and times of files.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import os
import struct
from collections.abc import Iterator

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from dpbeam.errors import SetupError, param
from dpbeam.randomness import RunKey

#: The variable that holds the folder key: 64 hexadecimal digits.
FOLDER_KEY = "DPBEAM_FOLDER_KEY"
#: Bytes of a piece that are encrypted at once; the cipher takes no more than 2 GB.
SEGMENT = 1 << 30
_NONCE, _TAG = 12, 16
_WRAPPED = b"dpbeam run key, encrypted\n"


class SealError(OSError):
    """A file of the folder was changed, moved or cut since the run wrote it."""

    def __init__(self, name: str):
        super().__init__(errno.EBADMSG, "is not what the run wrote", name)


class Seal:
    """Encrypts and decrypts the files of one run.

    Guarantee: without the run's key a file tells its length alone; what `open` returns is what `pieces` was given for
    the same name and offset.

    Args:
      key: of the run.
      place: of files among others under the same key; names count within it.
    """

    def __init__(self, key: RunKey, place: str = ""):
        self._key = key.derive(f"private folder {place}".rstrip())

    def _of_file(self, name: str) -> AESGCM:
        return AESGCM(hmac.digest(self._key, name.encode(), hashlib.sha256))

    def pieces(self, name: str, offset: int, data: bytes) -> Iterator[bytes]:
        """What is written at `offset` of a file in place of `data`, in order."""
        cipher, view = self._of_file(name), memoryview(data)
        for number, start in enumerate(range(0, max(len(data), 1), SEGMENT)):
            last = start + SEGMENT >= len(data)
            nonce = os.urandom(_NONCE)
            yield nonce
            yield cipher.encrypt(nonce, view[start : start + SEGMENT], _place(offset, number, last))

    def open(self, name: str, offset: int, data: bytes) -> bytes:
        """The data of what was written at `offset`.

        Raises:
          SealError: it is not what was written there.
        """
        cipher, view = self._of_file(name), memoryview(data)
        size = SEGMENT + _NONCE + _TAG
        opened = []
        for number, start in enumerate(range(0, max(len(data), 1), size)):
            segment, last = view[start : start + size], start + size >= len(data)
            if len(segment) < _NONCE + _TAG:
                raise SealError(name)
            try:
                opened.append(
                    cipher.decrypt(segment[:_NONCE], segment[_NONCE:], _place(offset, number, last))
                )
            except InvalidTag:
                raise SealError(name) from None
        return opened[0] if len(opened) == 1 else b"".join(opened)


def _place(offset: int, number: int, last: bool) -> bytes:
    return struct.pack("<QQ?", offset, number, last)


def folder_key() -> bytes:
    """The folder key of this process's environment.

    Raises:
      InputError: there is none, or it is no key.
    """
    text = os.environ.get(FOLDER_KEY)
    if text is None:
        raise SetupError(
            f"{param('encrypt_intermediates')}: {FOLDER_KEY} is not in the environment; launcher and "
            "workers need the same"
        )
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != 32:
        raise SetupError(f"{param('encrypt_intermediates')}: {FOLDER_KEY} must be 64 hexadecimal digits")
    return key


def _wrapping() -> AESGCM:
    return AESGCM(hmac.digest(folder_key(), b"dpbeam: run keys", hashlib.sha256))


def wrap(folder: str, key: bytes) -> bytes:
    """A run's key for its folder, encrypted under the folder key; `folder` is its name, which no other run has.

    Raises:
      InputError: as for `folder_key`.
    """
    nonce = os.urandom(_NONCE)
    return _WRAPPED + nonce + _wrapping().encrypt(nonce, key, folder.encode())


def unwrap(folder: str, data: bytes) -> bytes:
    """The run's key out of what `wrap` returned.

    Raises:
      InputError: as for `folder_key`; or the key file is of another folder key, of another folder or was changed.
    """
    nonce, sealed = data[len(_WRAPPED) :][:_NONCE], data[len(_WRAPPED) + _NONCE :]
    try:
        if not data.startswith(_WRAPPED) or len(nonce) < _NONCE:
            raise InvalidTag
        return _wrapping().decrypt(nonce, sealed, folder.encode())
    except InvalidTag:
        raise SetupError(
            f"{param('encrypt_intermediates')}: the run's key cannot be opened: {FOLDER_KEY} is not that "
            "of its launcher, or the private folder was changed"
        ) from None
