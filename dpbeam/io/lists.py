"""Reading lists besides the input (items, histograms) through the formats of the input (`dpbeam.io.formats`).

A list has one form whatever the flags of the input say: columns by name, quoted values of CSV may span lines, every
fault is an error. So what a format advises about flags of the input is left out of its messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpbeam.counts.histogram import COUNT_LIMIT
from dpbeam.errors import InputError
from dpbeam.io.files import match_files
from dpbeam.io.formats import find
from dpbeam.io.formats.base import Format, Piece
from dpbeam.io.paths import format_of
from dpbeam.io.rows import Counts, Rows
from dpbeam.io.spec import InputSpec
from dpbeam.kernels import canonical
from dpbeam.kernels.canonical import INT, STRING, Kinds

HISTOGRAM = "--histogram"


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


def list_format(path: str, default: str) -> Format:
    """The format of a file's name, if it has columns; else the default."""
    form = find(format_of(path) or default)
    return form if form.has_columns else find(default)


@contextmanager
def faults_of(flag: str) -> Iterator[None]:
    """Lets every InputError begin with the flag, and name none of the input's."""
    try:
        yield
    except InputError as error:
        problem = error.problem.removeprefix(f"{flag}: ").removeprefix("--input_format: ")
        raise InputError(f"{flag}: {problem}") from None


def list_kinds(spec: ListSpec) -> Kinds:
    """Kinds of the columns: as the file declares them, else as the spec does.

    Raises:
      InputError: the file cannot be read, is of another format, or lacks a column.
    """
    form, (path,) = spec.file_format, spec.patterns
    form.check_installed()
    form.check_file(path, sum(file.size for file in match_files([path], spec.flag)))
    form.check_head(path)
    declared = form.look(spec.piece, spec).items or (None,) * len(spec.declared_types)
    return Kinds(None, tuple(kind or other for kind, other in zip(declared, spec.declared_types)))


def list_rows(spec: ListSpec, kinds: Kinds) -> Iterator[Rows]:
    """The rows of the file. Raises InputError."""
    return spec.file_format.read_pieces([spec.piece], spec, kinds, Counts())


def whole_column(spec: ListSpec, rows: Rows, place: int) -> pa.Array:
    """Canonical bytes (n,) large_binary of a column. Raises InputError for a null, and for what is no UTF-8."""
    name = spec.item_columns[place] if spec.item_columns else ""
    values, kind = canonical.encode(rows.items[place], f"{spec.patterns[0]}: column '{name}'")
    if values.null_count:
        row = pc.index(values.is_null(), True).as_py()
        raise InputError(f"{rows.where(row)}: null in column '{name}'")
    values = canonical.plain(values)
    if kind == STRING and not rows.utf8 and len(bad := canonical.invalid_utf8(values)):
        raise InputError(f"{rows.where(int(bad[0]))}: not valid UTF-8")
    return values


def read_histogram(pattern: str) -> tuple[pa.Array, np.ndarray, Kinds]:
    """Items and the number of users that hold each: (n,) large_binary canonical bytes, (n,) int64, the items' kind.

    Args:
      pattern: files with columns `item` and `count`, in any format of the input with columns; CSV where the extension
        tells none.

    Raises:
      InputError: a column is missing, null or of the wrong type, a count is negative or above 2^52, or an
        item occurs twice.
    """
    items, counts, kinds = [pa.array([], pa.large_binary())], [np.empty(0, np.int64)], set()
    for file in match_files([pattern], HISTOGRAM):
        form = list_format(file.path, "csv")
        spec = ListSpec.of(file.path, form, HISTOGRAM, ("item", "count"), (STRING, INT))
        with faults_of(HISTOGRAM):
            columns = list_kinds(spec)
            if columns.item[1] != INT:
                raise InputError(f"{file.path}: column 'count' holds {columns.item[1]} values, not integers")
            kinds.add(columns.item[0])
            for rows in list_rows(spec, columns):
                items.append(whole_column(spec, rows, 0))
                counts.append(_user_counts(spec, rows))
    if len(kinds) > 1:
        raise InputError(f"{HISTOGRAM}: item ids mix types across the files")
    strings, totals = pa.concat_arrays(items), np.concatenate(counts)
    if pc.count_distinct(strings).as_py() < len(strings):
        raise InputError(f"{HISTOGRAM}: an item occurs twice; add its counts up first")
    return strings, totals, Kinds(None, (kinds.pop(),))


def _user_counts(spec: ListSpec, rows: Rows) -> np.ndarray:
    """(n,) int64."""
    column, (path,) = rows.items[1], spec.patterns
    if len(column) and (pc.min(column).as_py() < 0 or pc.max(column).as_py() > COUNT_LIMIT):
        raise InputError(f"{path}: column 'count' must hold numbers from 0 to 2^52")
    whole_column(spec, rows, 1)
    return column.cast(pa.int64()).to_numpy()
