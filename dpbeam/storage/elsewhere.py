"""Files elsewhere: dpbeam's own of S3, Google, Azure and HDFS, and those that Beam reads besides.

Beam's own of these make a client for each call, read through one stream, or cannot give up a write, and so leave half
an object where a writer fails. The private folder of a run needs better. Options (`--s3_endpoint_url`, `--hdfs_host`,
...) come from Beam, on the launcher and on workers.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, BinaryIO

from apache_beam.io.filesystem import BeamIOError, CompressionTypes, FileSystem
from apache_beam.io.filesystems import FileSystems as BeamFileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.options.value_provider import RuntimeValueProvider

from dpbeam import plugins
from dpbeam.storage import azure, google, hdfs, s3
from dpbeam.storage.files import Files, NotOnceError
from dpbeam.storage.remote import RemoteFiles, RenamingFiles

_OURS: dict[str, type[RemoteFiles]] = {
    "s3": s3.S3Files,
    "gs": google.GoogleFiles,
    "hdfs": hdfs.HdfsFiles,
    **dict.fromkeys(("az", "abfs", "abfss"), azure.AzureFiles),
}
_AS_IS = ("application/octet-stream", CompressionTypes.UNCOMPRESSED)


def set_options(options: PipelineOptions | None) -> None:
    """Let filesystems know their flags."""
    BeamFileSystems.set_options(options)


def files_at(path: str) -> Files:
    """The files of a path with a scheme. Raises ValueError, ImportError or Beam's error if there are none."""
    scheme = BeamFileSystems.get_scheme(path)
    ours = _OURS.get(scheme) or _somebodys(scheme)
    if ours is None:
        return BeamFiles(BeamFileSystems.get_filesystem(path))
    options: Any = BeamFileSystems._pipeline_options or RuntimeValueProvider.runtime_options
    if isinstance(options, PipelineOptions):  # of the launcher; a worker has a dict
        options = _flags_of(options)
    return ours(options or {})


def _somebodys(scheme: str) -> type[RemoteFiles] | None:
    """The class that an installed package brings for a scheme."""
    entry = plugins.added(plugins.STORES, _OURS).get(scheme)
    files: type[RemoteFiles] | None = None if entry is None else plugins.load(entry)
    return files


@functools.lru_cache(maxsize=1)  # reading them takes longer than a request
def _flags_of(options: PipelineOptions) -> dict[str, Any]:
    """Beam's flags; those alone that were given."""
    return options.get_all_options(drop_default=True)


def known_schemes() -> set[str]:
    """Schemes that some filesystem has."""
    return {
        *_OURS,
        *plugins.added(plugins.STORES, _OURS),
        *(scheme for fs in FileSystem.get_all_subclasses() if (scheme := fs.scheme())),
    }


class BeamFiles(RenamingFiles):
    """A filesystem of Beam's; it cannot make files once, and its files are renamed when they are whole."""

    def __init__(self, beams: FileSystem):
        self._beams = beams

    def join(self, basepath: str, *paths: str) -> str:
        return str(self._beams.join(basepath, *paths))

    def split(self, path: str) -> tuple[str, str]:
        head, tail = self._beams.split(path)
        return head, tail

    def make_folder(self, path: str, *, private: bool = False) -> None:
        self._beams.mkdirs(path)

    def create(self, path: str) -> BinaryIO:
        return self._beams.create(path, *_AS_IS)

    def move(self, source: str, target: str) -> None:
        self._beams.rename([source], [target])

    def put_once(
        self, path: str, data: bytes, *, make_folder: bool = False, private: bool = True, durable: bool = True
    ) -> bool:
        raise NotOnceError(path)

    def open(self, path: str) -> BinaryIO:
        return self._beams.open(path, *_AS_IS)

    def read(self, path: str) -> bytes:
        with self.open(path) as source:
            return source.read()

    def read_range(self, path: str, offset: int, size: int) -> bytes:
        parts, left = [], size
        with self.open(path) as source:
            source.seek(offset)
            while left and (part := source.read(left)):  # object stores may return less than asked for
                parts.append(part)
                left -= len(part)
        if left:
            raise OSError(f"{path}: ends {left} bytes too early")
        return b"".join(parts)

    def exists(self, path: str) -> bool:
        return bool(self._beams.exists(path))

    def checksum(self, path: str) -> str:
        """What the store says that tells two contents apart."""
        return str(self._beams.checksum(path))

    def sizes(self, prefix: str) -> dict[str, int]:
        return self.match(f"{prefix}*")

    def match(self, pattern: str, limit: int | None = None) -> dict[str, int]:
        entries = self._beams.match([pattern], [limit])[0].metadata_list
        return {entry.path: int(entry.size_in_bytes) for entry in entries}

    def folders(self, parent: str, stem: str, file: str) -> list[str]:
        return sorted(self.split(path)[0] for path in self.match(self.join(parent, f"{stem}*", file)))

    def delete(self, paths: Sequence[str]) -> None:
        try:
            self._beams.delete(paths)
        except BeamIOError:
            if any(map(self.exists, paths)):
                raise

    def remove_folder(self, path: str, *, first: str = "", last: str = "") -> str | None:
        everything = self.join(path, "*")
        if first:
            self.delete([self.join(path, first)])
        if self.match(everything):
            self._beams.delete([everything])
        return None

    def alone(self, path: str) -> AbstractContextManager[None]:
        raise NotOnceError(path)
