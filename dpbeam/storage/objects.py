"""What object stores have in common: no folders, no renaming, and objects that appear when their upload is complete."""

from __future__ import annotations

import errno
from abc import abstractmethod
from typing import Any

from dpbeam.storage.files import PLAIN, Put
from dpbeam.storage.remote import PART, RemoteFiles, Upload, check_beside


class ObjectFiles(RemoteFiles):
    """Objects of a bucket or container, by their key; there are no folders.

    A store of somebody's own needs `entries`, `state`, `part`, `put_object` and `delete_one`. A large object waits in
    memory until it is sent.
    """

    def make_folder(self, path: str, *, private: bool = False) -> None:
        """Look whether the path can be one of this store. Raises OSError."""

    @abstractmethod
    def put_object(self, path: str, data: bytes, *, once: bool) -> None:
        """Make an object, whole; `once`: not in place of another, then it raises FileExistsError. Raises OSError."""

    def put(self, path: str, how: Put = PLAIN) -> Upload:
        return _InMemory(self, path, how.beside)

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
        """Delete all objects of a folder. Raises OSError."""
        below = f"{path.rstrip('/')}/"
        self.delete([name for name, _ in list(self.entries(below)) if name.startswith(below)])


class _InMemory(Upload):
    """An object that waits in memory, and appears when it is closed."""

    def __init__(self, files: ObjectFiles, path: str, beside: str | None):
        super().__init__()
        self._files, self._path, self._beside = files, path, beside
        self._buffer = bytearray()

    def write(self, data: Any) -> int:
        """Add bytes; how many."""
        if self.closed:
            raise ValueError("the file is closed")
        self._buffer += data
        return len(data)

    def _finish(self) -> None:
        check_beside(self._files, self._path, self._beside)
        self._files.put_object(self._path, bytes(self._buffer), once=False)

    def _drop(self) -> None:
        self._buffer = bytearray()
