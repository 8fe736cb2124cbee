"""Reading one work unit: from byte ranges of files to record batches, in one of two shapes.

- *scattered* (`read_scattered`): RecordBatch[user, item], one pair per row, users anywhere.
- *complete* (`read_complete`): (block id, RecordBatch[user, item]), each block holding whole users, for input
  whose rows, lines or files are users by declaration.

`item` is large_binary or dictionary<int32, large_binary> of canonical bytes, `user` the same or, in a block, the int64
ordinal of the user. The kinds travel in the schema metadata (`canonical.Kinds`). What a unit yields is a
function of the files alone, so a retry yields the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from dpbeam.io import crawl, delimited, jsonl, text
from dpbeam.io.files import open_input
from dpbeam.io.parquet import ParquetInput, check_kinds
from dpbeam.io.rows import BlockMaker, Counts, PairMaker, Rows, scattered_batches
from dpbeam.io.spec import CRAWL_FORMATS, InputSpec
from dpbeam.kernels.canonical import Kinds

TARGET_PAIRS = 1_000_000


@dataclass(frozen=True)
class Piece:
    """The part of a file that begins in the bytes [start, end)."""

    path: str
    start: int
    end: int


@dataclass(frozen=True)
class WorkUnit:
    """What one worker reads at a time: one piece of a large file, or many small files."""

    pieces: tuple[Piece, ...]

    def label(self) -> str:
        """A digest that names the unit; different units have different pieces, hence different labels."""
        text = "\n".join(f"{p.start} {p.end} {p.path}" for p in self.pieces)
        return hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=16).hexdigest()


def read_scattered(unit: WorkUnit, spec: InputSpec, kinds: Kinds, counts: Counts) -> Iterator[pa.RecordBatch]:
    """The (user, item) pairs of a unit, at most about a million per batch. Raises InputError for bad input."""
    if spec.complete_users:
        raise ValueError("this input declares complete users; use read_complete")
    make = PairMaker(spec, kinds, counts)
    for rows in _rows(unit, spec, kinds, counts):
        yield from scattered_batches(make(rows), kinds)


def read_complete(
    unit: WorkUnit, spec: InputSpec, kinds: Kinds, counts: Counts, target_pairs: int = TARGET_PAIRS
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Blocks of whole users of a unit, of about `target_pairs` pairs each. Raises InputError for bad input."""
    if not spec.complete_users:
        raise ValueError("this input does not declare complete users; use read_scattered")
    make = PairMaker(spec, kinds, counts)
    blocks = BlockMaker(unit.label(), kinds, target_pairs)
    for rows in _rows(unit, spec, kinds, counts):
        yield from blocks.add(make(rows))
    yield from blocks.finish()


def _rows(unit: WorkUnit, spec: InputSpec, kinds: Kinds, counts: Counts) -> Iterator[Rows]:
    if spec.format == "text" and spec.text_layout == "file":
        yield from text.file_rows(piece.path for piece in unit.pieces)
        return
    for piece in unit.pieces:
        with open_input(piece.path) as file:
            if spec.format == "parquet":
                source = ParquetInput(piece.path, file, spec)
                check_kinds(piece.path, spec, source.kinds, kinds)
                yield from source.rows(piece.start, piece.end)
            elif spec.format == "jsonl":
                yield from jsonl.read(piece.path, file, piece.start, piece.end, spec, kinds, counts)
            elif spec.format in CRAWL_FORMATS:
                yield from crawl.read(piece.path, file, spec, counts)
            elif spec.format == "text":
                yield from text.line_rows(piece.path, file, piece.start, piece.end)
            else:
                yield from delimited.read(piece.path, file, piece.start, piece.end, spec, counts)
