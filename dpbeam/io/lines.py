"""Lines of a byte range: the common ground of text, JSON lines and TSV.

A line belongs to the range in which its first byte lies, so ranges of an uncompressed file can be read apart. Line
numbers are found only when a message needs one, by counting the newlines before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

from dpbeam.errors import DataError
from dpbeam.io.compressions import compression_of
from dpbeam.io.streams import ByteSource, open_input

CHUNK_BYTES = 8 << 20
_BOM = b"\xef\xbb\xbf"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_NEWLINE = 0x0A
_LONGEST_FIRST_LINE = 1 << 16  # of a file that may hold carriage returns before its first newline


@dataclass(frozen=True)
class Chunk:
    """Whole lines of a file.

    Attributes:
      path: the file.
      offset: position of the first byte in the (decompressed) file.
      data: the bytes; every line but the last of the file ends with a newline.
    """

    path: str
    offset: int
    data: bytes

    def line_number(self, at: int) -> int:
        """Number, from 1, of the line that holds byte `at` of this chunk."""
        return 1 + newlines_before(self.path, self.offset) + self.data.count(b"\n", 0, at)

    def bounds(self) -> np.ndarray:
        """(lines + 1,) int64 offsets of the lines; each line includes its newline."""
        data = np.frombuffer(self.data, np.uint8)
        ends = np.flatnonzero(data == _NEWLINE) + 1
        if len(data) and (not len(ends) or ends[-1] < len(data)):
            ends = np.append(ends, len(data))
        return np.concatenate(([0], ends)).astype(np.int64)


def chunks(
    path: str, file: BinaryIO, start: int, end: int, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[Chunk]:
    """The lines that begin in [start, end), in chunks of about `chunk_bytes`, without a byte order mark.

    Compressed files are read whole: their range must begin at 0. A line longer than a chunk is kept whole.
    """
    whole = compression_of(path) is not None
    if whole and start:
        raise ValueError(f"a compressed file has no range that begins at {start}")
    # From one byte earlier: if that is a newline, a line begins exactly at start.
    source = ByteSource(path, file, max(start - 1, 0))
    position, rest = _first_line(source, start, chunk_bytes)
    unbroken = not start
    while True:
        block = source.read(chunk_bytes)
        data = rest + block
        if unbroken:
            check_text(path, data, whole=not block)
            unbroken = b"\n" not in data
        cut = data.rfind(b"\n") + 1 if block else len(data)
        lines, rest = data[:cut], data[cut:]
        if not whole:
            lines = _before(lines, position, end)
        if lines:
            yield Chunk(path, position, lines)
        position += cut
        if not block or (position >= end and not whole):
            return


def check_text(path: str, data: bytes, *, whole: bool) -> None:
    """Refuse what is no text of lines in UTF-8; without its newlines a file would be a single line.

    Args:
      data: how the file begins; `whole`: it is all of it.

    Raises:
      InputError: lines end with carriage returns alone, or the bytes are those of UTF-16.
    """
    head = data[:64]
    halves = (head[0::2], head[1::2])
    if head.startswith(_UTF_16) or (len(head) > 8 and not all(any(half) for half in halves)):
        raise DataError(f"{path}: is text in UTF-16; convert it to UTF-8")
    if b"\r" in data and b"\n" not in data and (whole or len(data) > _LONGEST_FIRST_LINE):
        raise DataError(
            f"{path}: its lines end with carriage returns alone; convert them to newlines, as tr '\\r' '\\n' does"
        )


def _first_line(source: ByteSource, start: int, chunk_bytes: int) -> tuple[int, bytes]:
    """Position of the first line that begins at or after `start`, and what has been read from there on."""
    if not start:
        head = source.read(max(chunk_bytes, len(_BOM)))
        return (len(_BOM), head[len(_BOM) :]) if head.startswith(_BOM) else (0, head)
    position = start - 1
    while block := source.read(chunk_bytes):
        after = block.find(b"\n") + 1
        if after:
            return position + after, block[after:]
        position += len(block)
    return position, b""


def _before(data: bytes, position: int, end: int) -> bytes:
    """The lines of `data`, which starts at `position`, that begin before `end`."""
    if position >= end:
        return b""
    newline = data.find(b"\n", max(end - position - 1, 0))
    return data if newline < 0 else data[: newline + 1]


def count_lines(path: str) -> int:
    """How many lines a (decompressed) file has; the last one needs no newline."""
    with open_input(path) as file:
        return sum(len(chunk.bounds()) - 1 for chunk in chunks(path, file, 0, 1 << 62))


def newlines_before(path: str, offset: int) -> int:
    """How many newlines the first `offset` bytes of a (decompressed) file hold."""
    count = 0
    with open_input(path) as file:
        source = ByteSource(path, file)
        while offset > 0 and (block := source.read(min(offset, CHUNK_BYTES))):
            count += block.count(b"\n")
            offset -= len(block)
    return count
