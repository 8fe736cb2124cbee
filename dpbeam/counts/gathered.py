"""Histograms of items in parts, as shards send them, and added up in one place, the hub."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpbeam.kernels.columns import Columns
from dpbeam.kernels.pairs import common_kinds, kinds_column, unique_fingerprints

WEIGHTS = "weights"
#: Canonical bytes of items -> their fingerprints, a method of `Keys` and `Draw`.
Fingerprints = Callable[[pa.Array], np.ndarray]


def histogram(items: pa.Array, counts: np.ndarray, kinds: bytes) -> Columns:
    """A histogram as columns: (d,) canonical items, (d,) int64 counts, kinds of the items."""
    return {"items": items, "counts": counts, "kinds": kinds_column(kinds)}


#: A list of nothing, for what is asked of a plan before its list is there.
NO_ITEMS = pa.array([], pa.large_binary())


def public_domain(items: pa.Array) -> Columns:
    """A public domain as a histogram: items that nobody holds so far. The pairs say of what kinds they are."""
    return histogram(items, np.zeros(len(items), np.int64), b"")


@dataclass(frozen=True)
class Gathered:
    """A histogram of distinct items in one place.

    Attributes:
      items: (d,) canonical bytes; fp: (d, 2) fingerprints.
      counts: (d,) users per item; weights: (d,) what else was summed per item, zeros where nothing was.
      kinds: what the bytes stand for.
    """

    items: pa.Array
    fp: np.ndarray
    counts: np.ndarray
    weights: np.ndarray
    kinds: bytes


def gather(
    parts: Sequence[Columns], domain: Columns | None, fingerprints: Fingerprints, *, beyond: bool = False
) -> Gathered:
    """The parts of a histogram added up.

    Args:
      parts: of `histogram`, with a column `weights` or without; an item may stand in several.
      domain: a public domain; all of its items take part, and nothing else does.
      beyond: items of the parts take part that are not in the domain.
    """
    kinds = common_kinds(parts)
    parts = [*parts, *([] if domain is None else [domain])]
    items = pa.concat_arrays([part["items"] for part in parts] or [pa.array([], pa.large_binary())])
    values = np.zeros((2, len(items)), np.int64)
    end = 0
    for part in parts:
        start, end = end, end + len(part["items"])
        values[0, start:end] = part["counts"]
        values[1, start:end] = part.get(WEIGHTS, 0)
    if domain is not None and not beyond:
        inside = pc.is_in(items, value_set=domain["items"])
        items, values = items.filter(inside), values[:, inside.to_numpy(zero_copy_only=False)]
    fp = fingerprints(items)
    first, inverse = unique_fingerprints(fp)
    totals = np.zeros((2, len(first)), np.int64)
    np.add.at(totals[0], inverse, values[0])
    np.add.at(totals[1], inverse, values[1])
    return Gathered(items.take(pa.array(first)), fp[first], totals[0], totals[1], kinds)
