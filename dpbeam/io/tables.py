"""Tables: one version of a table is a set of files and a schema, and nothing else in its folders is data.

The launcher asks the table for the live files of one version; workers read them as files. What a table can do to its
rows besides (deletion vectors, deletes by merging, columns under other names in the files) is honoured or refused. A
glob over a table's folder would read deleted and replaced rows too, so it is refused wherever files are matched.
"""

from __future__ import annotations

import glob
import posixpath
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pyarrow as pa

from dpbeam.errors import InputError
from dpbeam.io.paths import absolute, is_local


@dataclass(frozen=True)
class Column:
    """A column as the table declares it.

    Attributes:
      name, type: in the table.
      field_id: by which files name it, whatever its name there; None where names do.
      always: whether a file without the column holds other values than nulls, which are not known here.
    """

    name: str
    type: pa.DataType
    field_id: int | None = None
    always: bool = False


@dataclass(frozen=True)
class Table:
    """What the readers of a table's files need to know of it.

    Attributes:
      name: for messages.
      columns: of the version that is read.
    """

    name: str
    columns: tuple[Column, ...]

    def column(self, name: str) -> Column | None:
        return next((column for column in self.columns if column.name == name), None)


def refuse_files_of_tables(paths: Iterable[str], flag: str, any_file: Callable[[str], bool]) -> None:
    """Refuse files that lie in a table's folder: which of them are live, the table alone knows.

    Args:
      any_file: whether a pattern matches a file.

    Raises:
      InputError: naming the table, and how to read it.
    """
    from dpbeam.io.formats import formats

    tables = [format for format in formats() if format.is_table]
    looked_at = set()
    for folder in sorted({posixpath.dirname(absolute(path)) for path in paths}):
        while folder not in looked_at and not folder.endswith(":/"):
            looked_at.add(folder)
            escaped = glob.escape(folder) if is_local(folder) else folder
            for table in tables:
                if any_file(posixpath.join(escaped, table.mark)):
                    raise InputError(
                        f"{flag}: '{folder}' is the folder of a table, whose files hold deleted and replaced rows too; "
                        f"read it as --input {table.spelling.format(folder=folder)}"
                    )
            folder = posixpath.dirname(folder)
