"""Rows of user items in compressed form, and sums over them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy import sparse

from dpbeam.kernels.columns import Columns

# Pairs at a time, where many arrays are computed of them: as many as the cache of a core holds of all these arrays.
PAIRS_AT_ONCE = 1 << 18
# Pairs in a row, on average, from which on rows are summed, or values repeated, one by one. Below, running sums over
# all pairs take less: the end of each row is a branch that the processor cannot foresee.
LONG_TO_SUM = 24
LONG_TO_REPEAT = 12


@dataclass(frozen=True)
class Csr:
    """Item indices of users: row u is links[offsets[u]:offsets[u + 1]], ascending and distinct.

    Attributes:
      offsets: (rows + 1,) int64.
      links: (pairs,) integer item indices.
    """

    offsets: np.ndarray
    links: np.ndarray

    @cached_property
    def degrees(self) -> np.ndarray:
        """(rows,) int64."""
        return np.diff(self.offsets)

    @cached_property
    def row(self) -> np.ndarray:
        """(pairs,) int64: the row of each pair."""
        count = len(self.links)
        begun = np.bincount(self.offsets[1:-1], minlength=count + 1)[:count]
        return np.cumsum(begun, out=begun)

    def per_pair(self, row_values: np.ndarray) -> np.ndarray:
        """Repeat one value per row along its pairs, (pairs,)."""
        long = _average_at_least(LONG_TO_REPEAT, self.offsets)
        return np.repeat(row_values, self.degrees) if long else row_values.take(self.row)

    def row_sums(self, pair_values: np.ndarray) -> np.ndarray:
        """Sum of a value per pair over each row, (rows,) of its type; empty rows give 0.

        Floating-point sums run along the row in its own order, so they depend on the row alone.
        """
        if pair_values.dtype == np.int64:
            return integer_row_sums(pair_values, self.offsets)
        return _sums_one_by_one(pair_values, self.offsets)

    def item_sums(self, pair_units: np.ndarray, num_items: int) -> np.ndarray:
        """Exact integer sum per item of a value per pair, (num_items,) int64."""
        return sums_at(self.links, pair_units, num_items)

    def restrict(self, keep: np.ndarray, places: np.ndarray | None = None) -> Csr:
        """The same rows with the pairs where `keep` (pairs,) is true; rows may become empty.

        Args:
          places: of these pairs, where they are known.
        """
        places = np.flatnonzero(keep) if places is None else places
        if len(places) == len(keep):
            return self
        return Csr(running_sums(keep).take(self.offsets), self.links.take(places))

    def filled(self) -> Csr:
        """The rows that are not empty; the pairs are the same."""
        full = self.degrees > 0
        if full.all():
            return self
        return Csr(np.append(np.compress(full, self.offsets[:-1]), self.offsets[-1]), self.links)

    def select_rows(self, rows: np.ndarray) -> tuple[Csr, np.ndarray]:
        """Rows where the mask `rows` is true, and the mask of their pairs."""
        pairs = self.per_pair(rows)
        return Csr(running_sums(self.degrees[rows]), np.compress(pairs, self.links)), pairs

    def rows_of(self, pairs: np.ndarray) -> np.ndarray:
        """The rows that have one of these pairs, ascending and distinct, (rows,) int64.

        Args:
          pairs: their places, ascending.
        """
        rows = self.row.take(pairs)
        return rows[np.diff(rows, prepend=-1) > 0]

    def places(self, rows: np.ndarray) -> Csr:
        """These rows, none of them empty, by their numbers; for links the places of their pairs."""
        lengths = self.degrees.take(rows)
        return Csr(running_sums(lengths), segment_rows(self.offsets.take(rows), lengths))

    def parts(self) -> Iterator[tuple[slice, slice, Csr]]:
        """Consecutive rows that have about PAIRS_AT_ONCE pairs together: which rows, which pairs, and their matrix."""
        cuts = np.searchsorted(self.offsets, np.arange(PAIRS_AT_ONCE, len(self.links), PAIRS_AT_ONCE))
        last_row = len(self.offsets) - 1
        inner = np.unique(cuts[(cuts > 0) & (cuts < last_row)])
        for first, last in itertools.pairwise([0, *inner.tolist(), last_row]):
            start, end = int(self.offsets[first]), int(self.offsets[last])
            offsets = self.offsets[first : last + 1] - start
            yield slice(first, last), slice(start, end), Csr(offsets, self.links[start:end])

    def to_state(self, prefix: str) -> Columns:
        """Columns whose names begin with the prefix."""
        return {f"{prefix}.offsets": self.offsets, f"{prefix}.links": self.links}

    @classmethod
    def from_state(cls, state: Columns, prefix: str) -> Csr:
        """Inverse of `to_state`."""
        return cls(state[f"{prefix}.offsets"], state[f"{prefix}.links"])


def uniform_weights(rows: Csr, table: np.ndarray) -> np.ndarray:
    """What a user adds to its items when all count alike: 1/sqrt(d) for each pair, (pairs,) int64 units.

    Args:
      table: of `uniform_l2_units`.
    """
    return rows.per_pair(table[rows.degrees])


def joined(pieces: Iterable[tuple[np.ndarray, ...]]) -> tuple[np.ndarray, ...]:
    """Arrays that come in pieces: of `pieces` the first arrays one after the other, the second ones, and so on.

    What comes in one piece is not copied.
    """
    first, *others = pieces
    return tuple(map(np.concatenate, zip(first, *others, strict=True))) if others else first


def sums_at(places: np.ndarray, values: np.ndarray, count: int) -> np.ndarray:
    """Exact sums of the values that share a place, (count,) int64.

    A product of a sparse matrix: two thirds of the time of `np.add.at`, which other threads also wait for.

    Args:
      places: (n,) integers from 0 to count - 1; values: (n,) integers.

    Raises:
      IndexError: there is no such place; the product would write beside the sums.
    """
    if len(places) and not 0 <= places.min() <= places.max() < count:
        raise IndexError(f"places lie from 0 to {count - 1}")
    values = values.astype(np.int64, casting="safe", copy=False)
    column = sparse.csc_array((values, places, [0, len(values)]), shape=(count, 1))
    return column @ np.ones(1, np.int64)


def integer_row_sums(values: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Exact sums of the rows values[offsets[r]:offsets[r + 1]], (rows,) of the type of `values`, an integer of 64 bits.

    Where rows are short, differences of running sums: both wrap around alike, so a row's sum is exact where it fits the
    type.
    """
    if _average_at_least(LONG_TO_SUM, offsets):
        return _sums_one_by_one(values, offsets)
    return np.diff(running_sums(values, values.dtype).take(offsets))


