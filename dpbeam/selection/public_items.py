"""Lists of public items: released without budget and removed from the selection, or a domain to keep to."""

from __future__ import annotations

from collections.abc import Iterator

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpbeam.engine.beam.store import RunStore
from dpbeam.kernels.canonical import Kinds, is_listed

PUBLIC_FILE = "public-items"
_BATCH = 1_000_000


def store_public_items(store: RunStore, items: pa.Array) -> None:
    """Put the public items where the workers find them."""
    store_items(store, PUBLIC_FILE, items)


def store_items(store: RunStore, file: str, items: pa.Array) -> None:
    """Put a list of items where the workers find it."""
    store.write(file, {"items": items})


class _Filter(beam.DoFn):
    """Keeps or drops the listed items of batches; keyed elements keep their key."""

    def __init__(self, store: RunStore, file: str, keep: bool):
        self._store = store
        self._file = file
        self._keep = keep
        self._listed = None

    def setup(self) -> None:
        self._listed = self._store.read(self._file)["items"]

    def process(self, element) -> Iterator:
        key, batch = element if isinstance(element, tuple) else (None, element)
        listed = is_listed(batch.column("item"), self._listed)
        batch = batch.filter(listed if self._keep else pc.invert(listed))
        yield batch if key is None else (key, batch)


class FilterItems(beam.PTransform):
    """Takes listed items out of every user's set, or keeps to them, before anything is counted.

    Args:
      file: name of the list in the run's folder.
      keep: keep to the list instead of removing it.
      complete: elements are (block id, record batch).
    """

    def __init__(self, store: RunStore, file: str = PUBLIC_FILE, *, keep: bool = False, complete: bool):
        super().__init__()
        self._fn = _Filter(store, file, keep)
        self._complete = complete

    def expand(self, pcoll):
        element = tuple[int, pa.RecordBatch] if self._complete else pa.RecordBatch
        return pcoll | "Filter" >> beam.ParDo(self._fn).with_output_types(element)


class _Emit(beam.DoFn):
    def __init__(self, store: RunStore, kinds: Kinds, numbers: tuple[str, ...]):
        self._store, self._kinds, self._numbers = store, kinds, numbers

    def process(self, _) -> Iterator[pa.RecordBatch]:
        items = self._store.read(PUBLIC_FILE)["items"]
        numbers = [(name, pa.float64()) for name in self._numbers]
        schema = pa.schema([("item", pa.large_binary()), *numbers], metadata=self._kinds.metadata())
        for start in range(0, len(items), _BATCH):
            part = items.slice(start, _BATCH)
            none = pa.array(np.full(len(part), np.nan))
            yield pa.RecordBatch.from_arrays([part, *[none] * len(numbers)], schema=schema)


class ReleasePublicItems(beam.PTransform):
    """All public items as released batches, also those that nobody holds; their numbers are NaN, for none.

    Args:
      numbers: the program's `released_names`.
    """

    def __init__(self, store: RunStore, kinds: Kinds, numbers: tuple[str, ...] = ("noisy_weight",)):
        super().__init__()
        self._store, self._kinds, self._numbers = store, kinds, numbers

    def expand(self, pipeline):
        emit = _Emit(self._store, self._kinds, self._numbers)
        return pipeline | beam.Create([None]) | "Emit" >> beam.ParDo(emit).with_output_types(pa.RecordBatch)
