"""Lists of items: released without budget and left out of the selection, or a domain to keep to."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from apache_beam.pvalue import PCollection

from dpbeam.counts.gathered import public_domain
from dpbeam.engine.beam.run_folder import in_run
from dpbeam.engine.beam.store import RunStore
from dpbeam.engine.program import Program
from dpbeam.kernels.canonical import is_listed
from dpbeam.selection.known import NEW
from dpbeam.selection.plan import SelectionPlan

PUBLIC_FILE = "public-items"
_KNOWN_FILE = "known-items"
_BATCH = 1_000_000


def store_items(store: RunStore, file: str, items: pa.Array) -> None:
    """Put a list of items where the workers find it."""
    store.write(file, {"items": items})


class _Filter(beam.DoFn):
    """Keeps or drops the listed items of batches; keyed elements keep their key."""

    def __init__(self, store: RunStore, file: str, keep: bool):
        self._store = store
        self._file = file
        self._keep = keep
        self._listed: pa.Array = None

    def setup(self) -> None:
        self._listed = self._store.read(self._file)["items"]

    def process(self, element: Any) -> Iterator[Any]:
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

    def __init__(
        self,
        store: RunStore,
        file: str = PUBLIC_FILE,
        *,
        keep: bool = False,
        complete: bool,
    ):
        super().__init__()
        self._fn = _Filter(store, file, keep)
        self._complete = complete

    def expand(self, pcoll: PCollection) -> PCollection:
        element = tuple[int, pa.RecordBatch] if self._complete else pa.RecordBatch
        return pcoll | "Filter" >> in_run(self._fn).with_output_types(element)


class _Emit(beam.DoFn):
    def __init__(self, store: RunStore, numbers: tuple[str, ...]):
        self._store, self._numbers = store, numbers

    def process(self, _: None) -> Iterator[pa.RecordBatch]:
        items: pa.Array = self._store.read(PUBLIC_FILE)["items"]
        numbers = [(name, pa.float64()) for name in self._numbers]
        schema = pa.schema([("item", pa.large_binary()), *numbers])
        for start in range(0, len(items), _BATCH):
            part = items.slice(start, _BATCH)
            none = pa.array(np.full(len(part), np.nan))
            yield pa.RecordBatch.from_arrays([part, *[none] * len(numbers)], schema=schema)


class ReleasePublicItems(beam.PTransform):
    """All public items as released batches, also those that nobody holds; their numbers are NaN, for none.

    Args:
      numbers: the program's `released_names`.
    """

    def __init__(self, store: RunStore, numbers: tuple[str, ...] = ("noisy_weight",)):
        super().__init__()
        self._store, self._numbers = store, numbers

    def expand(self, pipeline: beam.Pipeline) -> PCollection:
        emit = _Emit(self._store, self._numbers)
        return pipeline | beam.Create([None]) | "Emit" >> in_run(emit).with_output_types(pa.RecordBatch)


class _MarkNew(beam.DoFn):
    """Adds the column `new` to released batches: 0 for items that are known, which `only_new` leaves out, else 1."""

    def __init__(self, store: RunStore, only_new: bool):
        self._store, self._only_new = store, only_new

    def setup(self) -> None:
        self._known = self._store.read(_KNOWN_FILE)["items"]

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        new = pc.invert(is_listed(batch.column("item"), self._known)).cast(pa.float64())
        schema = batch.schema.append(pa.field(NEW, pa.float64()))
        batch = pa.RecordBatch.from_arrays([*batch.columns, new], schema=schema)
        yield batch.filter(pc.equal(new, 1.0)) if self._only_new else batch


@dataclass(frozen=True)
class ListedBeside:
    """A selection, and items of lists that are released beside it whatever the data.

    Attributes:
      plan: of the selection.
      items: canonical bytes of the items, distinct; None: there is no list.
      known: those that are not new, where the output says which are; None where it does not.
      only_new: the output leaves them out.
    """

    plan: SelectionPlan
    items: pa.Array | None
    known: pa.Array | None = None
    only_new: bool = False

    @property
    def _counted(self) -> bool:
        return self.items is not None and self.plan.config.noisy_counts

    @functools.cached_property
    def program(self) -> Program:
        """What runs: where released items are counted, those of the list are too."""
        if not self._counted:
            return self.plan.program
        return self.plan.program_beside(public_domain(self.items))

    @property
    def rows(self) -> int:
        """How many rows more there are than the program releases."""
        added = 0 if self.items is None or self._counted else len(self.items)
        return added - (len(self.known) if self.known is not None and self.only_new else 0)

    def put(self, store: RunStore) -> None:
        """Put the lists where the workers find them."""
        for file, items in ((PUBLIC_FILE, self.items), (_KNOWN_FILE, self.known)):
            if items is not None:
                store_items(store, file, items)

    def leave_out(self, pairs: PCollection, store: RunStore, *, complete: bool) -> PCollection:
        """The pairs that the program takes."""
        if self.items is None or self._counted:
            return pairs
        return pairs | "RemovePublicItems" >> FilterItems(store, complete=complete)

    def add_to(self, released: PCollection, store: RunStore) -> PCollection:
        """What the program releases, with the items of the list and, if asked for, whether they are new."""
        if self.items is not None and not self._counted:
            public = ReleasePublicItems(store, self.program.released_names)
            fixed = released.pipeline | "PublicItems" >> public
            released = (released, fixed) | "WithPublicItems" >> beam.Flatten()
        if self.known is None:
            return released
        mark = _MarkNew(store, self.only_new)
        return released | "MarkNew" >> in_run(mark).with_output_types(pa.RecordBatch)
