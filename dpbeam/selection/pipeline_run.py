"""What the PTransforms of all kinds share: where the private folder of their run lies, and who holds it."""

from __future__ import annotations

import tempfile

from apache_beam.options.pipeline_options import GoogleCloudOptions
from apache_beam.pvalue import PCollection
from typing_extensions import TypedDict, Unpack

from dpbeam.accounting.arguments import file_path, instance, text
from dpbeam.engine.beam.run_folder import FolderOfRun
from dpbeam.engine.beam.store import RunFolder, RunStore
from dpbeam.errors import InputError


class RunArguments(TypedDict, total=False):
    """Keyword arguments of every PTransform.

    Attributes:
      run: the private folder of this run, for a caller who holds it and removes it when the pipeline has finished.
      run_folder: below which folder the pipeline itself makes one, if there is no `run`; every worker must reach it.
        Default: the pipeline's temp_location, or else the system's temporary folder.
      insecure_test_key: a fixed key for tests; what comes out is then NOT PRIVATE.
    """

    run: RunFolder | None
    run_folder: str | None
    insecure_test_key: str | None


class PipelineRun:
    """How one transform's run begins and ends.

    Raises:
      InputError: an argument is of another type, or two of them do not go together.
    """

    def __init__(self, **arguments: Unpack[RunArguments]):
        self._run = instance("run", arguments.pop("run", None), RunFolder, optional=True)
        self._place = arguments.pop("run_folder", None)
        self._test_key = arguments.pop("insecure_test_key", None)
        for name in arguments:
            raise TypeError(f"there is no argument '{name}'")
        if self._place is not None:
            file_path("run_folder", self._place)
        if self._test_key is not None:
            text("insecure_test_key", self._test_key)
        for name, value in (("run_folder", self._place), ("insecure_test_key", self._test_key)):
            if self._run is not None and value is not None:
                raise InputError(f"run is a folder with a key of its own: drop {name}, or run")

    @property
    def fixed_key(self) -> bool:
        """Whether the key is a fixed one of tests, so that nothing is private."""
        return self._test_key is not None or (self._run is not None and self._run.insecure_key)

    def begin(self, pcoll: PCollection) -> BegunRun:
        """Add what has to come before all stages.

        Raises:
          ValueError: the folder serves another transform.
        """
        if self._run is not None:
            return BegunRun(self._run.claim())
        options = pcoll.pipeline.options.view_as(GoogleCloudOptions)
        place = self._place or options.temp_location or tempfile.gettempdir()
        folder = FolderOfRun(pcoll.pipeline, place, self._test_key)
        return BegunRun(folder.store, folder)


class BegunRun:
    """A run whose stages can be added.

    Attributes:
      store: of the stages.
    """

    def __init__(self, store: RunStore, folder: FolderOfRun | None = None):
        self.store, self._folder = store, folder

    def end(self, result: PCollection) -> PCollection:
        """Add what has to come after all stages; what leaves the transform."""
        return result if self._folder is None else self._folder.ending(result)
