"""Pairs in memory as integers: the ground of the non-private evaluation and of the sequential oracles."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpbeam.errors import DataError
from dpbeam.kernels.csr import Csr
from dpbeam.kernels.pairs import offsets_of


@dataclass(frozen=True)
class IndexedSets:
    """Distinct (user, item) pairs.

    Attributes:
      sets: users as rows, items ascending.
      items: (items,) the items' values, in the order of first appearance.
      users: (users,) likewise, one for each row of the sets.
    """

    sets: Csr
    items: pa.Array
    users: pa.Array

    @property
    def num_items(self) -> int:
        return len(self.items)

    @property
    def holders(self) -> np.ndarray:
        """N(x): (items,) int64, the users that hold each item."""
        return np.bincount(self.sets.links, minlength=self.num_items).astype(np.int64)


def index_pairs(batches: Iterable[tuple[pa.Array, pa.Array]]) -> IndexedSets:
    """Number users and items and drop duplicate pairs.

    Args:
      batches: equally long arrays of users and items without nulls; of one type each over all batches.

    Raises:
      InputError: there is no pair at all, or a null.
    """
    columns: tuple[list, list] = ([], [])
    for pair in batches:
        for values, column in zip(pair, columns):
            chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
            column += [_encoded(chunk) for chunk in chunks]
    if not sum(map(len, columns[0])):
        raise DataError("the input holds no (user, item) pair: nothing to evaluate")
    (user, users), (item, items) = (_encode(column) for column in columns)
    pairs = np.unique((user.astype(np.uint64) << np.uint64(32)) | item.astype(np.uint64))
    links = (pairs & np.uint64(0xFFFFFFFF)).astype(np.int64)
    offsets = offsets_of(pairs >> np.uint64(32), int(user.max()) + 1)
    return IndexedSets(Csr(offsets, links), items, users)


def _encoded(chunk: pa.Array) -> pa.DictionaryArray:
    """A chunk as numbers and its distinct values, so that no more text than that is held; InputError on a null."""
    plain = chunk.dictionary_decode() if pa.types.is_dictionary(chunk.type) else chunk
    if plain.null_count:
        raise DataError("users and items must not be null")
    return plain.dictionary_encode()


def _encode(chunks: list[pa.DictionaryArray]) -> tuple[np.ndarray, pa.Array]:
    encoded = pa.chunked_array(chunks).unify_dictionaries().combine_chunks()
    return encoded.indices.to_numpy(), encoded.dictionary


def mask_of(indexed: IndexedSets, released: pa.Array) -> tuple[np.ndarray, int]:
    """Which items are released, (items,) bool, and how many distinct released items the input lacks.

    Raises:
      InputError: the types of released and input items differ.
    """
    kind = indexed.items.type
    try:
        released = released.cast(kind).unique()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise DataError(f"released items are of type {released.type}, those of the input {kind}") from None
    mask = pc.is_in(indexed.items, value_set=released).to_numpy(zero_copy_only=False)
    return mask, len(released) - int(mask.sum())
