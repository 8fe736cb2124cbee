"""The front of all filesystems: Beam's own, with others for `s3://`, `hdfs://` and Azure.

Beam's S3 files make a client for each call, read through one stream, cannot give up a write, and so leave half an
object where a writer fails; its HDFS files do the first two of these. The private folder of a run needs better:
`dpbeam.storage.s3`, `dpbeam.storage.azure` and `dpbeam.storage.hdfs`. Options (`--s3_endpoint_url`, `--hdfs_host`, ...)
come from Beam, on the launcher and on workers.
"""

from __future__ import annotations

import contextlib
import functools
import os
import uuid
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, ParamSpec, TypeVar, cast

from apache_beam.io.filesystem import BeamIOError, CompressionTypes, FileSystem, MatchResult
from apache_beam.io.filesystems import FileSystems as BeamFileSystems
from apache_beam.io.localfilesystem import LocalFileSystem
from apache_beam.options.pipeline_options import PipelineOptions

from dpbeam.disk import BEING_WRITTEN, Writer
from dpbeam.storage import azure, hdfs, s3
from dpbeam.storage.remote import RemoteFiles, Upload

_OURS = {
    "s3": s3.S3Files.scheme(),
    "hdfs": hdfs.HdfsFiles.scheme(),
    **dict.fromkeys(("az", "abfs", "abfss"), azure.AzureFiles.scheme()),
}
_LOCAL = LocalFileSystem(None)  # it has no options
_P = ParamSpec("_P")
_R = TypeVar("_R")
_MIME = "application/octet-stream"
_PLAIN = CompressionTypes.UNCOMPRESSED


def _os_errors(method: Callable[_P, _R]) -> Callable[_P, _R]:
    """Beam's own error, which is no OSError, becomes one: that of the first file that it names, or its words."""

    @functools.wraps(method)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return method(*args, **kwargs)
        except BeamIOError as error:
            details = error.exception_details
            cause = next(iter(details.values()), None) if isinstance(details, dict) else None
            if not isinstance(cause, OSError):
                cause = OSError(str(cause or error).removesuffix(" with exceptions None"))
            raise cause from error

    return call


