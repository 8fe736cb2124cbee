"""Where the files of a series lie: a folder of this machine here, one on a store in `dpbeam.series.remote`.

All that a series needs of it: a file is written once and appears whole, and one process at a time makes changes.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator

from dpbeam.disk import BEING_WRITTEN, Writer, flush, flush_folders
from dpbeam.errors import InputError, UnavailableError, param

_LOCK = "lock"
#: How the folders below it begin where an engine works on a night.
WORK = "work-"
#: Their whole names, also while they are removed. Whatever else begins like them is somebody's own.
OF_WORK = re.compile(rf"{WORK}[0-9a-f]{{32}}(\.removed)?")
#: The second as versions before wrote them.
_HALF_WRITTEN = re.compile(rf"{re.escape(BEING_WRITTEN)}[0-9a-f]{{32}}|new-[0-9a-f]{{16}}")


class Folder(ABC):
    """A private folder, without folders in it but those where an engine works.

    Attributes:
      path: as messages name it.
    """

    path: str

    @abstractmethod
    def make(self) -> None:
        """Make it, for its owner alone, where it is not there. Raises OSError, InputError, UnavailableError."""

    @abstractmethod
    def everything(self) -> list[str]:
        """Names of all files and folders, but for the lock and what is half written."""

    @abstractmethod
    def names(self) -> list[str]:
        """Of all whole files; none where the folder is not there."""

    @abstractmethod
    def has(self, name: str) -> bool:
        """Whether there is such a file."""

    @abstractmethod
    def read(self, name: str) -> bytes:
        """A whole file. Raises FileNotFoundError."""

    @abstractmethod
    def write(self, name: str, data: bytes) -> None:
        """Make a file, whole or not at all. Of several processes at once one makes it.

        Raises:
          FileExistsError: it is there, or was and its content was removed.
        """

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove what a file holds, for good; harmless where it is gone."""

    @abstractmethod
    def delete(self, names: Iterable[str]) -> None:
        """Remove files whose names nobody takes again, for good; harmless where they are gone."""

    @abstractmethod
    def clear(self) -> None:
        """Remove all files, so that they can be made anew. For who holds the folder alone."""

    @abstractmethod
    def tidy(self) -> None:
        """Remove what killed processes have left half written, and what engines worked on. For who holds the folder
        alone.
        """

    @abstractmethod
    def alone(self) -> contextlib.AbstractContextManager[None]:
        """Hold the folder alone. Raises UnavailableError where another process does."""

    def busy(self) -> UnavailableError:
        return UnavailableError(f"{param('folder')}: another run of the series in '{self.path}' is under way")


class LocalFolder(Folder):
    """A folder of this machine, held by a lock of the operating system, which ends with its process.

    Raises:
      InputError: it lies elsewhere.
    """

    def __init__(self, path: str):
        if not path or "://" in path:
            raise InputError(f"{param('folder')} must be a folder of this machine, got '{path}'")
        self.path = path

    def _at(self, name: str) -> str:
        return os.path.join(self.path, name)

    def make(self) -> None:
        os.makedirs(self.path, mode=0o700, exist_ok=True)
        flush_folders(self.path)

    @contextlib.contextmanager
    def _used(self, name: str = "") -> Iterator[None]:
        """Turn what lies in the place of a file, or cannot be read, into one line."""
        try:
            yield
        except (FileNotFoundError, UnavailableError):
            raise
        except OSError as error:
            raise InputError(
                f"{param('folder')}: cannot use '{self._at(name) if name else self.path}': {error.strerror}"
            ) from None

    def everything(self) -> list[str]:
        try:
            with self._used():
                names = os.listdir(self.path)
        except FileNotFoundError:
            return []
        return [name for name in names if not _HALF_WRITTEN.fullmatch(name) and not self._is_lock(name)]

    def _is_lock(self, name: str) -> bool:
        path = self._at(name)
        return name == _LOCK and os.path.isfile(path) and not os.path.getsize(path)

    def names(self) -> list[str]:
        return [name for name in self.everything() if not OF_WORK.fullmatch(name)]

    def has(self, name: str) -> bool:
        return os.path.exists(self._at(name))

    def read(self, name: str) -> bytes:
        with self._used(name), open(self._at(name), "rb", opener=_open_file) as file:
            return file.read()

    def write(self, name: str, data: bytes) -> None:
        with Writer(self._at(name), once=True, private=True) as file:
            file.write(data)
        flush(self.path)

    def remove(self, name: str) -> None:
        self.delete([name])

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                os.remove(self._at(name))
        flush(self.path)

    def clear(self) -> None:
        self.delete(self.names())
        os.chmod(self.path, 0o700)

    def tidy(self) -> None:
        there = os.listdir(self.path)
        if half := [name for name in there if _HALF_WRITTEN.fullmatch(name)]:
            self.delete(half)
        for name in there:
            if OF_WORK.fullmatch(name):
                shutil.rmtree(self._at(name), ignore_errors=True)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        with contextlib.ExitStack() as held:
            with self._used(_LOCK):
                file = held.enter_context(open(self._at(_LOCK), "ab"))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    raise
                raise self.busy() from None
            yield


def _open_file(path: str, flags: int) -> int:
    """A descriptor of a file; a device or a pipe, which may never end, is refused."""
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no regular file", path)
    return descriptor
