"""What a format of the input says of itself.

A `Format` is one class in one file of this folder, and one line of the registry. What it does not say is refused: a
file is read whole, by one worker, unless the format says that it may be split; flags that are for some formats alone
are errors; a file may not be compressed as a whole, nor come through a pipe.
"""

from __future__ import annotations

import importlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO

from dpbeam.errors import DataError, InputError, SetupError, advice
from dpbeam.io.compressions import COMPRESSIONS, compression_of
from dpbeam.io.streams import ByteSource, open_input

if TYPE_CHECKING:
    from dpbeam.io.rows import Counts, Rows
    from dpbeam.io.spec import InputSpec
    from dpbeam.kernels.canonical import Kinds

_HEAD_BYTES = 16


@dataclass(frozen=True, order=True)
class InputFile:
    """A file, its size in bytes, and columns that are not in it, as of a `Piece`."""

    path: str
    size: int
    constants: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True)
class Piece:
    """The part of a file that begins in the bytes [start, end).

    Attributes:
      constants: columns that are not in the file, as text: one value each for all of its rows.
    """

    path: str
    start: int
    end: int
    constants: tuple[tuple[str, str | None], ...] = ()


@dataclass
class Look:
    """What a glance at a file tells.

    Attributes:
      user: type of the users; None if the file does not tell.
      items: type of each item column that the file declares, None where it leaves it open; empty: it declares none.
      values: kinds of the first values of each item column, where the file declares none.
      rows: their number, where the file says it.
      item_bytes, items_seen: bytes of the items before compression, and their number; 0 where nobody knows.
    """

    user: str | None = None
    items: Sequence[str | None] = ()
    values: Mapping[str, set[str]] = field(default_factory=dict)
    rows: int | None = None
    item_bytes: int = 0
    items_seen: int = 0