def _average_at_least(pairs: int, offsets: np.ndarray) -> bool:
    """Whether rows have so many pairs on average."""
    return bool(offsets[-1] - offsets[0] >= pairs * (len(offsets) - 1))


def _sums_one_by_one(values: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Sums of the rows, (rows,) of the type of the values; empty rows give 0."""
    starts = offsets[:-1]
    full = np.flatnonzero(np.diff(offsets))
    if len(full) == len(starts):
        return np.add.reduceat(values, starts, dtype=values.dtype)
    result = np.zeros(len(starts), values.dtype)
    if len(full):
        result[full] = np.add.reduceat(values, starts.take(full), dtype=values.dtype)
    return result


def segment_rows(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Concatenated ranges starts[i] .. starts[i] + lengths[i] - 1, (n,) int64; lengths of at least one."""
    if not len(lengths):
        return np.zeros(0, np.int64)
    ends = np.cumsum(lengths)
    # Running sums of steps: of one inside a range, and from the last row of one to the first of the next.
    rows = np.ones(int(ends[-1]), np.int64)
    rows[0] = starts[0]
    rows[ends[:-1]] = starts[1:] - starts[:-1] - lengths[:-1] + 1
    return np.cumsum(rows, out=rows)


def running_sums(values: npt.ArrayLike, dtype: npt.DTypeLike = np.int64) -> np.ndarray:
    """0 and the sums of the leading values, (n + 1,): the offsets of rows of these lengths."""
    values = np.asarray(values)
    sums = np.zeros(len(values) + 1, dtype)
    np.cumsum(values, out=sums[1:])
    return sums
