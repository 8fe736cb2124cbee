"""Which input a release was made from, provable by its owner and by nobody else.

Guarantee. A plain digest of private files would tell them from every guess, so the ledger gets HMAC-SHA-256(k,
SHA-256(file 1) || SHA-256(file 2) || ...) with k = HMAC-SHA-256(K, nonce): K, 256 secret bits, stays with the owner,
the nonce is fresh in every run. Without K nobody distinguishes it from random bits, nor learns the number of files or
whether two runs read the same, if HMAC-SHA-256 is a pseudo-random function; so it adds nothing but that assumption to
the guarantee. Whoever learns K can test guesses of the whole input.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
from collections.abc import Iterable, Sequence

from dpbeam.accounting.ledger import Ledger
from dpbeam.accounting.release import InputDigest
from dpbeam.errors import InputError
from dpbeam.io.released import sha256_of
from dpbeam.review.verification import Statement

_USE = b"dpbeam input digest"
# Schemes of stores whose checksum follows from the content; some filesystems of Beam give the size for one.
_CHECKSUMMED = ("s3", "hdfs", "gs", "az", "abfs", "abfss")


def digest_key(path: str, *, make: bool) -> bytes:
    """The 32 secret bytes of a key file, 64 hexadecimal digits.

    Args:
      make: write a fresh one, readable by its owner alone, where there is none.

    Raises:
      InputError: naming the flag; never the key.
    """
    try:
        if make and not os.path.lexists(path):
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as new:
                new.write(secrets.token_hex(32) + "\n")
        with open(path, encoding="ascii") as file:
            key = bytes.fromhex(file.read(200).strip())
    except OSError as error:
        raise InputError(f"--input_digests: cannot use '{path}': {error.strerror}") from None
    except ValueError:
        key = b""
    if len(key) != 32:
        raise InputError(f"--input_digests: '{path}' is no key file: 64 hexadecimal digits")
    return key


def digest_input(paths: Iterable[str], key: bytes, nonce: bytes | None = None) -> InputDigest:
    """The keyed digest of all files, in the order of their paths; reads all of them once.

    Args:
      nonce: 32 bytes of an earlier digest, to compare with it; fresh by default.

    Raises:
      InputError, UnavailableError: a file cannot be read, or not now.
    """
    nonce = secrets.token_bytes(32) if nonce is None else nonce
    digest = hmac.new(hmac.digest(key, _USE + nonce, "sha256"), digestmod="sha256")
    for path in sorted(paths):
        digest.update(_sha256(path))
    return InputDigest(nonce.hex(), digest.hexdigest())


def check_digest(ledger: Ledger, patterns: Sequence[str], key_file: str) -> Statement:
    """Whether the input is the one that the run was made from.

    Raises:
      InputError: there is no such input, or the key cannot be used.
    """
    from dpbeam.io.files import match_files

    key = digest_key(key_file, make=False)
    stated = ledger.release and ledger.release.input_digest
    if not stated:
        return Statement("input", None, "the ledger holds no digest of the input")
    paths = [file.path for file in match_files(patterns)]
    digest = digest_input(paths, key, bytes.fromhex(stated.nonce))
    if digest == stated:
        return Statement("input", True, f"its digest is that of the ledger ({len(paths)} files)")
    return Statement("input", False, "its digest is not that of the ledger: other files, or another key")


def content_digest(path: str) -> str:
    """What tells the content of a file from another: the checksum of a store that is known to keep one, or SHA-256.

    It is not keyed, so it is as private as the file.

    Raises:
      InputError, UnavailableError: the file cannot be read, or not now.
    """
    if path.partition("://")[0].lower() in _CHECKSUMMED:
        from apache_beam.io.filesystem import BeamIOError  # plain files do without Beam

        from dpbeam.storage import FileSystems

        with contextlib.suppress(BeamIOError, OSError, ValueError, NotImplementedError):
            if checksum := FileSystems.checksum(path):
                return checksum
    return _sha256(path).hex()


def _sha256(path: str) -> bytes:
    try:
        return sha256_of(path)
    except OSError as error:
        from dpbeam.storage.reasons import reason, refusal  # with Beam, which plain files do without

        raise refusal(f"--input: cannot read '{path}': {reason(error)}", error) from None
