"""Files of this machine."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import itertools
import os
import shutil
import signal
import stat
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from dpbeam.disk import NO_LINKS, Writer, flush, flush_folders, naming_file
from dpbeam.signals import deferring
from dpbeam.storage.files import PLAIN, Files, HeldError, NoLocksError, NotOnceError, Put

#: What the name of a folder ends with while it is emptied: who may still write to it then finds no folder.
REMOVED = ".removed"


class LocalFiles(Files):
    """As `Files`; paths have no scheme."""

    is_near = needs_flush = has_folders = sure_once = sure_lock = True

    def join(self, basepath: str, *paths: str) -> str:
        return os.path.join(basepath, *paths)

    def split(self, path: str) -> tuple[str, str]:
        return os.path.split(path)

    def make_folder(self, path: str, *, private: bool = False) -> None:
        if not private:
            os.makedirs(path, exist_ok=True)
            return
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        os.mkdir(path, 0o700)
        os.chmod(path, 0o700)  # whatever the umask

    def put(self, path: str, how: Put = PLAIN) -> Writer:
        if how.make_folder:
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        return Writer(path, private=how.private, durable=how.durable, temporary_in=how.temporary_in)

    def put_once(
        self, path: str, data: bytes, *, make_folder: bool = False, private: bool = True, durable: bool = True
    ) -> bool:
        if not os.path.lexists(path):
            if make_folder:
                os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            try:
                with naming_file(path), Writer(path, once=True, private=private, durable=durable) as file:
                    file.write(data)
                return True
            except FileExistsError:
                pass
            except OSError as error:
                if error.errno in NO_LINKS:
                    raise NotOnceError(path) from None
                raise
        return self.read(path) == data

    def open(self, path: str) -> BinaryIO:
        return open(path, "rb")

    def read(self, path: str) -> bytes:
        """Raises OSError for a device or a pipe too, which may never end."""
        with open(path, "rb", opener=_open_file) as file:
            return file.read()

    def read_range(self, path: str, offset: int, size: int) -> bytes:
        with open(path, "rb") as source:
            source.seek(offset)
            data = source.read(size)
        if len(data) < size:
            raise OSError(f"{path}: ends {size - len(data)} bytes too early")
        return data

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def list_prefix(self, prefix: str) -> list[str]:
        folder, stem = os.path.split(prefix)
        try:
            names = os.listdir(folder or ".")
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(os.path.join(folder, name) for name in names if name.startswith(stem))

    def sizes(self, prefix: str) -> dict[str, int]:
        return {path: os.path.getsize(path) for path in self.list_prefix(prefix) if os.path.isfile(path)}

    def match(self, pattern: str, limit: int | None = None) -> dict[str, int]:
        named = not glob.has_magic(pattern) or os.path.isfile(pattern)
        paths = iter([pattern]) if named else glob.iglob(pattern, recursive=True)
        # A pipe or a device is one too: it can be read.
        files = itertools.islice((p for p in paths if os.path.exists(p) and not os.path.isdir(p)), limit)
        return {path: os.path.getsize(path) for path in files}

    def folders(self, parent: str, stem: str, file: str) -> list[str]:
        try:
            with os.scandir(parent or ".") as entries:
                names = [
                    e.name for e in entries if e.name.startswith(stem) and e.is_dir(follow_symlinks=False)
                ]
        except OSError:
            return []
        return sorted(os.path.join(parent, name) for name in names)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            else:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)

    def remove_folder(self, path: str, *, first: str = "", last: str = "") -> str | None:
        """As `Files`; signals that stop a program wait for the end."""
        with deferring() as came:
            rest = path if os.path.islink(path) else _removed(path, first, last)
        for number in came[:1]:
            signal.raise_signal(number)
        return rest

    def protect(self, path: str) -> None:
        os.chmod(path, 0o700 if os.path.isdir(path) else 0o600)

    def flush(self, folder: str, *, inside: bool = False, above: bool = False) -> None:
        for path in self.list_prefix(self.join(folder, "")) if inside else ():
            flush(path)
        (flush_folders if above else flush)(folder or ".")

    @contextlib.contextmanager
    def alone(self, path: str) -> Iterator[None]:
        """As `Files`: a lock of the operating system on an empty file, which goes at the end."""
        descriptor = _locked(path)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # another user's, in a folder where only they may remove it
                if os.fstat(descriptor).st_size == 0:
                    os.unlink(path)
            os.close(descriptor)


def _open_file(path: str, flags: int) -> int:
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no regular file", path)
    return descriptor


def _removed(folder: str, first: str, last: str) -> str | None:
    """Remove a folder, under another name once its first file is gone; where what is left of it lies."""
    with contextlib.suppress(OSError):
        if first:
            os.unlink(os.path.join(folder, first))
            os.rename(folder, f"{folder}{REMOVED}")
            folder += REMOVED
    with contextlib.suppress(OSError):
        for path, folders, files, place in os.fwalk(folder, topdown=False):
            for name in (*folders, *files):
                if (path, name) != (folder, last):
                    _delete(name, place)
            if path == folder and os.listdir(place) == [last]:
                os.unlink(last, dir_fd=place)
        os.rmdir(folder)
    return folder if os.path.lexists(folder) else None


def _delete(name: str, place: int) -> None:
    """Delete a file, a link or an empty folder, if that can be done."""
    try:
        os.unlink(name, dir_fd=place)
    except OSError:
        with contextlib.suppress(OSError):
            os.rmdir(name, dir_fd=place)


def _locked(path: str) -> int:
    """Descriptor of the locked file."""
    while True:
        descriptor = _open_descriptor(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), os.lstat(path)):
                    return descriptor
        except OSError as error:
            os.close(descriptor)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise HeldError from None
            with contextlib.suppress(OSError):
                os.unlink(path)
            raise NoLocksError(error.errno, error.strerror, path) from None
        os.close(descriptor)  # whoever held it before has removed it


def _open_descriptor(path: str) -> int:
    """The file, which may be another user's; made where it is not there."""
    while True:
        for mode in (os.O_RDWR, os.O_RDONLY):
            with contextlib.suppress(PermissionError, FileNotFoundError):
                return os.open(path, mode | os.O_NOFOLLOW)
        with contextlib.suppress(FileExistsError):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
            with contextlib.suppress(OSError):
                os.fchmod(descriptor, 0o644)  # whatever the umask: nobody else could ask for the lock
            return descriptor
