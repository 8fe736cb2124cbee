"""The users of some rows by their fingerprints, with as little hashing as the rows allow.

Rows of one user often lie together, and columns may come as dictionaries: what is hashed and sorted then is a value
for each run of rows, not for each row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpbeam.randomness import fingerprints

_LOOKED_AT = 4096  # rows that tell whether looking for runs is worth it
_RANGE = np.uint64(1 << 58)  # a sixty-fourth of all users


@dataclass(frozen=True)
class UserRows:
    """The users of n rows, as runs of rows of one user.

    Attributes:
      fp: (entries, 2) uint64 fingerprints; may repeat.
      entry: (runs,) integer row of `fp` for each run; None: run i is entry i.
      lengths: (runs,) int64 rows of each run; None: one row each.
    """

    fp: np.ndarray
    entry: np.ndarray | None = None
    lengths: np.ndarray | None = None

    def __len__(self) -> int:
        """Number of rows."""
        if self.lengths is not None:
            return int(self.lengths.sum())
        return len(self.fp) if self.entry is None else len(self.entry)

    @classmethod
    def of(cls, users: pa.Array, key: bytes) -> UserRows:
        """Users of rows: (n,) canonical bytes without nulls, or a dictionary of them."""
        if pa.types.is_dictionary(users.type) and len(users.dictionary) > len(users):
            users = users.dictionary_decode()  # rows of a longer table
        if pa.types.is_dictionary(users.type):
            index = users.indices.to_numpy()
            starts = np.flatnonzero(index[1:] != index[:-1]) + 1
            starts = np.concatenate(([0], starts)) if len(index) else starts
            return cls(fingerprints(key, users.dictionary), index[starts], np.diff(starts, append=len(index)))
        if 2 * len(_runs(users.slice(0, _LOOKED_AT)).values) <= min(len(users), _LOOKED_AT):
            runs = _runs(users)
            ends = runs.run_ends.to_numpy().astype(np.int64)
            return cls(fingerprints(key, runs.values), lengths=np.diff(ends, prepend=0))
        return cls(fingerprints(key, users))

    @cached_property
    def mostly_single(self) -> bool:
        """Whether most users have one row, as far as those of a range of fingerprints tell."""
        if self.entry is not None or self.lengths is not None:
            return False
        high = self.fp[:, 0]
        some = np.sort(high[np.flatnonzero(high < _RANGE)])
        return 4 * int(np.count_nonzero(some[1:] == some[:-1])) < len(some)

    @classmethod
    def concat(cls, parts: Sequence[UserRows]) -> UserRows:
        """The rows of all parts, one after the other."""
        if len(parts) == 1:
            return parts[0]
        base = np.cumsum([0] + [len(part.fp) for part in parts])
        entry = lengths = None
        if any(part.entry is not None for part in parts):
            entry = np.concatenate([part._entries() + start for part, start in zip(parts, base)])
        if any(part.lengths is not None for part in parts):
            lengths = np.concatenate([part._lengths() for part in parts])
        return cls(np.concatenate([part.fp for part in parts]), entry, lengths)

    def _entries(self) -> np.ndarray:
        return np.arange(len(self.fp)) if self.entry is None else self.entry.astype(np.int64)

    def _lengths(self) -> np.ndarray:
        return np.ones(len(self._entries()), np.int64) if self.lengths is None else self.lengths


def _runs(users: pa.Array) -> pa.RunEndEncodedArray:
    return pc.run_end_encode(users, run_end_type=pa.int64())
