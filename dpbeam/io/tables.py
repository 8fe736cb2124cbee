"""Tables: one version of a table is a set of files and a schema, and nothing else in its folders is data.

The launcher asks the table for the live files of one version; workers read them as files. What a table can do to its
rows besides (deletion vectors, deletes by merging, columns under other names in the files) is honoured or refused.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa


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
        """The column of a name; None where there is none."""
        return next((column for column in self.columns if column.name == name), None)
