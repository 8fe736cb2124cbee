"""Public lists of items as a transform's arguments: Python values, tuples or rows of composites, Arrow columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from apache_beam.pvalue import PCollection
from apache_beam.typehints import native_type_compatibility

from dpbeam.errors import DataError
from dpbeam.kernels import canonical
from dpbeam.kernels.canonical import STRING
from dpbeam.kernels.pair_rules import not_utf8
from dpbeam.rows.elements import PairFields, is_row, kind_of_hint, plain_values


@dataclass(frozen=True)
class ListedItems:
    """A list of items.

    Attributes:
      items: canonical bytes, distinct, none of them empty.
      kinds: of the parts of an item, None where nothing says so: an empty list, a PCollection without a hint.
      source: the list as a PCollection; `items` are empty then.
    """

    items: pa.Array
    kinds: tuple[str | None, ...]
    source: PCollection | None = None

    @classmethod
    def of(cls, argument: str, values: Any, fields: PairFields) -> ListedItems:
        """From what a caller hands over as `argument`; `fields`: of the items.

        Raises:
          InputError: this is no list, its types mix, or it holds a null.
        """
        if isinstance(values, PCollection):
            return cls(
                pa.array([], pa.large_binary()), _hinted(argument, values.element_type, fields), values
            )
        columns = _columns(argument, values, fields)
        parts, kinds = [], []
        for column in columns:
            part, kind = canonical.encode(column, argument)
            if part.null_count:
                raise DataError(f"{argument} holds a null; remove it")
            if kind == STRING and len(canonical.invalid_utf8(part)):
                raise not_utf8(argument)
            parts.append(canonical.plain(part))
            kinds.append(kind)
        items = pc.unique(parts[0] if len(parts) == 1 else canonical.encode_parts(parts))
        empty = canonical.empty_items(items, [kind or STRING for kind in kinds])
        return cls(items.filter(pa.array(~empty)), tuple(kinds))


def _hinted(argument: str, hint: Any, fields: PairFields) -> tuple[str | None, ...]:
    """Kinds of the parts of items by the type of a list's elements. Raises InputError."""
    hint = native_type_compatibility.convert_to_beam_type(hint)
    if len(fields.items) == 1 and hint in (str, int, bytes):
        return (kind_of_hint(hint, argument),)
    labels = fields.item_places.labels
    places = replace(fields.item_places, shape=f"({', '.join(labels)})")
    return tuple(kind_of_hint(places.hinted(hint, place), argument) for place in range(len(labels)))


def _columns(argument: str, values: Any, fields: PairFields) -> list[pa.Array | pa.ChunkedArray]:
    """A column for each part of the items."""
    if isinstance(values, pa.RecordBatch | pa.Table):
        only = values.num_columns == len(fields.items) == 1  # whatever its name
        return [values.column(0)] if only else fields.item_places.columns(values)
    if isinstance(values, pa.Array | pa.ChunkedArray):
        structs = pa.types.is_struct(values.type)
        return [pc.struct_field(values, n) for n in range(values.type.num_fields)] if structs else [values]
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise DataError(f"{argument} is a list of items, got {type(values).__name__}")
    listed = list(values)
    if not listed:
        return [pa.nulls(0)] * len(fields.items)
    if isinstance(listed[0], Mapping) or is_row(listed[0]):
        columns = fields.item_places.read(listed)
    elif isinstance(listed[0], tuple | list):
        if {len(item) for item in listed} != {len(fields.items)}:
            raise DataError(
                f"{argument} holds tuples of another length than item, which names {len(fields.items)}"
            )
        columns = [list(part) for part in zip(*listed)]
    else:
        columns = [listed]
    return [canonical.from_values(plain_values(column), argument) for column in columns]
