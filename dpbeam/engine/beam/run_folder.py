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
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import AsSingleton, PCollection
from apache_beam.transforms import combiners

from dpbeam.engine.beam import owner
from dpbeam.engine.beam.owner import Owner
from dpbeam.engine.beam.receipts import check_receipts
from dpbeam.engine.beam.store import RunStore, key_file, remove_run
from dpbeam.engine.binding import OTHER_DATA
from dpbeam.errors import InputError
from dpbeam.randomness import RunKey
from dpbeam.storage import FileSystems


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
        return {**vars(self), "files": {}, "bound": {}, "where": None}


def in_run(fn: Any) -> beam.ParDo:
    """A ParDo of a DoFn whose `_store` is that of a run; where the first stage makes the folder, it waits for it."""
    where = fn._store.where
    if where is None:
        return beam.ParDo(fn)
    return beam.ParDo(_InRun(fn), AsSingleton(where))


class _InRun(beam.DoFn):
    """A DoFn that is set up when it first hears where the run's folder lies."""

    def __init__(self, fn: Any):
        self._fn = fn

    def start_bundle(self) -> None:
        self._fn.start_bundle()

    def process(self, element: Any, path: str) -> Iterable[Any] | None:
        if self._fn._store.path != path:
            self._fn._store.path = path
            self._fn.setup()
        came: Iterable[Any] | None = self._fn.process(element)
        return came

    def finish_bundle(self) -> Iterable[Any] | None:
        came: Iterable[Any] | None = self._fn.finish_bundle()
        return came


def _new_name(_: bytes) -> str:
    return uuid.uuid4().hex


class _MakeFolder(beam.DoFn):
    """Name of an execution -> path of its folder, which holds its key and its first files.

    Args:
      place: below which folder.
      test_key: label of a fixed key; None: a fresh one.
      builder: the process that builds the pipeline. Where it runs this stage too, the run ends with it.
      store: what was written and bound while the pipeline was built.
    """

    def __init__(self, place: str, test_key: str | None, builder: Owner, store: LateStore):
        self._place, self._test_key, self._builder = place, test_key, builder
        self._files, self._bound = store.files, store.bound

    def process(self, name: str) -> Iterator[str]:
        path = FileSystems.join(self._place, f"{owner.RUN_FOLDER}{name}")
        self.make(path)
        yield path

    def make(self, path: str) -> None:
        """Make the folder, or what an earlier attempt has left out of it.

        Raises:
          InputError: it is that of other settings.
          UnavailableError: another attempt makes it just now, on a store that cannot make a file once.
        """
        store = RunStore(path)
        with contextlib.suppress(FileExistsError):
            FileSystems.mkdirs(path, private=True)
        here = Owner.this_process() == self._builder
        if not store.has_key:
            owner.mark(path, owner.PIPELINE if not here else None)
            key = RunKey.fresh() if self._test_key is None else RunKey.insecure_fixed(self._test_key)
            store.write_once(owner.KEY, key_file(key))
        for place, digest in self._bound.items():
            if not store.bind(place, digest):
                raise InputError(OTHER_DATA)
        for file, data in self._files.items():
            store.write_bytes(file, data)
        if here:
            atexit.register(remove_run, path)


class _Check(beam.DoFn):
    """Number of elements of the result -> itself, once nothing is missing of the run that they came from."""

    def __init__(self, store: RunStore):
        self._store = store

    def process(self, number: int) -> Iterator[int]:
        if not self._store.has_key:
            raise FileNotFoundError(errno.ENOENT, "the run has ended", self._store.path)
        check_receipts(self._store)
        yield number


class _End(beam.DoFn):
    """Number of elements that have left -> nothing; the folder goes."""

    def __init__(self, store: RunStore):
        self._store = store

    def process(self, _: int) -> None:
        remove_run(self._store.path)


def _itself(element: Any, _: int) -> Any:
    return element


class FolderOfRun:
    """The folder of one transform's run, made by the pipeline's first stage and removed by its last.

        folder = FolderOfRun(pcoll.pipeline, place)
        result = ... the stages of `folder.store` ...
        return folder.ending(result)

    Args:
      place: a folder that every worker can reach.
      test_key: label of a fixed key, for tests: what comes out is not private.

    Attributes:
      store: of the stages.
    """

    def __init__(self, pipeline: beam.Pipeline, place: str, test_key: str | None = None):
        self.store = LateStore()
        self._arguments = place, test_key, Owner.this_process()
        self._make = beam.ParDo(_MakeFolder(*self._arguments, self.store)).with_output_types(str)
        # The shuffle keeps the name: who makes the folder again makes the same one.
        name = pipeline | "Impulse" >> beam.Impulse() | "Name" >> beam.Map(_new_name) | beam.Reshuffle()
        self.store.where = name | "MakeRunFolder" >> self._make

    def ending(self, result: PCollection) -> PCollection:
        """The result of the stages, which leaves once it is whole; when all of it has left, the folder goes."""
        # Beam has copied the DoFn when there were no stages yet.
        self._make.fn = _MakeFolder(*self._arguments, self.store)
        whole = result | "CountResult" >> combiners.Count.Globally()
        whole = whole | "CheckRun" >> in_run(_Check(self.store)).with_output_types(int)
        leaving = beam.Map(_itself, AsSingleton(whole)).with_output_types(result.element_type)
        result = result | "PublishRun" >> leaving
        left = result | "CountLeft" >> combiners.Count.Globally()
        _ = left | "EndRun" >> in_run(_End(self.store))
        return result
