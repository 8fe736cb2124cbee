"""Users that no chosen item hits yet: their sets restricted to a domain, counts of holders, and removal.

Arrays alone. A user is removed once, so all rounds together add up every pair once, whatever their number; finding the
holders of an item is one comparison per pair that is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dpbeam.kernels.columns import Columns, narrow
from dpbeam.kernels.csr import Csr, running_sums, segment_rows

_KEEP = 0.5  # rows are moved together once fewer than this share of them are left


class Cover:
    """Sets of users that are not hit, equal sets merged.

    Args:
      rows: distinct sets, links are positions in the domain; none is empty.
      users: (rows,) integers, how many users hold each set.
    """

    def __init__(self, rows: Csr, users: np.ndarray):
        self._rows, self._users = rows, users
        self._left = np.ones(len(users), bool)

    @classmethod
    def restricted(cls, sets: Csr, position: np.ndarray) -> Cover:
        """The sets of users, with what lies outside of the domain left out; then the empty ones; equal ones merged.

        Args:
          sets: links are items; position: (items,) int64 in the domain, ascending with the items, -1 outside.
        """
        inside = sets.restrict(position[sets.links] >= 0)
        full, _ = inside.select_rows(inside.degrees > 0)
        rows, users = merge_equal(Csr(full.offsets, narrow(position[full.links])))
        return cls(rows, users)

    @classmethod
    def from_columns(cls, columns: Columns) -> Cover:
        """Inverse of `to_columns`."""
        offsets = running_sums(columns["degrees"])
        return cls(Csr(offsets, columns["links"]), columns["users"])

    def to_columns(self) -> Columns:
        """What is left, in few bytes."""
        self._compact()
        return {
            "degrees": narrow(self._rows.degrees),
            "links": narrow(self._rows.links),
            "users": narrow(self._users),
        }

    def counts(self, size: int) -> np.ndarray:
        """How many users that are left hold each item, (size,) int64."""
        counts = np.zeros(size, np.int64)
        self._compact()
        np.add.at(counts, self._rows.links, self._rows.per_pair(self._users).astype(np.int64))
        return counts

    def drop(self, items: np.ndarray) -> None:
        """Remove the users that hold one of these items."""
        if len(items):
            hit = np.zeros(max(int(items.max()), self._largest()) + 1, bool)
            hit[items] = True
            self._left &= self._rows.row_sums(hit[self._rows.links].astype(np.int32)) == 0

    def take(self, item: int, counts: np.ndarray) -> None:
        """Remove the users that hold `item`, also from `counts`, (d,) int64."""
        at = np.flatnonzero(self._rows.links == item)
        holders = np.searchsorted(self._rows.offsets, at, side="right") - 1
        holders = holders[self._left[holders]]
        if not len(holders):
            return
        degrees = self._rows.degrees[holders]
        pairs = segment_rows(self._rows.offsets[holders], degrees)
        users = np.repeat(self._users[holders].astype(np.int64), degrees)
        np.subtract.at(counts, self._rows.links[pairs], users)
        self._left[holders] = False
        if np.count_nonzero(self._left) < _KEEP * len(self._left):
            self._compact()

    def _largest(self) -> int:
        return int(self._rows.links.max()) if len(self._rows.links) else 0

    def _compact(self) -> None:
        if not self._left.all():
            rows, _ = self._rows.select_rows(self._left)
            self._rows, self._users = rows, self._users[self._left]
            self._left = np.ones(len(self._users), bool)


def merge_equal(rows: Csr) -> tuple[Csr, np.ndarray]:
    """Distinct rows, and how often each occurs, (distinct,) int64; rows are ascending and not empty.

    Rows of equal length and hash stand beside each other, and those that really are equal are merged: a hash that
    collides costs room, nothing else.
    """
    degrees = rows.degrees
    if not len(degrees):
        return rows, np.zeros(0, np.int64)
    order = np.lexsort((rows.row_sums(_mixed(rows.links)), degrees))
    degrees = degrees[order]
    links = rows.links[segment_rows(rows.offsets[order], degrees)]
    offsets = running_sums(degrees)
    ordered = Csr(offsets, links)
    # A row is compared with the one before it, pair by pair, where both are of one length.
    before = np.arange(len(links)) - ordered.per_pair(degrees)
    same = links == links[np.maximum(before, 0)]
    equal = ordered.row_sums(same.astype(np.int64)) == degrees
    equal[0] = False
    equal[1:] &= degrees[1:] == degrees[:-1]
    starts = np.flatnonzero(~equal)
    distinct, _ = ordered.select_rows(~equal)
    return distinct, np.diff(np.append(starts, len(degrees)))


def _mixed(links: np.ndarray) -> np.ndarray:
    """64 bits of every link that spread over all of the word (the finaliser of splitmix64), (n,) uint64."""
    x = (links.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


#: (round from 1, counts of the items that are not chosen (n,), their positions (n,)) -> index of the choice.
Choose = Callable[[int, np.ndarray, np.ndarray], int]


def next_item(choose: Choose, counts: np.ndarray, chosen: Sequence[int] | np.ndarray) -> int:
    """The position of the next item: `choose` among those that are not chosen yet."""
    free = np.ones(len(counts), bool)
    free[np.asarray(chosen, np.int64)] = False
    rest = np.flatnonzero(free)
    return int(rest[choose(len(chosen) + 1, counts[rest], rest)])


def peel(covers: Sequence[Cover], counts: np.ndarray, k: int, choose: Choose) -> list[int]:
    """User peeling: choose an item, remove its holders, until min(k, d) items are chosen, whoever is left.

    Args:
      covers: users; those who are hit are removed.
      counts: (d,) int64, of these users; changed.

    Returns:
      Positions in the order of the choice.
    """
    chosen: list[int] = []
    while len(chosen) < min(k, len(counts)):
        if chosen:
            for cover in covers:
                cover.take(chosen[-1], counts)
        chosen.append(next_item(choose, counts, chosen))
    return chosen
