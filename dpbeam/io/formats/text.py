"""Reading plain text: a document is a line or a file, and a user.

Documents are gathered into arrays of some megabytes before they are tokenised, however small the files are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import pyarrow as pa

from dpbeam.io.formats.base import Format, Look, Piece
from dpbeam.io.lines import CHUNK_BYTES, Chunk, chunks
from dpbeam.io.rows import Counts, Documents, Rows
from dpbeam.io.streams import ByteSource, open_input
from dpbeam.kernels.canonical import Kinds, slices_of

if TYPE_CHECKING:
    from dpbeam.io.spec import InputSpec

_BOM = b"\xef\xbb\xbf"


class Text(Format):
    """Plain text, each line or file of a user."""

    name, title, suffixes = "text", "a text", ("txt",)
    bytes_per_pair = 6
    compressible = True
    pipes = True
    has_columns = False
    options = ("text_layout",)
    instead = ("--text_layout", "each line or file is a user")

    def complete_users(self, spec: InputSpec) -> bool:
        return True

    def unit(self, spec: InputSpec) -> str:
        return f"one user: one {spec.text_layout} of the input"

    def splits(self, spec: InputSpec) -> bool:
        return spec.text_layout == "line"

    def look(self, piece: Piece, spec: InputSpec) -> Look:
        return Look()

    def read(
        self, piece: Piece, file: BinaryIO, spec: InputSpec, kinds: Kinds, counts: Counts
    ) -> Iterator[Rows]:
        """A row per line that begins in the piece."""
        for chunk in chunks(piece.path, file, piece.start, piece.end):
            yield _lines(chunk)

    def read_pieces(
        self, pieces: Sequence[Piece], spec: InputSpec, kinds: Kinds, counts: Counts
    ) -> Iterator[Rows]:
        if spec.text_layout == "file":
            return _file_rows(piece.path for piece in pieces)
        return super().read_pieces(pieces, spec, kinds, counts)


def _lines(chunk: Chunk) -> Rows:
    bounds = chunk.bounds()
    data = np.frombuffer(chunk.data, np.uint8)
    # The line end is no part of the document: a pattern must not see it.
    ends = bounds[1:].copy()
    for character in (0x0A, 0x0D):
        ends -= (ends > bounds[:-1]) & (data[ends - 1] == character)
    inner = np.column_stack((bounds[:-1], ends)).reshape(-1)
    pieces = slices_of(np.append(inner, bounds[-1]), data, pa.large_string())
    documents = pieces.take(pa.array(np.arange(0, len(pieces), 2)))
    return Rows(None, [documents], lambda row: f"{chunk.path}:{chunk.line_number(int(bounds[row]))}")


def _file_rows(paths: Iterable[str]) -> Iterator[Rows]:
    """A row per file, several to a Rows; a worker needs memory for its largest file."""
    documents = Documents()
    for path in paths:
        with open_input(path) as file:
            document = ByteSource(path, file).read_all().removeprefix(_BOM)
        if documents.size + len(document) > CHUNK_BYTES:
            yield from documents.take()
        documents.add(path, document)
    yield from documents.take()
