"""Which rows make pairs: one rule for nulls, invalid text and empty items, for files and for columns in memory alike.

Rows that make none are dropped and counted, unless whoever reads them raises. Counts are exact functions of private
data: they go neither to logs nor to metrics.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dpbeam.errors import DataError, InputError
from dpbeam.kernels import canonical
from dpbeam.kernels.canonical import STRING, Kinds

#: Faults of a row or an item, by the names under which they are counted.
BAD_ROWS, NULL_ROWS, EMPTY_ITEMS = "bad_rows", "null_rows", "empty_items"


def refusing(on_null: str) -> Callable[[str, int, str], None]:
    """The `refuse` of `PairRules` for what a caller in Python hands over.

    Args:
      on_null: "error": a null or an empty item is one too; "drop": its row is dropped.
    """

    def refuse(fault: str, row: int, name: str) -> None:
        if fault == BAD_ROWS:
            raise not_utf8(f"column '{name}'")
        if on_null == "error":
            what = "a null" if fault == NULL_ROWS else "an empty item"
            raise DataError(f"column '{name}' holds {what}; pass on_null='drop' to drop such rows")

    return refuse


def not_utf8(where: str) -> InputError:
    """What to raise for a string that is no UTF-8."""
    return DataError(f"{where} holds a string that is not valid UTF-8; convert it, or make it bytes")


@dataclass
class Pairs:
    """Items and the row that each belongs to; users, if there are any, by row.

    Attributes:
      row: (m,) int64 ascending row of each item; None: item i belongs to row i.
      items: (m,) canonical bytes, large_binary or dictionary<int32, large_binary>, no nulls.
      users: (n,) canonical bytes by row, as for items (nulls only in rows without items), or None.
      num_rows: n.
    """

    row: np.ndarray | None
    items: pa.Array
    users: pa.Array | None
    num_rows: int

    def keep(self, mask: np.ndarray) -> None:
        """Drop the items where `mask` is false."""
        self.row = np.flatnonzero(mask) if self.row is None else self.row[mask]
        self.items = self.items.filter(pa.array(mask))

    def row_of(self, item: int) -> int:
        """The row of an item, by its position."""
        return item if self.row is None else int(self.row[item])

    def drop_rows(self, rows: np.ndarray) -> None:
        """Drop all items of the given rows."""
        bad = np.zeros(self.num_rows, bool)
        bad[rows] = True
        self.keep(~(bad if self.row is None else bad[self.row]))

    def users_of_items(self) -> pa.Array:
        """(m,) the user of each item. Only where there are users."""
        if self.users is None or self.row is None:
            return self.users
        return self.users.take(pa.array(self.row))


@dataclass(frozen=True)
class PairRules:
    """The rules for columns of these names and kinds.

    Attributes:
      user: name of the column of users, if there is one; items: of the columns of items.
      refuse: called with (fault, row, column) of the first row with a fault: it raises, or all such rows are dropped.
      counts: how many were dropped, by fault.
    """

    user: str | None
    items: Sequence[str]
    kinds: Kinds
    refuse: Callable[[str, int, str], None]
    counts: MutableMapping[str, int]

    def pairs(
        self,
        users: pa.Array | None,
        items: Sequence[pa.Array],
        *,
        row: np.ndarray | None = None,
        lost: np.ndarray | None = None,
        num_rows: int,
        utf8: bool = False,
    ) -> Pairs:
        """The pairs of some rows, without nulls and strings that are no UTF-8.

        Args:
          users, items: canonical bytes of the columns; row: see `Pairs`.
          lost: (n,) bool: rows whose list of items is null; None: there are no lists.
          utf8: strings are known to be valid.
        """
        item = items[0] if len(items) == 1 else canonical.encode_parts(items)
        pairs = Pairs(row, item, users, num_rows)
        self._drop_nulls(pairs, items, lost)
        if not utf8:
            self._drop_invalid(pairs, items)
        return pairs

    def drop_empty(self, pairs: Pairs) -> None:
        """Drop empty strings, which are no items, as nulls are none; for a composite, all parts must be empty."""
        empty = canonical.empty_items(pairs.items, self.kinds.item)
        if empty.any():
            self._drop(EMPTY_ITEMS, int(empty.sum()), pairs.row_of(int(empty.argmax())), self.items[0])
            pairs.keep(~empty)

    def _drop(self, fault: str, count: int, row: int, column: str) -> None:
        """Count what is dropped for a fault, which is in this row and column first; or it is refused."""
        self.refuse(fault, row, column)
        self.counts[fault] = self.counts.get(fault, 0) + count

    def _drop_nulls(self, pairs: Pairs, parts: Sequence[pa.Array], lost: np.ndarray | None) -> None:
        """Rows without a user or list, and items that are null."""
        if lost is None:
            lost = np.zeros(pairs.num_rows, bool)
        if pairs.users is not None and pairs.users.null_count:
            bad = _mask(pairs.users.is_null())
            self.refuse(NULL_ROWS, int(bad.argmax()), self.user or "")
            lost = lost | bad
        if lost.any():
            self._drop(NULL_ROWS, int(lost.sum()), int(lost.argmax()), self.items[0])
            pairs.drop_rows(np.flatnonzero(lost))
        if pairs.items.null_count:
            bad = _mask(pairs.items.is_null())
            names = [name for name, part in zip(self.items, parts) if part.null_count] or self.items
            self._drop(NULL_ROWS, int(bad.sum()), pairs.row_of(int(bad.argmax())), names[0])
            pairs.keep(~bad)

    def _drop_invalid(self, pairs: Pairs, parts: Sequence[pa.Array]) -> None:
        """Rows with a string that is not valid UTF-8."""
        columns: list[tuple[str, pa.Array, str | None, np.ndarray | None]] = []
        if pairs.users is not None:
            columns.append((self.user or "", pairs.users, self.kinds.user, None))
        if len(parts) == 1:  # of these what nulls have left
            columns.append((self.items[0], pairs.items, self.kinds.item[0], pairs.row))
        else:
            columns += [(*named, None) for named in zip(self.items, parts, self.kinds.item)]
        bad, first = np.empty(0, np.int64), ""
        for name, values, kind, row in columns:
            if kind == STRING and len(invalid := canonical.invalid_utf8(values)):
                first = first or name
                bad = np.union1d(bad, invalid if row is None else row[invalid])
        if len(bad):
            self._drop(BAD_ROWS, len(bad), int(bad[0]), first)
            pairs.drop_rows(bad)


def _mask(array: pa.Array) -> np.ndarray:
    return array.to_numpy(zero_copy_only=False)