class FileSystems:
    """As Beam's class of this name, for files of plain bytes. Whatever goes wrong with a file is an OSError."""

    @staticmethod
    def set_options(pipeline_options: PipelineOptions | None) -> None:
        """Let filesystems know their flags, also Beam's own; a pipeline that is made does so again."""
        BeamFileSystems.set_options(pipeline_options)

    @staticmethod
    def get_scheme(path: str) -> str | None:
        """As in a URL; None on this machine."""
        scheme: str | None = BeamFileSystems.get_scheme(path)
        return scheme

    @staticmethod
    def is_local(path: str) -> bool:
        """Whether a path is a file's of this machine, without a scheme."""
        return FileSystems.get_scheme(path) is None

    @staticmethod
    def get_filesystem(path: str) -> FileSystem:
        """The filesystem of a path. Raises ValueError, ImportError or Beam's error if there is none."""
        scheme = FileSystems.get_scheme(path)
        if scheme is None:
            return _LOCAL  # Beam looks through all its filesystems for it, at every call
        ours = _OURS.get(scheme)
        return BeamFileSystems.get_filesystem(path if ours is None else f"{ours}://")

    @staticmethod
    def _ours(path: str) -> RemoteFiles | None:
        """The filesystem of a path if it is one of dpbeam's."""
        filesystem = FileSystems.get_filesystem(path)
        return filesystem if isinstance(filesystem, RemoteFiles) else None

    @staticmethod
    def known_schemes() -> set[str]:
        """Schemes that some filesystem has."""
        schemes = {fs.scheme() for fs in FileSystem.get_all_subclasses()}
        return {scheme for scheme in schemes if scheme and not scheme.startswith("dpbeam-")}

    @staticmethod
    def appears_whole(path: str) -> bool:
        """Whether a new file is seen when it is closed and not before, and its writer has `abort`."""
        ours = FileSystems._ours(path)
        return ours is not None and ours.appears_whole

    @staticmethod
    def join(basepath: str, *paths: str) -> str:
        return FileSystems.get_filesystem(basepath).join(basepath, *paths)

    @staticmethod
    def split(path: str) -> tuple[str, str]:
        return FileSystems.get_filesystem(path).split(path)

    @staticmethod
    @_os_errors
    def mkdirs(path: str, *, private: bool = False) -> None:
        """Make a folder, where there are folders; `private`: for its owner alone, where the store knows owners."""
        if private and FileSystems.is_local(path):
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            os.mkdir(path, 0o700)
            os.chmod(path, 0o700)  # whatever the umask
            return
        if private and (ours := FileSystems._ours(path)):
            ours.mkdirs_private(path)
        else:
            FileSystems.get_filesystem(path).mkdirs(path)

    @staticmethod
    @_os_errors
    def match(patterns: Sequence[str], limits: Sequence[int | None] | None = None) -> list[MatchResult]:
        return FileSystems.get_filesystem(patterns[0]).match(patterns, limits) if patterns else []

    @staticmethod
    @_os_errors
    def list_prefix(prefix: str) -> list[str]:
        """Sorted paths of the remote files whose path begins with `prefix`, taken literally, in its folder.

        Raises:
          OSError: the store does not answer.
        """
        if ours := FileSystems._ours(prefix):
            return sorted(ours.sizes(prefix))
        return sorted(entry.path for entry in FileSystems.match([prefix + "*"])[0].metadata_list)

    @staticmethod
    @_os_errors
    def folders(parent: str, stem: str, file: str) -> list[str]:
        """Sorted paths of the remote folders below `parent` whose names begin with `stem`.

        Args:
          file: where a filesystem cannot list folders, those with a file of this name are found.
        """
        if ours := FileSystems._ours(parent):
            return ours.folders(parent, stem)
        entries = FileSystems.match([FileSystems.join(parent, f"{stem}*", file)])[0].metadata_list
        return sorted(FileSystems.split(entry.path)[0] for entry in entries)

    @staticmethod
    @_os_errors
    def remove_folder(path: str) -> None:
        """Delete a remote folder with all that it holds, also what was never finished; harmless if it is gone."""
        everything = FileSystems.join(path, "*")
        if ours := FileSystems._ours(path):
            ours.remove_folder(path)
        elif FileSystems.match([everything])[0].metadata_list:
            FileSystems.delete([everything])

    @staticmethod
    def put(
        path: str,
        *,
        make_folder: bool = True,
        private: bool = False,
        durable: bool = True,
        once: bool = False,
        same: bool = False,
        temporary_in: str | None = None,
    ) -> Upload | Writer:
        """A new file, whole once it is closed; `abort`, an exception and the garbage collector give it up.

        Until then a reader sees nothing of it, or all of an earlier file, and a killed process leaves neither more nor
        less. What a store has answered it keeps; on this machine `dpbeam.disk.Writer` says what a power cut leaves.

        Args:
          make_folder: on this machine, make a folder that is missing; otherwise that is an error.
          private, durable, once: as of `dpbeam.disk.Writer`, on this machine.
          same: an earlier file holds the same, and may stay.
          temporary_in: where it is written until then, if not beside it, in a folder of the same filesystem.
        """
        if FileSystems.is_local(path):
            if make_folder:
                os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            return Writer(path, once=once, private=private, durable=durable, temporary_in=temporary_in)
        if FileSystems.appears_whole(path):
            return cast(Upload, FileSystems.create(path))
        return _Renamed(path, temporary_in, same)

    @staticmethod
    @_os_errors
    def create(path: str) -> BinaryIO:
        """A new file, which others may see before it is whole, but where `appears_whole`."""
        return FileSystems.get_filesystem(path).create(path, _MIME, _PLAIN)

    @staticmethod
    def sizes(prefix: str) -> dict[str, int]:
        """As `list_prefix`, with the size of each file. Of the stores of `writes_once`. Raises OSError."""
        ours = FileSystems._ours(prefix)
        assert ours is not None
        return ours.sizes(prefix)

    @staticmethod
    def writes_once(path: str) -> bool:
        """Whether a path is on a store with `write_once`."""
        return FileSystems._ours(path) is not None

    @staticmethod
    def write_once(path: str, data: bytes) -> bool:
        """Whether a remote file holds these data: it is made, whole, unless it is there. Of several writers at once
        with different data one alone hears that its own are there.

        Raises:
          OSError: the store does not answer.
        """
        ours = FileSystems._ours(path)
        assert ours is not None
        return ours.write_once(path, data)

    @staticmethod
    @_os_errors
    def open(path: str) -> BinaryIO:
        return FileSystems.get_filesystem(path).open(path, _MIME, _PLAIN)

    @staticmethod
    @_os_errors
    def read(path: str) -> bytes:
        """A whole remote file. Raises OSError if it is not there, or cannot be read to its end."""
        if ours := FileSystems._ours(path):
            return ours.read(path)
        with FileSystems.open(path) as source:
            return source.read()

    @staticmethod
    @_os_errors
    def read_range(path: str, offset: int, size: int) -> bytes:
        """Bytes offset to offset + size of a remote file.

        Raises:
          OSError: the file is gone, ends before, or cannot be read.
        """
        if ours := FileSystems._ours(path):
            return ours.read_range(path, offset, size)
        parts, left = [], size
        with FileSystems.open(path) as source:
            source.seek(offset)
            while left and (part := source.read(left)):  # object stores may return less than asked for
                parts.append(part)
                left -= len(part)
        if left:
            raise OSError(f"{path}: ends {left} bytes too early")
        return b"".join(parts)

    @staticmethod
    @_os_errors
    def rename(sources: Sequence[str], targets: Sequence[str]) -> None:
        if sources:
            FileSystems.get_filesystem(sources[0]).rename(sources, targets)

    @staticmethod
    def replace(source: str, target: str) -> None:
        """Rename; where the filesystem does not replace an existing target, delete that first."""
        try:
            FileSystems.rename([source], [target])
        except OSError:
            if not FileSystems.exists(source) or not FileSystems.exists(target):
                raise
            FileSystems.delete([target])
            FileSystems.rename([source], [target])

    @staticmethod
    @_os_errors
    def exists(path: str) -> bool:
        return bool(FileSystems.get_filesystem(path).exists(path))

    @staticmethod
    @_os_errors
    def checksum(path: str) -> str:
        return FileSystems.get_filesystem(path).checksum(path)

    @staticmethod
    @_os_errors
    def delete(paths: Sequence[str]) -> None:
        if paths:
            FileSystems.get_filesystem(paths[0]).delete(paths)


class _Renamed(Upload):
    """A file of a store where files are seen while they are written: it has another name until it is whole."""

    def __init__(self, path: str, temporary_in: str | None, same: bool):
        super().__init__()
        folder = temporary_in or FileSystems.split(path)[0]
        self._path, self._same, self._renamed = path, same, False
        self._temporary = FileSystems.join(folder, f"{BEING_WRITTEN}{uuid.uuid4().hex}")
        self._inner: Any = FileSystems.create(self._temporary)

    def write(self, data: Any) -> int:
        self._inner.write(data)
        return len(data)

    def _finish(self) -> None:
        self._inner.close()
        try:
            if self._same:
                FileSystems.rename([self._temporary], [self._path])
            else:
                FileSystems.replace(self._temporary, self._path)
            self._renamed = True
        except OSError:
            if not self._same or not FileSystems.exists(self._path):
                raise

    def _drop(self) -> None:
        with contextlib.suppress(OSError):
            getattr(self._inner, "abort", self._inner.close)()
        if not self._renamed:
            with contextlib.suppress(OSError):
                FileSystems.delete([self._temporary])
