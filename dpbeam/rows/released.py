"""What is released, as rows with a schema: the item's own fields, then the numbers beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import PCollection
from apache_beam.typehints import typehints
from apache_beam.typehints.row_type import RowTypeConstraint

from dpbeam.errors import SettingError
from dpbeam.kernels.canonical import BYTES, INT, STRING, decode, plain

_PYTHON_TYPES = {STRING: str, INT: int, BYTES: bytes}
_NUMBERS: dict[pa.DataType, type] = {pa.int64(): int, pa.float64(): float, pa.bool_(): bool}


class ReleasedRow(tuple[Any, ...]):
    """A row: its values in order as a tuple, by attribute as of any row of Beam's, and by name as of a dictionary.

    `beam.io.WriteToParquet(path, schema)` takes dictionaries, asks `name in row` and writes a null where that is false.

    It is made of `fields`, their names, and of `values` in the same order.
    """

    _fields: tuple[str, ...]

    def __new__(cls, fields: tuple[str, ...], values: Sequence[Any]) -> ReleasedRow:
        row = super().__new__(cls, values)
        row._fields = fields
        return row

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._fields:
            raise AttributeError(
                f"a released row has no field '{name}'; its fields are {', '.join(self._fields)}"
            )
        return tuple.__getitem__(self, self._fields.index(name))

    def __getitem__(self, key: Any) -> Any:
        return getattr(self, key) if isinstance(key, str) else tuple.__getitem__(self, key)

    def __contains__(self, name: object) -> bool:
        return name in self._fields

    def __reduce__(self) -> tuple[Any, ...]:
        return ReleasedRow, (self._fields, tuple(self))

    def __repr__(self) -> str:
        return f"ReleasedRow({', '.join(f'{name}={value!r}' for name, value in self._asdict().items())})"

    def _asdict(self) -> dict[str, Any]:
        return dict(zip(self._fields, self))


@dataclass(frozen=True)
class ReleasedFields:
    """Fields of released rows.

    Attributes:
      column: of the items in the batches that a program releases.
      names, kinds: of the parts of an item; no kind: strings.
      numbers: the fields beside it; those that are nullable may hold no number.

    Raises:
      InputError: a part of the item has the name of a number.
    """

    column: str
    names: tuple[str, ...]
    kinds: tuple[str | None, ...]
    numbers: tuple[pa.Field, ...]

    def __post_init__(self) -> None:
        for field in self.numbers:
            if field.name in self.names:
                raise SettingError(f"item: '{field.name}' is a field of what is released; rename yours")

    @property
    def _known(self) -> list[str]:
        return [kind or STRING for kind in self.kinds]

    @property
    def row_type(self) -> RowTypeConstraint:
        """The schema of the rows, for Beam."""
        fields: list[tuple[str, Any]] = [
            (name, _PYTHON_TYPES[kind]) for name, kind in zip(self.names, self._known)
        ]
        for field in self.numbers:
            of = _NUMBERS[field.type]
            # What Beam makes of `float | None`, other languages do not know.
            fields.append((field.name, typehints.Optional[of] if field.nullable else of))
        return RowTypeConstraint.from_fields(fields)

    def decoded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A released batch, of canonical bytes, as columns of what they stand for."""
        columns = decode(plain(batch.column(self.column)), self._known)
        for field in self.numbers:
            values = batch.column(field.name)
            if field.nullable and pa.types.is_floating(values.type):  # NaN stands for none
                numbers = values.to_numpy(zero_copy_only=False)
                values = pa.array(numbers, mask=np.isnan(numbers))
            columns.append(values.cast(field.type))
        fields = [pa.field(name, c.type, nullable=False) for name, c in zip(self.names, columns)]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema([*fields, *self.numbers]))

    def rows(self, batch: pa.RecordBatch) -> Iterator[ReleasedRow]:
        """The rows of a released batch."""
        decoded = self.decoded(batch)
        names = tuple(decoded.schema.names)
        for values in zip(*(column.to_pylist() for column in decoded.columns)):
            yield ReleasedRow(names, values)

    def of(self, released: PCollection, *, as_batches: bool) -> PCollection:
        """Released batches -> rows, or record batches of the same columns."""
        if as_batches:
            return released | "ToColumns" >> beam.Map(self.decoded).with_output_types(pa.RecordBatch)
        return released | "ToRows" >> beam.FlatMap(self.rows).with_output_types(self.row_type)
