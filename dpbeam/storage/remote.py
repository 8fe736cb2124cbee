"""What filesystems elsewhere have in common: settings from Beam's options, patience, and readers that look ahead."""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import os
import random
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO, TypeVar, cast

from apache_beam.io.filesystem import BeamIOError, FileMetadata, FileSystem
from apache_beam.options.pipeline_options import PipelineOptions

#: How often a request is tried.
ATTEMPTS = 8
#: Bytes of one request. Larger ones are cut into several that run at once.
PART = 8 << 20
#: Number of the errors of a store that does not answer, or only that it cannot: it may do better a minute later.
UNAVAILABLE = errno.EHOSTDOWN
_AT_ONCE = 8
_FIRST_LOOK_AHEAD = 1 << 16
_LONGEST_WAIT = 20.0

_Result = TypeVar("_Result")


@functools.lru_cache(maxsize=1)  # reading them takes longer than a request
def _flags_of(options: PipelineOptions) -> dict[str, Any]:
    """Beam's flags; those alone that were given."""
    return options.get_all_options(drop_default=True)


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
    request: Callable[[], _Result],
    passing: Callable[[Exception], bool],
    attempts: int = ATTEMPTS,
    sleep: Callable[[float], None] = time.sleep,
) -> _Result:
    """The result of a request that may be repeated, tried again after faults that pass, with growing pauses."""
    pause = 0.5
    for left in reversed(range(attempts)):
        try:
            return request()
        except Exception as error:
            if not left or not passing(error):
                raise
        sleep(pause * random.uniform(0.5, 1))
        pause = min(2 * pause, _LONGEST_WAIT)
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


