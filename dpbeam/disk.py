"""What must outlive a power cut is flushed: a file before its rename, a folder after it.

A rename alone outlives a killed process. But a filesystem writes content seconds later than names, and either later
than what another program has flushed, such as an account of budget. Needs no Beam.
"""

from __future__ import annotations

import errno
import os

#: What filesystems answer that cannot flush a folder.
_NO_FLUSH = (errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


def flush(path: str) -> None:
    """Wait until the content of a file of this machine, or the names in a folder, are on its disk.

    Raises:
      OSError: they cannot be written.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except PermissionError:  # a folder may be open to writers alone
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_FLUSH:
            raise
    finally:
        os.close(descriptor)


def flush_folders(folder: str) -> None:
    """Flush a folder and those above it, up to the root of its filesystem: any of them may be new. Raises OSError."""
    folder = os.path.abspath(folder)
    device = os.stat(folder).st_dev
    while True:
        flush(folder)
        above = os.path.dirname(folder)
        if above == folder or os.stat(above).st_dev != device:
            return
        folder = above
