"""A run's folder that the run itself makes: its first stage draws the key, its last one removes everything.

So whoever builds a pipeline may be gone when it runs: a notebook, a template, an expansion service. What the stages
find in the folder at the start (the program, lists) travels in the first stage, and the key never leaves the folder.

An *execution* is one run of a built pipeline. Its first step draws a name, which passes a shuffle, and the second makes
the folder of this name. A retry of the second step comes with the same name: it finds the folder and the key, and
changes nothing. Another execution of the same pipeline has another name, and so a folder and a key of its own.

What leaves the transform waits until the receipts of the run are complete (`PublishRun`). So nothing leaves where an
engine has lost the name too, has drawn another, and has made one part of the stages in each of two folders. The folder
goes when all of the result has left (`EndRun`); a job that died before leaves it, and `dpbeam clean` removes it.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
from apache_beam.metrics.metric import Metrics
from apache_beam.pvalue import AsSingleton, PCollection
from apache_beam.transforms import combiners

from dpbeam.engine.beam import owner
from dpbeam.engine.beam.account import PipelineCharge
from dpbeam.engine.beam.ledger_file import LedgerFile
from dpbeam.engine.beam.receipts import check_receipts
from dpbeam.engine.beam.store import RunStore, key_file, remove_run
from dpbeam.engine.binding import OTHER_DATA
from dpbeam.errors import BudgetError, StoreError
from dpbeam.randomness import RunKey
from dpbeam.storage import FileSystems
from dpbeam.storage.processes import PIPELINE, Owner


class LateStore(RunStore):
    """The store of a run whose first stage makes the folder; its stages learn the path when they run.

    Until then it keeps what is written and bound, for the first stage.

    Attributes:
      files, bound: of the folder that is to be made: contents by name, digests by place.
    """

    def __init__(self) -> None:
        super().__init__("")
        self.files: dict[str, bytes] = {}
        self.bound: dict[str, bytes] = {}

    def write_bytes(self, name: str, data: bytes) -> None:
        if self.path:
            super().write_bytes(name, data)
        else:
            self.files[name] = data

    def bind(self, place: str, digest: bytes) -> bool:
        if self.path:
            return super().bind(place, digest)
        return self.bound.setdefault(place, digest) == digest

    def __getstate__(self) -> dict[str, Any]:
        """Of a stage, which knows the folder's files from the folder."""
        return {**super().__getstate__(), "files": {}, "bound": {}}


def in_run(fn: Any) -> beam.ParDo:
    """A ParDo of a DoFn whose `_store` is that of a run; where the first stage makes the folder, it waits for it."""
    where = fn._store.where
    if where is None:
        return beam.ParDo(fn)
    return beam.ParDo(_InRun(fn), AsSingleton(where))


class _InRun(beam.DoFn):
    """A DoFn that is set up when it first hears where the run's folder lies."""

    def __init__(self, fn: Any):
        self._fn, self._path = fn, ""

    def start_bundle(self) -> None:
        self._fn.start_bundle()

    def process(self, element: Any, path: str) -> Iterable[Any] | None:
        if self._path != path:
            self._path = self._fn._store.path = path
            self._fn.setup()
        came: Iterable[Any] | None = self._fn.process(element)
        return came

    def finish_bundle(self) -> Iterable[Any] | None:
        came: Iterable[Any] | None = self._fn.finish_bundle()
        return came


def _new_name(_: bytes) -> str:
    return uuid.uuid4().hex


@dataclass(frozen=True)
class Terms:
    """What a run is to do besides its result; goes with its first and its last stage.

    Attributes:
      ledger: written last; None: none is.
      charge: the account that is charged; None: none is.
      held: the caller's own folder of the run; None: the first stage makes one.
      encrypted: that folder is.
    """

    ledger: LedgerFile | None = None
    charge: PipelineCharge | None = None
    held: str | None = None
    encrypted: bool = False

    @property
    def anything(self) -> bool:
        """Whether there is anything to do for a caller who holds the folder."""
        return self.ledger is not None or self.charge is not None

    def begin(self, path: str) -> str:
        """Reserve; the folder that the run works in, which is that of an earlier attempt where its key is there.

        Raises:
          InputError: the run may not start.
        """
        earlier = None if self.charge is None else self.charge.folder()
        if self.ledger is not None:  # before anything is reserved
            self.ledger.check(RunStore(earlier or path, encrypted=self.encrypted))
        if self.charge is None:
            return path
        reserved = self.charge.reserve(path)
        if self.held is not None and reserved != path:
            raise BudgetError(
                f"release_id: '{self.charge.release_id}' was begun in the folder '{reserved}': drop run, and the "
                "pipeline goes on with that one"
            )
        return reserved

    def end(self, store: RunStore) -> None:
        """Write the ledger, settle, and remove the folder; again, if an attempt has died on the way.

        Raises:
          InputError: another file has appeared in the ledger's place.
          FileNotFoundError: the folder is gone, and this run has not come to its end.
        """
        if store.has_key:
            if self.ledger is not None:
                self.ledger.write(store, None if self.charge is None else self.charge.mark())
        elif self.ledger is not None and not self.ledger.is_there:
            raise FileNotFoundError(errno.ENOENT, "the run has ended", store.path)
        if self.charge is not None:
            self.charge.commit(store.path)
        if self.held is None:
            remove_run(store.path)