class RemoteFiles(FileSystem):
    """A filesystem elsewhere, without compression and with literal names in all but `match`."""

    #: whether a new file is seen when it is closed and not before, and its writer has `abort`
    appears_whole = False
    #: how many files are deleted at once
    deletes_at_once = 1

    def __init__(self, pipeline_options: PipelineOptions | dict[str, Any] | None = None):
        super().__init__(pipeline_options)  # type: ignore[no-untyped-call]
        if isinstance(pipeline_options, PipelineOptions):  # of the launcher; a worker has a dict
            pipeline_options = _flags_of(pipeline_options)
        self.flags = pipeline_options or {}

    @classmethod
    def scheme(cls) -> str:
        """The name by which Beam finds the class."""
        return "dpbeam-remote"

    def join(self, basepath: str, *paths: str) -> str:
        return "/".join([basepath.rstrip("/"), *paths])

    def split(self, path: str) -> tuple[str, str]:
        head, _, tail = path.rpartition("/")
        return head, tail

    def size(self, path: str) -> int:
        return self.metadata(path).size_in_bytes

    def last_updated(self, path: str) -> float:
        return self.metadata(path).last_updated_in_seconds

    def sizes(self, prefix: str) -> dict[str, int]:
        """Path -> size of the files that begin with `prefix`, in its folder."""
        entries = ((entry.path, entry.size_in_bytes) for entry in self._list(prefix))
        return {
            path: size for path, size in entries if path.startswith(prefix) and "/" not in path[len(prefix) :]
        }

    @abstractmethod
    def _list(self, dir_or_prefix: str) -> Iterator[FileMetadata]: ...

    @abstractmethod
    def folders(self, parent: str, stem: str) -> list[str]:
        """Sorted paths of the folders below `parent` whose names begin with `stem`."""

    @abstractmethod
    def remove_folder(self, path: str) -> None:
        """Delete a folder with all that it holds; harmless if it is gone."""

    @abstractmethod
    def mkdirs_private(self, path: str) -> None:
        """Make a folder for its owner alone, where the store knows owners."""

    @abstractmethod
    def _about(self, path: str) -> Any:
        """What the store says of a file. Raises OSError if there is none."""

    @abstractmethod
    def _facts(self, about: Any) -> tuple[int, float, object]:
        """Of what the store says of a file: its size, the time of the last change, and its version."""

    def state(self, path: str) -> tuple[int, object]:
        """(size, version) of a file. Raises OSError if there is none."""
        size, _, version = self._facts(self._about(path))
        return size, version

    def metadata(self, path: str) -> FileMetadata:
        """Size and time of the last change. Raises OSError if there is no such file."""
        size, changed, _ = self._facts(self._about(path))
        return FileMetadata(path, size, changed)

    def checksum(self, path: str) -> str:
        return str(self.state(path)[1])

    @abstractmethod
    def part(self, path: str, start: int, end: int, version: object) -> bytes:
        """Bytes start to end, all of them, of this version. Raises OSError."""

    def read_range(self, path: str, offset: int, size: int, version: object = None) -> bytes:
        """Bytes offset to offset + size, large ones by requests that run at once. Raises OSError."""
        if size <= PART:
            return self.part(path, offset, offset + size, version) if size else b""
        starts = range(offset, offset + size, PART)
        ends = [min(start + PART, offset + size) for start in starts]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            parts = pool.map(lambda start, end: self.part(path, start, end, version), starts, ends)
            return b"".join(parts)

    def read(self, path: str) -> bytes:
        """A whole file. Raises OSError."""
        size, version = self.state(path)
        return self.read_range(path, 0, size, version)

    def write_once(self, path: str, data: bytes) -> bool:
        """Whether a file holds these data: it is made, whole, unless it is there. Raises OSError."""
        try:
            self._make(path, data)
        except FileExistsError:
            # Another's, or made by a request whose answer was lost.
            return self.read(path) == data
        return True

    @abstractmethod
    def _make(self, path: str, data: bytes) -> None:
        """Make a file that is not there, whole. Raises FileExistsError, OSError."""

    def open(self, path: str, mime_type: str = "", compression_type: str = "") -> BinaryIO:
        return cast(BinaryIO, Reader(self, path))

    def copy(self, source_file_names: Sequence[str], destination_file_names: Sequence[str]) -> None:
        self._each("copy", self._copy, source_file_names, destination_file_names)

    def rename(self, source_file_names: Sequence[str], destination_file_names: Sequence[str]) -> None:
        self._each("rename", self._rename, source_file_names, destination_file_names)

    def _copy(self, source: str, target: str) -> None:
        with self.open(source) as reader, self.create(target) as writer:
            while data := reader.read(PART):
                writer.write(data)

    @abstractmethod
    def _rename(self, source: str, target: str) -> None: ...

    def delete(self, paths: Sequence[str]) -> None:
        """Delete files, and folders with all that they hold; harmless for those that are gone. Raises BeamIOError."""

        def delete(path: str) -> None:
            with contextlib.suppress(FileNotFoundError):
                self._delete(path)

        self._each("delete", delete, paths, at_once=self.deletes_at_once)

    @abstractmethod
    def _delete(self, path: str) -> None:
        """Delete what has this name. Raises OSError."""

    @staticmethod
    def _each(what: str, act: Callable[..., None], *names: Sequence[str], at_once: int = 1) -> None:
        """Act on each name, or on those of several lists that stand side by side."""
        if len({len(several) for several in names}) > 1:
            raise BeamIOError(f"{what}: {len(names[0])} names and {len(names[1])} targets")
        failed: dict[Any, OSError] = {}

        def attempt(*of: str) -> None:
            try:
                act(*of)
            except OSError as error:
                failed[of if len(of) > 1 else of[0]] = error

        if at_once > 1:
            with ThreadPoolExecutor(at_once) as pool:
                list(pool.map(attempt, *names))
        else:
            list(map(attempt, *names))
        if failed:
            raise BeamIOError(f"{what} failed", failed)

    def exists(self, path: str) -> bool:
        try:
            self._about(path)
        except FileNotFoundError:
            return False
        return True


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
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _cut(self, start: int, size: int) -> bytes:
        """What is at hand of `size` bytes from `start` on."""
        first = start - self._begin
        return self._ahead[first : first + size] if 0 <= first < len(self._ahead) else b""
