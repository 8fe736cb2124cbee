"""One run at a time has a prefix of outputs: a lock of the operating system beside it, which ends with its process.

The file of the lock is empty, and goes with the run; what a killed process leaves of it holds nobody up. Filesystems
that have no locks, and stores, hold nobody up either. Needs no Beam.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator

from dpbeam.errors import InputError, UnavailableError
from dpbeam.io.paths import absolute, is_local

#: After the prefix.
LOCK_SUFFIX = ".dpbeam.lock"


@contextlib.contextmanager
def hold(prefix: str) -> Iterator[None]:
    """Hold the prefix of an output against other runs on this machine.

    Its folder is made, and goes again if it is empty then.

    Raises:
      UnavailableError: another run holds it, or there is no room.
      InputError: nothing can be written there.
    """
    if not is_local(prefix):
        yield
        return
    path = f"{absolute(prefix)}{LOCK_SUFFIX}"
    with _new_folders_that_are_used(os.path.dirname(path)):
        try:
            descriptor = _locked(path)
        except BlockingIOError:
            raise UnavailableError(
                f"--output: another run is under way that writes '{prefix}'; try again when it has ended"
            ) from None
        except OSError as error:
            kind = UnavailableError if error.errno in (errno.ENOSPC, errno.EDQUOT) else InputError
            raise kind(f"--output: cannot write '{prefix}': {error.strerror}") from None
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # another user's, in a folder where only they may remove it
                if os.fstat(descriptor).st_size == 0:
                    os.unlink(path)
            os.close(descriptor)


@contextlib.contextmanager
def _new_folders_that_are_used(folder: str) -> Iterator[None]:
    """A folder that is not there, and those above it, go again at the end where they are empty."""
    missing = []
    while not os.path.lexists(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # something is in it
            for folder in missing:
                os.rmdir(folder)


def remove_stale(prefix: str) -> None:
    """Remove the file of a lock that a killed process has left, if there is one."""
    if is_local(prefix) and os.path.lexists(f"{absolute(prefix)}{LOCK_SUFFIX}"):
        with contextlib.suppress(InputError, UnavailableError), hold(prefix):
            pass


def _locked(path: str) -> int:
    """Descriptor of the locked file. Raises OSError; BlockingIOError where another process has it."""
    while True:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        try:
            descriptor = _opened(path)
        except FileNotFoundError:
            continue  # another run, which made the folder, has removed it
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                os.close(descriptor)
                raise BlockingIOError(error.errno, error.strerror) from None
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), os.lstat(path)):
                return descriptor
        os.close(descriptor)  # whoever held it before has removed it


def _opened(path: str) -> int:
    """The file, which may be another user's; made where it is not there. Raises OSError."""
    while True:
        for mode in (os.O_RDWR, os.O_RDONLY):
            with contextlib.suppress(PermissionError, FileNotFoundError):
                return os.open(path, mode | os.O_NOFOLLOW)
        with contextlib.suppress(FileExistsError):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
            with contextlib.suppress(OSError):
                os.fchmod(descriptor, 0o644)  # whatever the umask: nobody else could ask for the lock
            return descriptor
