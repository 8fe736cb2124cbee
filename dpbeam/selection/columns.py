"""The columns of released items, the same in files and in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpbeam.families.base import OutputColumn
from dpbeam.kernels import canonical

#: Types of columns beside the items, in Arrow.
ARROW_TYPES = {int: pa.int64(), float: pa.float64(), bool: pa.bool_()}


def arrow_fields(added: Iterable[OutputColumn]) -> list[pa.Field]:
    """The columns beside the items, as fields of rows."""
    return [pa.field(one.name, ARROW_TYPES[one.type], nullable=one.nullable) for one in added]


def released_columns(
    items: pa.Array, numbers: Mapping[str, np.ndarray], kinds: Sequence[str], added: Iterable[OutputColumn]
) -> list[pa.Array]:
    """Items in the order of their bytes, a column for each kind, and the numbers beside them.

    Args:
      items: (n,) large_binary canonical bytes, distinct.
      numbers: (n,) by name, NaN for items without one, which become nulls.
      added: the columns of the numbers.

    Raises:
      ValueError: an item occurs twice.
    """
    order = pc.array_sort_indices(items)
    items = items.take(order)
    if len(items) > 1 and pc.any(pc.equal(items.slice(1), items.slice(0, len(items) - 1))).as_py():
        raise ValueError("an item occurs twice among the released items")
    columns = canonical.decode(items, kinds)
    for column in added:
        values = np.asarray(numbers[column.name], np.float64)[order.to_numpy()]
        array = pa.array(values, mask=np.isnan(values))
        columns.append(array.cast(ARROW_TYPES[column.type]))
    return columns
