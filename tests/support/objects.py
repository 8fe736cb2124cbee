"""A fake object store as a Beam filesystem (`dpfake://`): short reads, no folders, no renaming onto an object."""

from __future__ import annotations

import fnmatch
import io

from apache_beam.io.filesystem import BeamIOError, FileMetadata, FileSystem

STORE: dict[str, bytes] = {}


class _Reader(io.BytesIO):
    def read(self, size=-1):
        return super().read(min(size, 1000) if size and size > 0 else size)


class _Writer(io.BytesIO):
    def __init__(self, path):
        super().__init__()
        self._path = path

    def close(self):
        if not self.closed:
            STORE[self._path] = self.getvalue()
        super().close()


class FakeStore(FileSystem):
    """Objects by name; renaming onto an existing object fails."""

    @classmethod
    def scheme(cls):
        return "dpfake"

    def join(self, basepath, *paths):
        return "/".join([basepath.rstrip("/"), *paths])

    def split(self, path):
        head, _, tail = path.rpartition("/")
        return head, tail

    def mkdirs(self, path):
        pass

    def has_dirs(self):
        return False

    def _list(self, prefix):
        for path, data in sorted(STORE.items()):
            if path.startswith(prefix):
                yield FileMetadata(path, len(data))

    def open(self, path, mime_type="", compression_type=None):
        if path not in STORE:
            raise BeamIOError(f"no object {path}")
        return _Reader(STORE[path])

    def create(self, path, mime_type="", compression_type=None):
        return _Writer(path)

    def rename(self, source_file_names, destination_file_names):
        for source, target in zip(source_file_names, destination_file_names):
            if target in STORE or source not in STORE:
                raise BeamIOError("rename failed", {(source, target): OSError("exists")})
            STORE[target] = STORE.pop(source)

    def copy(self, source_file_names, destination_file_names):
        raise NotImplementedError

    def exists(self, path):
        return path in STORE

    def size(self, path):
        return len(STORE[path])

    def last_updated(self, path):
        return 0.0

    def metadata(self, path):
        return FileMetadata(path, len(STORE[path]))

    def checksum(self, path):
        return str(len(STORE[path]))

    def delete(self, paths):
        for path in paths:
            for name in fnmatch.filter(list(STORE), path):
                del STORE[name]
