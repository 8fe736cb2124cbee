"""Reading ORC: stripes that begin in a range of bytes, only the columns needed.

Arrow does not say where a stripe begins, so stripe k of n is taken to begin at k/n of the file: each lies in exactly
one range, however the file is cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa

from dpbeam.errors import DataError, InputError
from dpbeam.io.formats.base import Format, Look, Piece
from dpbeam.io.rows import Counts, Rows, check_types, schema_types
from dpbeam.io.streams import open_input
from dpbeam.kernels.canonical import Kinds
from dpbeam.rows.nested import column_at

if TYPE_CHECKING:
    from dpbeam.io.spec import InputSpec


class Orc(Format):
    """ORC files."""

    name, title, suffixes = "orc", "an ORC", ("orc",)
    magic = b"ORC"
    lacks = "footer"
    bytes_per_pair = 6
    why_not_compressed = "ORC is compressed inside; decompress the file itself"
    why_no_pipe = "ORC is not read from a pipe, its index is at the end"
    has_lists = True
    declares_types = True

    def splits(self, spec: InputSpec) -> bool:
        return True

    def look(self, piece: Piece, spec: InputSpec) -> Look:
        with open_input(piece.path) as file, _reading(piece.path):
            source = _opened(file)
            return Look(*schema_types(spec, source.schema, piece.path), rows=source.nrows)

    def read(
        self, piece: Piece, file: BinaryIO, spec: InputSpec, kinds: Kinds, counts: Counts
    ) -> Iterator[Rows]:
        path = piece.path
        with _reading(path):
            source = _opened(file)
            names, size = source.schema.names, source.file_length
        check_types(path, spec, schema_types(spec, source.schema, path), kinds)
        counts.state(piece, source.nrows)
        # A field of a struct is read with all of its struct.
        columns = [name if name in names else name.partition(".")[0] for name in spec.columns]
        for stripe in range(source.nstripes):
            if not piece.start <= size * stripe // source.nstripes < piece.end:
                continue
            with _reading(path):
                table = source.read_stripe(stripe, columns)
            user = None if spec.user_column is None else column_at(table, spec.user_column)
            items = [column_at(table, name) for name in spec.item_columns]
            yield Rows(user, items, _where(path, stripe), path=path)


def _opened(file: BinaryIO) -> Any:
    from pyarrow import orc  # not for who reads other formats

    return orc.ORCFile(file)


def _where(path: str, stripe: int) -> Callable[[int], str]:
    return lambda row: f"{path}: stripe {stripe + 1}, row {row + 1}"


@contextmanager
def _reading(path: str) -> Iterator[None]:
    """Makes an InputError of what the library raises over bytes that are no ORC; its own text may quote them."""
    try:
        yield
    except InputError:
        raise
    except (pa.ArrowException, OSError, ValueError):
        raise DataError(f"{path}: damaged ORC file, or cut off") from None
