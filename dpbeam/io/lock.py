"""One run at a time has a prefix of outputs: a lock of the operating system beside it, which ends with its process.

The file of the lock is empty, and goes with the run; what a killed process leaves of it holds nobody up. Filesystems
that have no locks, and stores, hold nobody up either. Needs no Beam.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator

from dpbeam.errors import InputError, StoreError, UnavailableError
from dpbeam.io.paths import absolute
from dpbeam.storage import FileSystems
from dpbeam.storage.files import HeldError, NoLocksError

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
    if not FileSystems.at(prefix).sure_lock:
        yield
        return
    path = f"{absolute(prefix)}{LOCK_SUFFIX}"
    with _new_folders_that_are_used(os.path.dirname(path)), contextlib.ExitStack() as held:
        try:
            _take(path, held)
        except HeldError:
            raise UnavailableError(
                f"--output: another run is under way that writes '{prefix}'; try again when it has ended"
            ) from None
        except OSError as error:
            kind = UnavailableError if error.errno in (errno.ENOSPC, errno.EDQUOT) else StoreError
            raise kind(f"--output: cannot write '{prefix}': {error.strerror}") from None
        yield


def _take(path: str, held: contextlib.ExitStack) -> None:
    """Be alone, where there are locks, with the folder made. Raises HeldError, OSError."""
    while True:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        try:
            held.enter_context(FileSystems.alone(path))
        except FileNotFoundError:
            continue  # another run, which made the folder, has removed it
        except NoLocksError:
            pass
        return


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
    if os.path.lexists(f"{absolute(prefix)}{LOCK_SUFFIX}"):
        with contextlib.suppress(InputError, UnavailableError), hold(prefix):
            pass
