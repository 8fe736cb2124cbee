"""Reading files: opened by `dpbeam.storage`, decompressed by their names. Beam is imported when a file is opened."""

from __future__ import annotations

import lzma
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import pyarrow as pa

from dpbeam.errors import DataError
from dpbeam.io.compressions import compression_of
from dpbeam.io.paths import STDIN
from dpbeam.storage import FileSystems
from dpbeam.storage.reasons import reason, refusal


@contextmanager
def open_input(path: str) -> Iterator[BinaryIO]:
    """A file of raw bytes, seekable unless it is a pipe or stdin. Raises InputError if it cannot be opened."""
    file: Any
    try:
        if path == STDIN:
            file = os.fdopen(os.dup(0), "rb")
        else:
            file = FileSystems.open(path)
    except (OSError, ValueError) as error:
        raise refusal(DataError, f"{path}: cannot be read: {reason(error)}", error) from None
    whole: Any = file if path == STDIN or FileSystems.at(path).is_near else _WholeReads(file)
    try:
        yield whole
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

    The decompressors read concatenated members and frames and refuse truncated ones.
    """

    def __init__(self, path: str, file: BinaryIO, start: int = 0):
        self.path = path
        self._compression = compression_of(path)
        self._stream: BinaryIO | pa.NativeFile = file
        if self._compression == "xz":  # unknown to Arrow
            self._stream = lzma.LZMAFile(file)  # noqa: SIM115  (closed with what it reads)
        elif self._compression:
            self._stream = pa.CompressedInputStream(pa.PythonFile(file, mode="r"), self._compression)
        elif start:
            file.seek(start)

    def read(self, size: int) -> bytes:
        """Up to `size` bytes, fewer only at the end. Raises InputError for a damaged file."""
        try:
            return _read_fully(self._stream, size)
        except (OSError, EOFError, lzma.LZMAError) as error:
            problem = f"not a whole {self._compression} file" if self._compression else "cannot be read"
            raise refusal(DataError, f"{self.path}: {problem}: {reason(error)}", error) from None

    def read_all(self) -> bytes:
        """All that is left. Raises InputError for a damaged file."""
        return b"".join(iter(lambda: self.read(8 << 20), b""))
