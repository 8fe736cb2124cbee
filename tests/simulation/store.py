"""An object store whose objects the simulation holds: `s3://` in its processes."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any

from dpbeam.storage.files import UNAVAILABLE
from dpbeam.storage.objects import ObjectFiles
from dpbeam.storage.remote import patiently


def world(*request: Any) -> Any:
    """Asks the simulation; each process has its own in this place."""
    raise NotImplementedError


def _ask(*request: Any) -> Any:
    """As the products' clients: what a store that was busy had to do is asked again."""
    return patiently(lambda: world(*request), lambda error: getattr(error, "errno", None) == UNAVAILABLE)


class SimulatedFiles(ObjectFiles):
    """As `dpbeam.storage.objects.ObjectFiles`."""

    def entries(self, prefix: str) -> Iterator[tuple[str, int]]:
        yield from _ask("list", prefix)

    def state(self, path: str) -> tuple[int, object]:
        size, version = _ask("head", path)
        return size, version

    def part(self, path: str, start: int, end: int, version: object) -> bytes:
        data: bytes = _ask("get", path, start, end, version)
        return data

    def put_object(self, path: str, data: bytes, *, once: bool) -> None:
        _ask("make" if once else "put", path, bytes(data))

    def delete_one(self, path: str) -> None:
        _ask("delete", path)


class Objects:
    """The store itself: what it answers to these requests."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[int, bytes]] = {}
        self._versions = 0

    def answer(self, kind: str, path: str, *more: Any) -> Any:
        """Raises OSError."""
        if kind == "list":
            return sorted(
                (name, len(data)) for name, (_, data) in self.objects.items() if name.startswith(path)
            )
        if kind in ("put", "make"):
            if kind == "make" and path in self.objects:
                raise FileExistsError(errno.EEXIST, "the object exists", path)
            self._versions += 1
            self.objects[path] = self._versions, more[0]
            return None
        if kind == "delete":
            self.objects.pop(path, None)
            return None
        if path not in self.objects:
            raise FileNotFoundError(errno.ENOENT, "no such object", path)
        there, data = self.objects[path]
        if kind == "head":
            return len(data), there
        start, end, version = more
        if version not in (None, there):
            raise OSError(errno.ESTALE, "the object was replaced while it was read", path)
        if end > len(data):
            raise OSError(errno.EIO, "the object is shorter than expected", path)
        return data[start:end]


class AtOnce:
    """A pool of threads without threads."""

    def __init__(self, *_: object):
        pass

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Future:
        future: Future = Future()
        try:
            future.set_result(work(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future

    def map(self, work: Callable[..., Any], *lists: Iterable[Any]) -> Iterator[Any]:
        return map(work, *lists)

    def shutdown(self, **_: object) -> None:
        pass

    def __enter__(self) -> AtOnce:
        return self

    def __exit__(self, *_: object) -> None:
        pass
