"""The columns of released items, the same in files and in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpbeam.counts.selection import NUMBER_TYPES
from dpbeam.kernels import canonical
from dpbeam.selection.known import NEW

#: Types of the columns of numbers beside the items, where they are not float64.
COLUMN_TYPES = {**NUMBER_TYPES, NEW: pa.bool_()}


def released_columns(
    items: pa.Array, numbers: Mapping[str, np.ndarray], kinds: Sequence[str]
) -> list[pa.Array]:
    """Items in the order of their bytes, a column for each kind, and the numbers beside them.

    Args:
      items: (n,) large_binary canonical bytes, distinct.
      numbers: (n,) by name, NaN for items without one, which become nulls.

    Raises:
      ValueError: an item occurs twice.
    """
    order = pc.array_sort_indices(items)
    items = items.take(order)
    if len(items) > 1 and pc.any(pc.equal(items.slice(1), items.slice(0, len(items) - 1))).as_py():
        raise ValueError("an item occurs twice among the released items")
    columns = canonical.decode(items, kinds)
    for name, column in numbers.items():
        values = np.asarray(column, np.float64)[order.to_numpy()]
        array = pa.array(values, mask=np.isnan(values))
        columns.append(array.cast(COLUMN_TYPES.get(name, pa.float64())))
    return columns