class Format(ABC):
    """One format of the input.

    Attributes:
      name: as `--input_format` has it; `title`: as people write it, with its article.
      suffixes: of file names, without the dot; those of compression come behind.
      magic: how every file begins, decompressed; empty where files begin with data.
      lacks: what a file without a single byte lacks; None: such a file is input without rows.
      bytes_per_pair: of a (user, item) pair in a file, roughly, compressed or not.
      compressible: whether files may be compressed as a whole; else `why_not_compressed` says what to do.
      pipes: whether files may come through pipes; else `why_no_pipe` says why not.
      has_columns: whether rows have named columns; else a row is a text, and a tokeniser makes its items.
      has_lists: whether a column can hold lists.
      declares_types: whether a file states the types of its columns before its data.
      is_table: whether `NAME:PLACE` names the input, instead of files. In the folder of such a table lies what `mark`
        matches, and nowhere else; `spelling` is how the input names it.
      options: fields of `InputSpec` that are for the formats that name them alone.
      ledger_fields: fields of `InputSpec` that the ledger states besides those of all formats.
      instead: for formats without columns: what to use for --input_layout, and in place of --user_column.
      modules, extra: what reading needs besides the installation, and the extra of dpbeam that brings it.
    """

    name: str
    title: str
    suffixes: tuple[str, ...] = ()
    magic = b""
    lacks: str | None = None
    bytes_per_pair = 20
    compressible = False
    why_not_compressed = "a file of this format is not read compressed; decompress it"
    pipes = False
    why_no_pipe = "this format is not read from a pipe"
    has_columns = True
    has_lists = False
    declares_types = False
    is_table = False
    mark = ""
    spelling = ""
    options: tuple[str, ...] = ()
    ledger_fields: tuple[str, ...] = ()
    instead = ("", "")
    modules: tuple[str, ...] = ()
    extra = ""

    @abstractmethod
    def look(self, piece: Piece, spec: InputSpec) -> Look:
        """What the launcher can tell of a file before the job starts; cheap, whatever its size.

        Raises:
          InputError: it is not of this format, or a column is missing or has a type that is not read.
        """

    @abstractmethod
    def read(
        self, piece: Piece, file: BinaryIO, spec: InputSpec, kinds: Kinds, counts: Counts
    ) -> Iterator[Rows]:
        """The rows that begin in a piece of an opened file; of the whole file where it cannot be split.

        Where a file says how many rows it has, the reader passes that on to `counts.state`: a run that reads fewer ends
        with an error.

        Raises:
          InputError: naming file and row. Rows that are dropped, as the spec says, are counted.
        """

    def splits(self, spec: InputSpec) -> bool:
        """Whether `read` reads any partition of a file, uncompressed, into ranges of bytes, each row once."""
        return False

    def count_rows(self, path: str, spec: InputSpec) -> int:
        """How many rows a file has, where columns are read that need it; blank ones may be counted."""
        rows = self.look(Piece(path, 0, 1 << 62), spec).rows
        if rows is None:
            raise NotImplementedError(f"{self.name} does not count rows")
        return rows

    def complete_users(self, spec: InputSpec) -> bool:
        """Whether each row is, by declaration, one whole user."""
        return spec.layout == "grouped" and spec.user_column is None

    def unit(self, spec: InputSpec) -> str | None:
        """One user in words, for the ledger; None where it is one value of the column of users."""
        return "one user: one row of the input" if self.complete_users(spec) else None

    def files_to_see(self, pattern: str) -> tuple[str, ...]:
        """The files by which to tell whether launcher and workers see an input; none where a catalog knows them."""
        return (pattern,)

    def find_files(self, spec: InputSpec, flag: str) -> tuple[InputSpec, list[InputFile]]:
        """The spec with all that a table leaves open, and the files of a table. Raises InputError."""
        raise NotImplementedError(f"{self.name} is no table")

    def read_pieces(
        self, pieces: Sequence[Piece], spec: InputSpec, kinds: Kinds, counts: Counts
    ) -> Iterator[Rows]:
        """The rows of several pieces, one after the other. Raises RowsError for a whole file that gave not all."""
        for piece in pieces:
            read, stated = counts.read, counts.stated
            with open_input(piece.path) as file:
                yield from counts.add_read(self.read(piece, file, spec, kinds, counts))
                if counts.stated != stated and file.seek(0, os.SEEK_END) <= piece.end:
                    counts.check_read(piece.path, read, stated or 0)

    def check_installed(self) -> None:
        """Refuse to go on without what reading needs. Raises InputError."""
        try:
            for name in self.modules:
                importlib.import_module(name)
        except ImportError as error:
            raise SetupError(
                f"--input_format: {self.name} needs the package {error.name}: pip install 'dpbeam[{self.extra}]'"
            ) from None

    def check_file(self, path: str, size: int) -> None:
        """Refuse a file by its name and size. Raises InputError."""
        if compression_of(path) and not self.compressible:
            raise DataError(f"{path}: {self.why_not_compressed}")
        if not size and self.lacks:
            raise self.no_header(path)

    def no_header(self, path: str) -> InputError:
        """The error for a file without a byte, or without a line, where the format needs them."""
        return DataError(
            f"{path}: an empty file, without even a {self.lacks}; remove it{advice(', or leave it out of --input')}"
        )

    def check_head(self, path: str, formats: Iterable[Format]) -> None:
        """Refuse a file that begins as those of another of all formats. Raises InputError."""
        with open_input(path) as file:
            head = ByteSource(path, file).read(_HEAD_BYTES)
        if self.magic and head.startswith(self.magic):
            return
        others = [format for format in formats if format.magic and head.startswith(format.magic)]
        if others:
            names = " or ".join(format.name for format in others)
            raise DataError(
                f"{path}: is {others[0].title} file, not {self.name}{advice(f'; pass --input_format={names}')}"
            )
        for compression in COMPRESSIONS:
            if compression.begins(head):
                raise DataError(
                    f"{path}: is a {compression.name} file, not {self.name}; name it .{compression.suffix}"
                )
        if head and self.magic:
            raise DataError(f"{path}: is not {self.title} file: it does not begin like one")
