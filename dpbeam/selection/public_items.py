"""Items that are public anyway: released without budget, whoever holds them, and removed from the selection."""

from __future__ import annotations

from collections.abc import Iterator

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpbeam.kernels.canonical import Kinds
from dpbeam.transforms.store import RunStore

_FILE = "public-items"
_BATCH = 1_000_000


def store_public_items(store: RunStore, items: pa.Array) -> None:
    """Put the items where the workers find them."""
    store.write(_FILE, {"items": items})


class _Remove(beam.DoFn):
    """Drops the public items from batches; keyed elements keep their key."""

    def __init__(self, store: RunStore):
        self._store = store
        self._public = None

    def setup(self) -> None:
        self._public = self._store.read(_FILE)["items"]

    def process(self, element) -> Iterator:
        key, batch = element if isinstance(element, tuple) else (None, element)
        items = batch.column("item")
        if pa.types.is_dictionary(items.type):
            known = pc.is_in(items.dictionary, value_set=self._public).take(items.indices)
        else:
            known = pc.is_in(items, value_set=self._public)
        if pc.any(known).as_py():
            batch = batch.filter(pc.invert(known))
        yield batch if key is None else (key, batch)


class RemovePublicItems(beam.PTransform):
    """Takes the public items out of every user's set before anything is counted."""

    def __init__(self, store: RunStore, *, complete: bool):
        super().__init__()
        self._store = store
        self._complete = complete

    def expand(self, pcoll):
        element = tuple[int, pa.RecordBatch] if self._complete else pa.RecordBatch
        return pcoll | "Filter" >> beam.ParDo(_Remove(self._store)).with_output_types(element)


class _Emit(beam.DoFn):
    def __init__(self, store: RunStore, kinds: Kinds):
        self._store, self._kinds = store, kinds

    def process(self, _) -> Iterator[pa.RecordBatch]:
        items = self._store.read(_FILE)["items"]
        schema = pa.schema(
            [("item", pa.large_binary()), ("noisy_weight", pa.float64())], metadata=self._kinds.metadata()
        )
        for start in range(0, len(items), _BATCH):
            part = items.slice(start, _BATCH)
            weights = pa.array(np.full(len(part), np.nan))
            yield pa.RecordBatch.from_arrays([part, weights], schema=schema)


class ReleasePublicItems(beam.PTransform):
    """All public items as released batches, also those that nobody holds; their noisy weight is NaN, for none."""

    def __init__(self, store: RunStore, kinds: Kinds):
        super().__init__()
        self._store, self._kinds = store, kinds

    def expand(self, pipeline):
        emit = _Emit(self._store, self._kinds)
        return pipeline | beam.Create([None]) | "Emit" >> beam.ParDo(emit).with_output_types(pa.RecordBatch)
