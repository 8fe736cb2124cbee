"""An object store in memory for tests, of `s3://` or another scheme, whose requests a test may watch, stop or break."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from dpbeam.storage import elsewhere
from dpbeam.storage.objects import ObjectFiles


@dataclass
class Store:
    """Attributes:
    objects: URL -> what it holds.
    watch: is called with (kind, URL) before each request.
    conditions: whether a request to make an object once is honoured.
    """

    objects: dict[str, bytes] = field(default_factory=dict)
    watch: Callable[[str, str], None] = lambda kind, url: None
    conditions: bool = True


_store = Store()


def install(monkeypatch: pytest.MonkeyPatch, scheme: str = "s3") -> Store:
    """Let the URLs of a scheme be those of a new store."""
    monkeypatch.setitem(elsewhere._OURS, scheme, MemoryFiles)
    monkeypatch.setattr(f"{__name__}._store", made := Store())
    return made


class MemoryFiles(ObjectFiles):
    def entries(self, prefix: str) -> Iterator[tuple[str, int]]:
        _store.watch("list", prefix)
        for url, data in list(_store.objects.items()):
            if url.startswith(prefix) and not url.endswith("/"):  # a mark of a folder
                yield url, len(data)

    def state(self, path: str) -> tuple[int, object]:
        _store.watch("head", path)
        if path not in _store.objects:
            raise FileNotFoundError(errno.ENOENT, "no such object", path)
        return len(_store.objects[path]), _store.objects[path]

    def part(self, path: str, start: int, end: int, version: object) -> bytes:
        _store.watch("get", path)
        if path not in _store.objects:
            raise FileNotFoundError(errno.ENOENT, "no such object", path)
        if version not in (None, _store.objects[path]):
            raise OSError(errno.ESTALE, "the object was replaced while it was read", path)
        if end > len(_store.objects[path]):
            raise OSError(errno.EIO, "the object is shorter than expected", path)
        return _store.objects[path][start:end]

    def put_object(self, path: str, data: bytes, *, once: bool) -> None:
        _store.watch("make" if once else "put", path)
        if once and _store.conditions and path in _store.objects:
            raise FileExistsError(errno.EEXIST, "the object exists", path)
        _store.objects[path] = data

    def copy(self, source: str, target: str) -> None:
        _store.watch("copy", target)
        _store.objects[target] = _store.objects[source]

    def delete_one(self, path: str) -> None:
        _store.watch("delete", path)
        _store.objects.pop(path, None)
