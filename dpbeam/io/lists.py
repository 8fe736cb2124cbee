"""Reading lists of items besides the input through the formats of the input (`dpbeam.io.formats`).

A list has one form whatever the flags of the input say: columns by name, quoted values of CSV may span lines, every
fault is an error. So what a format advises about flags of the input is left out of its messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from dpbeam.errors import DataError, InputError
from dpbeam.io.files import match_files
from dpbeam.io.formats import find, format_of, formats
from dpbeam.io.formats.base import Format, Piece
from dpbeam.io.rows import Counts, Rows
from dpbeam.io.spec import InputSpec
from dpbeam.kernels import canonical
from dpbeam.kernels.canonical import STRING, Kinds

_TEXT = "text"  # what a list is whose name tells no format with columns


@dataclass(frozen=True)
class ListSpec(InputSpec):
    """A file of a list; made by `ListSpec.of`.

    Attributes:
      flag: names the option in errors, for example `--public_items`.
    """

    flag: str = ""

    @classmethod
    def of(cls, path: str, form: Format, flag: str, names: Sequence[str], types: Sequence[str]) -> ListSpec:
        """Columns `names` of a file, or its lines; with the types of columns that declare none."""
        return cls(
            patterns=(path,),
            format=form.name,
            item_columns=tuple(names) if form.has_columns else (),
            item_types=tuple(types) if form.has_columns else None,
            csv_multiline="csv_multiline" in form.options,
            flag=flag,
        )

    def flag_of(self, column: str) -> str:
        return self.flag

    @property
    def fix_row(self) -> str:
        return "fix the line"

    @property
    def piece(self) -> Piece:
        """The whole file."""
        return Piece(self.patterns[0], 0, 1 << 62)


def list_format(path: str) -> Format:
    """The format of a file's name, if it has columns; else text."""
    form = find(format_of(path) or _TEXT)
    return form if form.has_columns else find(_TEXT)


@contextmanager
def faults_of(flag: str) -> Iterator[None]:
    """Lets every InputError begin with the flag, and name none of the input's."""
    try:
        yield
    except InputError as error:
        problem = error.problem.removeprefix(f"{flag}: ").removeprefix("--input_format: ")
        raise type(error)(f"{flag}: {problem}") from None


def list_kinds(spec: ListSpec) -> Kinds:
    """Kinds of the columns: as the file declares them, else as the spec does.

    Raises:
      InputError: the file cannot be read, is of another format, or lacks a column.
    """
    form, (path,) = spec.file_format, spec.patterns
    form.check_installed()
    form.check_file(path, sum(file.size for file in match_files([path], spec.flag)))
    form.check_head(path, formats())
    declared = form.look(spec.piece, spec).items or (None,) * len(spec.declared_types)
    return Kinds.of_types(None, [held or other for held, other in zip(declared, spec.declared_types)])


def list_rows(spec: ListSpec, kinds: Kinds) -> Iterator[Rows]:
    """The rows of the file. Raises InputError."""
    return spec.file_format.read_pieces([spec.piece], spec, kinds, Counts())


def whole_column(spec: ListSpec, rows: Rows, place: int) -> pa.Array:
    """Canonical bytes (n,) large_binary of a column. Raises InputError for a null, and for what is no UTF-8."""
    name = spec.item_columns[place] if spec.item_columns else ""
    values, kind = canonical.encode(rows.items[place], f"{spec.patterns[0]}: column '{name}'")
    if values.null_count:
        row = pc.index(values.is_null(), True).as_py()
        raise DataError(f"{rows.where(row)}: null in column '{name}'")
    values = canonical.plain(values)
    if kind == STRING and not rows.utf8 and len(bad := canonical.invalid_utf8(values)):
        raise DataError(f"{rows.where(int(bad[0]))}: not valid UTF-8")
    return values
