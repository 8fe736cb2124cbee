"""Reading one work unit: from byte ranges of files to record batches, in one of two shapes.

- *scattered* (`read_scattered`): RecordBatch[user, item], one pair per row, users anywhere.
- *complete* (`read_complete`): (block id, RecordBatch[user, item]), each block holding whole users, for input
  whose rows, lines or files are users by declaration.

`item` is large_binary or dictionary<int32, large_binary> of canonical bytes, `user` the same or, in a block, the int64
ordinal of the user. The kinds travel in the schema metadata (`canonical.Kinds`). What a unit yields is a
function of the files alone, so a retry yields the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from dpbeam.io.formats.base import Piece
from dpbeam.io.paths import absolute
from dpbeam.io.rows import BlockMaker, Counts, PairMaker, scattered_batches
from dpbeam.io.spec import InputSpec
from dpbeam.kernels.canonical import Kinds
from dpbeam.kernels.pair_rules import BAD_ROWS, EMPTY_ITEMS, NULL_ROWS

TARGET_PAIRS = 1_000_000


#: A unit on its way to a worker, for a coder that every runner has: number; path, start, end and constants of pieces.
PlainUnit = tuple[int, tuple[tuple[str, int, int, tuple[tuple[str, str | None], ...]], ...]]


@dataclass(frozen=True)
class WorkUnit:
    """What one worker reads at a time: one piece of a large file, or many small files.

    Attributes:
      number: names the unit; no two units of an input have the same.
    """

    pieces: tuple[Piece, ...]
    number: int = 0

    def plain(self) -> PlainUnit:
        """The same, wherever a worker looks from."""
        return self.number, tuple((absolute(p.path), p.start, p.end, p.constants) for p in self.pieces)

    @classmethod
    def of(cls, plain: PlainUnit) -> WorkUnit:
        """Of the plain values that go through a shuffle."""
        return cls(tuple(Piece(*piece) for piece in plain[1]), plain[0])


def read_scattered(unit: WorkUnit, spec: InputSpec, kinds: Kinds, counts: Counts) -> Iterator[pa.RecordBatch]:
    """The (user, item) pairs of a unit, at most about a million per batch. Raises InputError for bad input."""
    if spec.complete_users:
        raise ValueError("this input declares complete users; use read_complete")
    make = PairMaker(spec, kinds, counts)
    for rows in spec.file_format.read_pieces(unit.pieces, spec, kinds, counts):
        yield from scattered_batches(make(rows), kinds)


def read_complete(
    unit: WorkUnit, spec: InputSpec, kinds: Kinds, counts: Counts, target_pairs: int = TARGET_PAIRS
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Blocks of whole users of a unit, of about `target_pairs` pairs each. Raises InputError for bad input."""
    if not spec.complete_users:
        raise ValueError("this input does not declare complete users; use read_scattered")
    make = PairMaker(spec, kinds, counts)
    blocks = BlockMaker(unit.number, kinds, target_pairs)
    for rows in spec.file_format.read_pieces(unit.pieces, spec, kinds, counts):
        yield from blocks.add(make(rows))
    yield from blocks.finish()


def has_rows(unit: WorkUnit, spec: InputSpec, kinds: Kinds, counts: Counts) -> bool:
    """Whether a unit has a row of a user that is not dropped, with items or without; reads to the first.

    Args:
      counts: gets what is dropped before it.

    Raises:
      InputError: for bad input before it.
    """
    make = PairMaker(spec, kinds, counts)
    # A text without a token is a user without items, whatever a pattern makes of it.
    faults = (NULL_ROWS, BAD_ROWS) if spec.tokenizer else (NULL_ROWS, BAD_ROWS, EMPTY_ITEMS)
    for rows in spec.file_format.read_pieces(unit.pieces, spec, kinds, counts):
        before = [counts[fault] for fault in faults]
        if len(make(rows).items) or (len(rows) and [counts[fault] for fault in faults] == before):
            return True
    return False
