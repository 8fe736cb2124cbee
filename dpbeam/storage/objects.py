"""What object stores have in common: no folders, no renaming, and objects that appear when their upload is complete."""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from dpbeam.storage.files import PLAIN, UNAVAILABLE, Put
from dpbeam.storage.remote import PART, RemoteFiles, Upload, check_beside

_UPLOADS_AT_ONCE = 4
_PARTS_OF_A_SIZE = 2000  # then parts are twice as large: 10,000 at most make an object of 500 GB


class ObjectFiles(RemoteFiles):
    """Objects of a bucket or container, by their key; there are no folders.

    A store of somebody's own needs `entries`, `state`, `part`, `put_object` and `delete_one`. With these alone a large
    object waits in memory until it is sent.
    """

    def make_folder(self, path: str, *, private: bool = False) -> None:
        """Look whether the path can be one of this store. Raises OSError."""

    @abstractmethod
    def put_object(self, path: str, data: bytes, *, once: bool) -> None:
        """Make an object, whole; `once`: not in place of another, then it raises FileExistsError. Raises OSError."""

    def new_object(self, path: str) -> NewObject:
        """The requests that make a large object in parts."""
        return _InMemory(self, path)

    def put(self, path: str, how: Put = PLAIN) -> Writer:
        return Writer(self.new_object(path), lambda: check_beside(self, path, how.beside))

    def _make(self, path: str, data: bytes) -> None:
        try:
            self.put_object(path, data, once=True)
        except OSError as error:
            if error.errno == errno.ESTALE:  # an S3 store's word for it
                raise FileExistsError(errno.EEXIST, "the object exists", path) from None
            raise

    def folders(self, parent: str, stem: str, file: str) -> list[str]:
        before = f"{parent.rstrip('/')}/"
        inside = (path[len(before) :].split("/") for path, _ in self.entries(before + stem))
        return sorted({before + name for name, *rest in inside if rest and name.startswith(stem)})

    def copy(self, source: str, target: str) -> None:
        """Make an object that holds what another one does. Raises OSError."""
        with self.open(source) as reader, self.put(target) as writer:
            while data := reader.read(PART):
                writer.write(data)

    def rename(self, source: str, target: str) -> None:
        self.copy(source, target)
        self.delete([source])

    def remove_folder(self, path: str, *, first: str = "", last: str = "") -> str | None:
        if first:
            self.delete([self.join(path, first)])
            self.remove_below(path)
        self.remove_below(path)  # also what a late worker finished meanwhile
        return None

    def remove_below(self, path: str) -> None:
        """Delete all objects of a folder, and what of them was begun. Raises OSError."""
        below = f"{path.rstrip('/')}/"
        self.delete([name for name, _ in list(self.entries(below)) if name.startswith(below)])


class NewObject(ABC):
    """The requests that make one object: all of it at once, or in parts. Parts are sent by several threads."""

    @abstractmethod
    def put(self, data: bytes) -> None:
        """The whole object. Raises OSError, as all do."""

    @abstractmethod
    def begin(self) -> None:
        """Before the first part."""

    @abstractmethod
    def put_part(self, number: int, data: bytes) -> Any:
        """Send part `number`, from 1; returns what `complete` needs of it."""

    @abstractmethod
    def complete(self, parts: Iterable[Any]) -> None:
        """Make the object appear, of its parts in order. Harmless where a request before has done it."""

    @abstractmethod
    def discard(self) -> None:
        """Let go of the parts that were sent."""


class _InMemory(NewObject):
    """An object whose parts wait in memory."""

    def __init__(self, files: ObjectFiles, path: str):
        self._files, self._path = files, path

    def put(self, data: bytes) -> None:
        self._files.put_object(self._path, data, once=False)

    def begin(self) -> None:
        pass

    def put_part(self, number: int, data: bytes) -> bytes:
        return data

    def complete(self, parts: Iterable[bytes]) -> None:
        self.put(b"".join(parts))

    def discard(self) -> None:
        pass


class Writer(Upload):
    """An object that appears when it is closed, and not if it is aborted or left to the garbage.

    Args:
      check: raises OSError where it must not appear.
    """

    def __init__(self, new: NewObject, check: Callable[[], None] = lambda: None):
        super().__init__()
        self._new, self._check = new, check
        self._buffer = bytearray()
        self._pool: ThreadPoolExecutor | None = None
        self._waiting: deque[Future] = deque()
        self._sent: list[Any] = []
        self._count = 0

    def write(self, data: Any) -> int:
        """Add bytes, and send parts that are full; how many."""
        if self.closed:
            raise ValueError("the file is closed")
        self._buffer += data
        while len(self._buffer) >= (size := PART << (self._count // _PARTS_OF_A_SIZE)):
            part = bytes(memoryview(self._buffer)[:size])
            del self._buffer[:size]
            self._send(part)
        return len(data)

    def _finish(self) -> None:
        self._check()
        if not self._count:
            self._new.put(bytes(self._buffer))
            return
        if self._buffer:
            self._send(bytes(self._buffer))
        self._gather(0)
        self._new.complete(self._sent)
        self._count = 0

    def _drop(self) -> None:
        self._buffer = bytearray()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        if self._count:
            self._new.discard()

    def _send(self, part: bytes) -> None:
        if self._pool is None:
            self._new.begin()
            self._pool = ThreadPoolExecutor(_UPLOADS_AT_ONCE)
        self._gather(_UPLOADS_AT_ONCE)
        self._count += 1
        self._waiting.append(self._pool.submit(self._new.put_part, self._count, part))

    def _gather(self, left: int) -> None:
        while len(self._waiting) > left:
            self._sent.append(self._waiting.popleft().result())


def refused(status: int | None, code: str, path: str, asked: str = "") -> OSError:
    """What an answer of a store that is no success means.

    Args:
      code: the store's own word for it.
      asked: what the request was, for the message.
    """
    if code in ("NoSuchBucket", "ContainerNotFound"):
        kind = "bucket" if code == "NoSuchBucket" else "container"
        return OSError(errno.ENXIO, f"no such {kind}", path)
    if code == "BlobAlreadyExists":
        return FileExistsError(errno.EEXIST, "the object exists", path)
    if status == 404:
        return FileNotFoundError(errno.ENOENT, "no such object", path)
    if status in (401, 403):
        return PermissionError(errno.EACCES, f"the store denies access ({code})", path)
    if status == 412:
        return OSError(errno.ESTALE, "the object was replaced while it was read", path)
    if status == 416:
        return OSError(errno.EIO, "the object is shorter than expected", path)
    passes = (
        is_passing_status(status) or code == "ConditionalRequestConflict"
    )  # two who make one object at once
    number = UNAVAILABLE if passes else errno.EIO
    return OSError(
        number, " ".join(filter(None, (f"the store answers {status} {code}".rstrip(), asked))), path
    )


def is_passing_status(status: int | None) -> bool:
    """Whether a store that answers so may do better a minute later."""
    return status in (408, 429) or (status or 0) >= 500
