"""What files elsewhere have in common: patience, readers that look ahead, and uploads that can be given up."""

from __future__ import annotations

import contextlib
import errno
import io
import itertools
import os
import random
import re
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, BinaryIO, TypeVar, cast

from apache_beam.io.filesystem import FileSystem

from dpbeam.storage import lease
from dpbeam.storage.files import Files

#: How often a request is tried.
ATTEMPTS = 8
#: Bytes of one request. Larger ones are cut into several that run at once.
PART = 8 << 20
_AT_ONCE = 8
_FIRST_LOOK_AHEAD = 1 << 16
LONGEST_WAIT = 20.0

ResultT = TypeVar("ResultT")


class Upload(io.RawIOBase):
    """A file being written, which is whole once it is closed; an exception, or the garbage collector, gives it up.

    Threads at work for it must not hold it, by a method of it, say: what they hold is never garbage, or becomes so in
    a thread that `abort` then waits for.
    """

    def writable(self) -> bool:
        return True

    def close(self) -> None:
        """Make it whole. Raises OSError, and then it is given up."""
        if self.closed:
            return
        try:
            self._finish()
        finally:
            self.abort()

    def abort(self) -> None:
        """Give it up; harmless after `close`."""
        if self.closed:
            return
        super().close()
        self._drop()

    @abstractmethod
    def _finish(self) -> None:
        """Send what is left, and make the file appear. Raises OSError."""

    @abstractmethod
    def _drop(self) -> None:
        """Let go of all that is held, and of what was sent and is not finished."""

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def __del__(self) -> None:
        # That of the base class would close, so that half a file appears.
        with contextlib.suppress(Exception):
            self.abort()


def patiently(
    request: Callable[[], ResultT],
    passing: Callable[[Exception], bool],
    attempts: int = ATTEMPTS,
    sleep: Callable[[float], None] = time.sleep,
    first: float = 0.5,
) -> ResultT:
    """The result of a request that may be repeated, tried again after faults that pass, with growing pauses."""
    pause = first
    for left in reversed(range(attempts)):
        try:
            return request()
        except Exception as error:
            if not left or not passing(error):
                raise
        sleep(pause * random.uniform(0.5, 1))
        pause = min(2 * pause, LONGEST_WAIT)
    raise ValueError("attempts must be at least 1")


def shared_client(key: tuple[object, ...], make: Callable[[], Any]) -> Any:
    """The client of a store for the settings `key`, one for each process."""
    key = (os.getpid(), *key)
    with _lock:
        if key not in _clients:
            _clients[key] = make()
        return _clients[key]


_clients: dict[tuple[object, ...], Any] = {}
_lock = threading.Lock()


def variables(prefix: str) -> int:
    """Tells one environment from another, without what the variables hold."""
    return hash(tuple(sorted(item for item in os.environ.items() if item[0].startswith(prefix))))