class _MakeFolder(beam.DoFn):
    """Name of an execution -> path of its folder, which holds its key and its first files.

    Args:
      place: below which folder.
      test_key: label of a fixed key; None: a fresh one.
      builder: the process that builds the pipeline. Where it runs this stage too, the run ends with it.
      store: what was written and bound while the pipeline was built; one of a folder that is there has all of it.
      terms: what the run is to do besides.
    """

    def __init__(
        self, place: str, test_key: str | None, builder: Owner, terms: Terms, store: LateStore | None
    ):
        self._place, self._test_key, self._builder, self._terms = place, test_key, builder, terms
        self._files = {} if store is None else store.files
        self._bound = {} if store is None else store.bound

    def process(self, name: str) -> Iterator[str]:
        held = self._terms.held
        path = self._terms.begin(held or FileSystems.join(self._place, f"{owner.RUN_FOLDER}{name}"))
        if held is None:
            self.make(path)
        if self._terms.ledger is not None:
            self._terms.ledger.begin(RunStore(path, encrypted=self._terms.encrypted))
        yield path

    def make(self, path: str) -> None:
        """Make the folder, or what an earlier attempt has left out of it.

        Raises:
          InputError: it is that of other settings.
          UnavailableError: another attempt makes it just now, on a store that cannot make a file once.
        """
        store = RunStore(path)
        with contextlib.suppress(FileExistsError):
            FileSystems.make_folder(path, private=True)
        # A folder that an account names outlives its process: a retry goes on with it.
        here = self._terms.charge is None and Owner.this_process() == self._builder
        if not store.has_key:
            owner.mark(path, PIPELINE if not here else None)
            key = RunKey.fresh() if self._test_key is None else RunKey.insecure_fixed(self._test_key)
            store.write_once(owner.KEY, key_file(key))
        for place, digest in self._bound.items():
            if not store.bind(place, digest):
                raise StoreError(OTHER_DATA)
        for file, data in self._files.items():
            store.write_bytes(file, data)
        if here:
            atexit.register(remove_run, path)


class _Check(beam.DoFn):
    """Number of elements of the result -> itself, once nothing is missing of the run that they came from.

    The trips of the run are counted here, by one element that every run has: a count of messages, bytes or shards at
    work would tell of the data.
    """

    def __init__(self, store: RunStore, terms: Terms, trips: int):
        self._store, self._charge, self._trips = store, terms.charge, trips

    def process(self, number: int) -> Iterator[int]:
        if not self._store.has_key:
            raise FileNotFoundError(errno.ENOENT, "the run has ended", self._store.path)
        check_receipts(self._store)
        if self._charge is not None:
            self._charge.publish(self._store.path)
        Metrics.counter("dpbeam", "trips").inc(self._trips)
        yield number


class _End(beam.DoFn):
    """Number of elements that have left -> nothing; what has to be done at the end of the run is done."""

    def __init__(self, store: RunStore, terms: Terms):
        self._store, self._terms = store, terms

    def process(self, _: int) -> None:
        self._terms.end(self._store)


def _itself(element: Any, _: int) -> Any:
    return element


class FolderOfRun:
    """The run of one transform in a pipeline, from the first stage to the last.

        folder = FolderOfRun(pcoll.pipeline, place)
        result = ... the stages of `folder.store` ...
        return folder.ending(result, program.trips)

    Args:
      place: a folder that every worker can reach; the run's own is made below it.
      test_key: label of a fixed key, for tests: what comes out is not private.
      terms: what the run is to do besides its result.
      store: of the folder that the caller holds.

    Attributes:
      store: of the stages.
    """

    def __init__(
        self,
        pipeline: beam.Pipeline,
        place: str,
        test_key: str | None = None,
        *,
        terms: Terms | None = None,
        store: RunStore | None = None,
    ):
        self._terms = terms or Terms()
        self._late: LateStore | None = None
        if store is None:
            store = self._late = LateStore()
        self.store = store
        self._arguments = place, test_key, Owner.this_process(), self._terms
        self._make = beam.ParDo(_MakeFolder(*self._arguments, self._late)).with_output_types(str)
        # The shuffle keeps the name: who makes the folder again makes the same one.
        name = pipeline | "Impulse" >> beam.Impulse() | "Name" >> beam.Map(_new_name) | beam.Reshuffle()
        self.store.where = name | "BeginRun" >> self._make

    def ending(self, result: PCollection, trips: int) -> PCollection:
        """The result of the stages, which leaves once it is whole; when all of it has left, the run is ended.

        Args:
          trips: that were made; 0: that is not known before.
        """
        # Beam has copied the DoFn when there were no stages yet.
        self._make.fn = _MakeFolder(*self._arguments, self._late)
        whole = result | "CountResult" >> combiners.Count.Globally()
        whole = whole | "CheckRun" >> in_run(_Check(self.store, self._terms, trips)).with_output_types(int)
        leaving = beam.Map(_itself, AsSingleton(whole)).with_output_types(result.element_type)
        result = result | "PublishRun" >> leaving
        left = result | "CountLeft" >> combiners.Count.Globally()
        _ = left | "EndRun" >> in_run(_End(self.store, self._terms))
        return result
