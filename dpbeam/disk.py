"""Files of this machine that are whole or not there, and outlive a power cut.

A rename alone outlives a killed process. But a filesystem writes content seconds later than names, and either later
than what another program has flushed, such as an account of budget. So what must outlive a power cut is flushed: a file
before it takes its name, a folder after that. Needs no Beam.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import uuid
from collections.abc import Iterator

#: How the names of files begin that take their own when they are whole.
BEING_WRITTEN = ".tmp-"
#: What filesystems answer that have no hard links, so that no file is made `once`.
NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
#: What filesystems answer that cannot flush a folder.
_NO_FLUSH = (errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


class Writer(io.BufferedWriter):
    """A new file, whole once it is closed; an exception, or the garbage collector, gives it up.

    Until then a reader sees nothing of it, or all of an earlier file. A killed process leaves at most a file of a name
    that begins with `BEING_WRITTEN`. After a power cut there is the file, or nothing, or the earlier file: which, the
    next `flush` of the folder decides.

    Args:
      path: in a folder that is there.
      once: one writer alone makes it: `close` raises FileExistsError where it is there, and OSError with a number of
        `NO_LINKS` where the filesystem cannot tell. Otherwise an earlier file is replaced.
      private: for its owner alone, whatever the umask.
      durable: its content is on the disk before it has its name. Without, a power cut may leave it there and empty.
      temporary_in: the folder, of the same filesystem, where it is written; default beside it.

    Raises:
      OSError: there is no such folder.
    """

    def __init__(
        self,
        path: str,
        *,
        once: bool = False,
        private: bool = False,
        durable: bool = True,
        temporary_in: str | None = None,
    ):
        self._path, self._once, self._durable = path, once, durable
        folder = os.path.dirname(path) if temporary_in is None else temporary_in
        self._temporary = os.path.join(folder, f"{BEING_WRITTEN}{uuid.uuid4().hex}")
        super().__init__(io.FileIO(self._temporary, "x", opener=_private if private else None))

    def close(self) -> None:
        """Make it appear. Raises OSError, and then it is given up."""
        if self.closed:
            return
        try:
            super().close()
            if self._durable:
                flush(self._temporary)
            if self._once:
                os.link(self._temporary, self._path)  # other than a rename it replaces nothing
            else:
                os.replace(self._temporary, self._path)
        finally:
            self.abort()

    def abort(self) -> None:
        """Give it up; harmless after `close`."""
        self.raw.close()  # without what is not written yet
        with contextlib.suppress(OSError):
            os.unlink(self._temporary)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # that of the base class would make it appear
            if not self.closed:
                self.abort()


def _private(path: str, flags: int) -> int:
    """A new file for its owner alone, which nobody else may read even for a moment."""
    descriptor = os.open(path, flags, 0o600)
    os.fchmod(descriptor, 0o600)  # whatever the umask
    return descriptor


@contextlib.contextmanager
def naming_file(path: str) -> Iterator[None]:
    """Errors of writing name the file: the system does not, where a disk is full or a file may not grow."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = path
        raise


def flush(path: str) -> None:
    """Wait until the content of a file, or the names in a folder, are on the disk.

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