class RemoteFiles(Files):
    """Files of a store, by its client.

    Args:
      flags: Beam's, those that were given.
    """

    #: how many files are deleted at once
    deletes_at_once = 1

    def __init__(self, flags: Mapping[str, Any]):
        self.flags = flags

    def join(self, basepath: str, *paths: str) -> str:
        return "/".join([basepath.rstrip("/"), *paths])

    def split(self, path: str) -> tuple[str, str]:
        head, _, tail = path.rpartition("/")
        return head, tail

    def named(self, url: str) -> str:
        """A URL or pattern as listings spell it."""
        return url

    def sizes(self, prefix: str) -> dict[str, int]:
        prefix = self.named(prefix)
        return {
            path: size
            for path, size in self.entries(prefix)
            if path.startswith(prefix) and "/" not in path[len(prefix) :]
        }

    def match(self, pattern: str, limit: int | None = None) -> dict[str, int]:
        pattern = self.named(pattern)
        fixed = pattern[: next((n for n, letter in enumerate(pattern) if letter in "*?["), len(pattern))]
        if fixed == pattern:
            try:
                return {pattern: self.state(pattern)[0]}
            except FileNotFoundError:
                return {}
        matches = re.compile(FileSystem.translate_pattern(pattern)).match
        entries = self.entries_below(fixed) if "**" in pattern else self.entries(fixed)
        return dict(itertools.islice((entry for entry in entries if matches(entry[0])), limit))

    @abstractmethod
    def entries(self, prefix: str) -> Iterator[tuple[str, int]]:
        """(path, size) of files: at least of those that begin with `prefix`, and on a store with folders lie in its."""

    def entries_below(self, prefix: str) -> Iterator[tuple[str, int]]:
        """As `entries`, and on a store with folders also of those below."""
        return self.entries(prefix)

    @abstractmethod
    def state(self, path: str) -> tuple[int, object]:
        """(size, version) of a file; None for a version that the store does not know. Raises FileNotFoundError."""

    def checksum(self, path: str) -> str:
        """What the store says of the content of a file. Raises OSError."""
        return str(self.state(path)[1])

    @abstractmethod
    def part(self, path: str, start: int, end: int, version: object) -> bytes:
        """Bytes start to end, all of them, of this version, or of any where it is None. Raises OSError, of the number
        ESTALE where the file was replaced.
        """

    def read_range(self, path: str, offset: int, size: int, version: object = None) -> bytes:
        """As `Files`, large ones by requests that run at once."""
        if size <= PART:
            return self.part(path, offset, offset + size, version) if size else b""
        starts = range(offset, offset + size, PART)
        ends = [min(start + PART, offset + size) for start in starts]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            parts = pool.map(lambda start, end: self.part(path, start, end, version), starts, ends)
            return b"".join(parts)

    def read(self, path: str) -> bytes:
        size, version = self.state(path)
        return self.read_range(path, 0, size, version)

    def put_once(
        self, path: str, data: bytes, *, make_folder: bool = False, private: bool = True, durable: bool = True
    ) -> bool:
        try:
            self._make(path, data)
        except FileExistsError:
            # Another's, or made by a request whose answer was lost.
            return self.read(path) == data
        return True

    @abstractmethod
    def _make(self, path: str, data: bytes) -> None:
        """Make a file that is not there, whole. Raises FileExistsError, OSError."""

    def open(self, path: str) -> BinaryIO:
        return cast(BinaryIO, Reader(self, path))

    def delete(self, paths: Sequence[str]) -> None:
        """As `Files`; it deletes what it can."""
        failed: list[OSError] = []

        def delete(path: str) -> None:
            try:
                self.delete_one(path)
            except FileNotFoundError:
                pass
            except OSError as error:
                failed.append(error)

        with ThreadPoolExecutor(self.deletes_at_once) as pool:
            list(pool.map(delete, paths))
        if failed:
            raise failed[0]

    @abstractmethod
    def delete_one(self, path: str) -> None:
        """Delete what has this name. Raises OSError; FileNotFoundError where there is nothing does no harm."""

    def exists(self, path: str) -> bool:
        try:
            self.state(path)
        except FileNotFoundError:
            return False
        return True

    def alone(self, path: str) -> AbstractContextManager[None]:
        return lease.alone(self, path)


def check_beside(files: Files, path: str, beside: str | None) -> None:
    """Of `Files.put`: raises FileNotFoundError where the folder of a file has been removed."""
    folder = files.split(path)[0]
    if beside is not None and not files.has_folders and not files.exists(files.join(folder, beside)):
        raise FileNotFoundError(errno.ENOENT, "the run has ended", folder)


class Reader(io.RawIOBase):
    """One version of a remote file, seekable. Reads in a row look ahead, twice as far each time, up to PART."""

    def __init__(self, files: RemoteFiles, path: str):
        super().__init__()
        self._files, self._path = files, path
        self._size, self._version = files.state(path)
        self._at = 0
        self._begin, self._ahead = 0, b""
        self._look_ahead = _FIRST_LOOK_AHEAD

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        """All that was asked for, fewer bytes only at the end. Raises OSError."""
        left = self._size - self._at
        wanted = left if size is None or size < 0 else min(size, left)
        if wanted <= 0:
            return b""
        have = self._cut(self._at, wanted)
        if len(have) < wanted:
            in_a_row = self._at <= self._begin + len(self._ahead) <= self._at + wanted
            self._look_ahead = min(2 * self._look_ahead, PART) if in_a_row else _FIRST_LOOK_AHEAD
            start = self._at + len(have)
            fetched = min(max(wanted - len(have), self._look_ahead), self._size - start)
            self._begin, self._ahead = (
                start,
                self._files.read_range(self._path, start, fetched, self._version),
            )
            have += self._cut(start, wanted - len(have))
        self._at += wanted
        return have

    def readall(self) -> bytes:
        return self.read(-1)

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer; fewer bytes only at the end."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _cut(self, start: int, size: int) -> bytes:
        """What is at hand of `size` bytes from `start` on."""
        first = start - self._begin
        return self._ahead[first : first + size] if 0 <= first < len(self._ahead) else b""
