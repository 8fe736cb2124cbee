"""Access to files: matching patterns, opening, decompressing, atomic writing; always through Beam's FileSystems.

So any filesystem that Beam reads works here too. Faults that a user can mend become InputErrors that name the file.
"""

from __future__ import annotations

import glob
import os
import posixpath
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

import pyarrow as pa
from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems

from dpbeam.errors import InputError
from dpbeam.io.spec import compression_of

# Left beside data by other engines; never data.
_MARKERS = frozenset({"_SUCCESS", "_metadata", "_common_metadata"})


@dataclass(frozen=True, order=True)
class InputFile:
    """A file and its size in bytes."""

    path: str
    size: int


def match_files(patterns: Iterable[str], flag: str = "--input") -> list[InputFile]:
    """All files that the patterns match, by path; a file that two patterns match comes once.

    As in a shell, a wildcard does not match a leading dot; Hadoop's marker files are not data.

    Raises:
      InputError: a pattern matches nothing, names a folder, or its storage cannot be reached.
    """
    found: dict[str, int] = {}
    for pattern in patterns:
        for file in _match(pattern, flag):
            found[file.path] = file.size
    return sorted(InputFile(path, size) for path, size in found.items())


def _match(pattern: str, flag: str) -> list[InputFile]:
    if is_local_folder(pattern):
        example = os.path.join(pattern, "*")
        raise InputError(f"{flag}: '{pattern}' is a folder; name its files, for example '{example}'")
    wild = any(c in pattern for c in "*?[")
    try:
        if is_local(pattern):
            wild = wild and not os.path.isfile(pattern)
            files = _local_files(pattern, wild)
        else:
            listed = FileSystems.match([pattern])[0].metadata_list
            files = [InputFile(m.path, int(m.size_in_bytes)) for m in listed]
    except (BeamIOError, OSError, ValueError, ImportError) as error:
        raise InputError(f"{flag}: cannot look up '{pattern}': {reason(error)}") from None
    if wild:
        files = [file for file in files if _is_data(file.path, pattern)]
    if not files:
        what = "no file matches" if wild else "no such file:"
        raise InputError(f"{flag}: {what} '{pattern}'")
    return files


def _local_files(pattern: str, wild: bool) -> list[InputFile]:
    # Beam's local listing walks the whole tree below the first wildcard; the standard library does not.
    paths = glob.glob(pattern, recursive=True) if wild else [pattern]
    return [InputFile(path, os.path.getsize(path)) for path in paths if os.path.isfile(path)]


def _is_data(path: str, pattern: str) -> bool:
    name = posixpath.basename(path)
    hidden = name.startswith(".") and not posixpath.basename(pattern).startswith(".")
    return not hidden and name not in _MARKERS


def list_prefix(prefix: str) -> list[str]:
    """Sorted paths of the files whose path begins with `prefix`, in its folder; empty if there is no folder."""
    if is_local(prefix):
        folder, stem = os.path.split(prefix)
        if not os.path.isdir(folder or "."):
            return []
        return sorted(
            os.path.join(folder, e.name) for e in os.scandir(folder or ".") if e.name.startswith(stem)
        )
    return sorted(metadata.path for metadata in FileSystems.match([prefix + "*"])[0].metadata_list)


def is_local(path: str) -> bool:
    """Whether a path lies on the local filesystem."""
    return FileSystems.get_scheme(path) is None


def is_local_folder(path: str) -> bool:
    """Whether a path is an existing folder of the local filesystem."""
    return is_local(path) and os.path.isdir(path)


def reason(error: BaseException) -> str:
    """The cause of an I/O error in a few words."""
    if isinstance(error, BeamIOError) and error.exception_details:
        details = error.exception_details
        error = next(iter(details.values())) if isinstance(details, dict) else error
    text = getattr(error, "strerror", None) or str(error).removesuffix(" with exceptions None")
    return text or type(error).__name__


@contextmanager
def open_input(path: str) -> Iterator[BinaryIO]:
    """A seekable file of raw bytes. Raises InputError if it cannot be opened."""
    try:
        file = FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED)
    except (BeamIOError, OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read: {reason(error)}") from None
    try:
        yield file if is_local(path) else _WholeReads(file)
    finally:
        file.close()


def _read_fully(file: BinaryIO | pa.NativeFile, size: int) -> bytes:
    """Up to `size` bytes, fewer only at the end: remote files and decompressors may return less than asked."""
    data = file.read(size)
    if not data or len(data) == size:
        return data
    parts, have = [data], len(data)
    while have < size and (data := file.read(size - have)):
        parts.append(data)
        have += len(data)
    return b"".join(parts)


class _WholeReads:
    """A file that never reads less than asked before its end, as Arrow expects."""

    def __init__(self, file: BinaryIO):
        self._file = file

    def read(self, size: int = -1) -> bytes:
        return self._file.read() if size is None or size < 0 else _read_fully(self._file, size)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    @property
    def closed(self) -> bool:
        return self._file.closed

    def close(self) -> None:
        self._file.close()


class ByteSource:
    """Sequential reading of a file, decompressed by its extension, with errors that name the file.

    Arrow's decompressors read concatenated gzip members and zstd frames and refuse truncated ones.
    """

    def __init__(self, path: str, file: BinaryIO, format: str, start: int = 0):
        self.path = path
        compression = compression_of(path, format)
        self._file = file
        self._stream = None
        if compression:
            self._stream = pa.CompressedInputStream(pa.PythonFile(file, mode="r"), compression)
            self._name = compression
        elif start:
            file.seek(start)

    def read(self, size: int) -> bytes:
        """Up to `size` bytes, fewer only at the end. Raises InputError for a damaged file."""
        try:
            return _read_fully(self._file if self._stream is None else self._stream, size)
        except (BeamIOError, OSError) as error:
            if self._stream is not None:
                raise InputError(f"{self.path}: not a whole {self._name} file: {reason(error)}") from None
            raise InputError(f"{self.path}: cannot be read: {reason(error)}") from None


def write_atomically(path: str, write: Callable[[BinaryIO], None]) -> None:
    """Write a file under a temporary name beside it, then rename; an existing file is replaced.

    A reader never sees a part of the file, and repeated writers of the same content leave one whole file.
    """
    folder, name = FileSystems.split(path)
    temporary = FileSystems.join(folder, f".tmp-{uuid.uuid4().hex}-{name}")
    try:
        file = FileSystems.create(
            temporary, mime_type="application/octet-stream", compression_type=CompressionTypes.UNCOMPRESSED
        )
        try:
            write(file)
        finally:
            file.close()
        rename(temporary, path)
    except BaseException:
        delete_quietly([temporary])
        raise


def rename(source: str, target: str) -> None:
    """Rename; where the filesystem does not replace an existing target, delete that first."""
    try:
        FileSystems.rename([source], [target])
    except BeamIOError:
        if not FileSystems.exists(source) or not FileSystems.exists(target):
            raise
        FileSystems.delete([target])
        FileSystems.rename([source], [target])


def delete_quietly(paths: list[str]) -> None:
    """Delete files or folders that may not exist."""
    for path in paths:
        try:
            if FileSystems.exists(path):
                FileSystems.delete([path])
        except (BeamIOError, OSError):
            continue
