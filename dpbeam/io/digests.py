"""What tells the content of an input from another, for a run that goes on from its checkpoint."""

from __future__ import annotations

import contextlib

from dpbeam.errors import DataError
from dpbeam.io.released import sha256_of
from dpbeam.storage import FileSystems
from dpbeam.storage.reasons import reason, refusal

# Schemes of stores whose checksum follows from the content; of others nothing is known.
_CHECKSUMMED = ("s3", "hdfs", "gs", "az", "abfs", "abfss")


def content_digest(path: str) -> str:
    """What tells the content of a file from another: the checksum of a store that is known to keep one, or SHA-256.

    It is not keyed, so it is as private as the file.

    Raises:
      InputError, UnavailableError: the file cannot be read, or not now.
    """
    if path.partition("://")[0].lower() in _CHECKSUMMED:
        with contextlib.suppress(OSError, ValueError, NotImplementedError):
            if checksum := FileSystems.checksum(path):
                return checksum
    try:
        return sha256_of(path).hex()
    except OSError as error:
        raise refusal(DataError, f"--input: cannot read '{path}': {reason(error)}", error) from None
