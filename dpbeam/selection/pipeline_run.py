"""What the PTransforms of all kinds share: the private folder of their run, their ledger and their account."""

from __future__ import annotations

import difflib
import os
import tempfile
from collections.abc import Mapping
from typing import Any, cast

from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions
from apache_beam.pvalue import PCollection
from typing_extensions import TypedDict, Unpack

from dpbeam.accounting.arguments import file_path, instance, text
from dpbeam.accounting.ledger import Ledger
from dpbeam.budget.periods import parse_days
from dpbeam.engine.beam.account import PipelineCharge
from dpbeam.engine.beam.ledger_file import LedgerFile
from dpbeam.engine.beam.run_folder import FolderOfRun, Terms
from dpbeam.engine.beam.store import RunFolder, RunStore
from dpbeam.engine.program import Program
from dpbeam.errors import SettingError
from dpbeam.runners.options import EngineFlags, read
from dpbeam.selectors.registry import all_settings
from dpbeam.storage import FileSystems


class RunArguments(TypedDict, total=False):
    """Keyword arguments of every PTransform.

    Attributes:
      run: the private folder of this run, for a caller who holds it and removes it when the pipeline has finished.
      run_folder: below which folder the pipeline itself makes one, if there is no `run`; every worker must reach it.
        Default: the pipeline's temp_location, or else the system's temporary folder.
      ledger: path of the ledger, written last, whole or not at all.
      budget: path or URL of the store of accounts of which one is charged, without a password; workers open it.
      dataset: whose account is charged.
      release_id: a name of this release that a retry repeats, so that it is paid once.
      budget_period: days of the data, as 2026-01-31 or 2026-01-01:2026-01-31, where the budget is one for days.
      insecure_test_key: a fixed key for tests; what comes out is then NOT PRIVATE.
    """

    run: RunFolder | None
    run_folder: str | None
    ledger: str | None
    budget: str | None
    dataset: str | None
    release_id: str | None
    budget_period: str | None
    insecure_test_key: str | None


_PATHS = ("run_folder", "ledger", "budget")
_OF_ACCOUNT = ("dataset", "release_id", "budget_period")


def of_run(arguments: Mapping[str, Any]) -> tuple[RunArguments, dict[str, Any]]:
    """Keyword arguments as those of `RunArguments`, and the settings of a method among them.

    Raises:
      TypeError: one is neither.
    """
    known = {*RunArguments.__annotations__, *all_settings()}
    for name in arguments:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"there is no argument {name!r}{hint}")
    run = {name: value for name, value in arguments.items() if name in RunArguments.__annotations__}
    return cast(RunArguments, run), {n: v for n, v in arguments.items() if n not in run}


class PipelineRun:
    """How one transform's run begins and ends.

    Raises:
      InputError: an argument is of another type, or two of them do not go together.
      TypeError: there is no such argument.
    """

    def __init__(self, **arguments: Unpack[RunArguments]):
        said: dict[str, Any] = {name: value for name, value in arguments.items() if value is not None}
        for name, value in said.items():
            if name not in RunArguments.__annotations__:
                raise TypeError(f"there is no argument '{name}'")
            if name == "run":
                instance("run", value, RunFolder)
            else:
                (file_path if name in _PATHS else text)(name, value)
        for name in ("run_folder", "insecure_test_key"):
            if "run" in said and name in said:
                raise SettingError(f"run is a folder with a key of its own: drop {name}, or run")
        for name in _OF_ACCOUNT:
            if name in said and "budget" not in said:
                raise SettingError(f"{name} is of an account of budget: say budget too, or drop it")
        for name in _OF_ACCOUNT[:2]:
            if name not in said and "budget" in said:
                raise SettingError(f"budget needs {name}")
        self._arguments = said
        if self.fixed_key and "budget" in said:
            raise SettingError(
                "budget: what comes out under a fixed test key is NOT PRIVATE and is not charged; drop one"
            )

    @property
    def fixed_key(self) -> bool:
        """Whether the key is a fixed one of tests, so that nothing is private."""
        run = self._arguments.get("run")
        return "insecure_test_key" in self._arguments or (run is not None and run.insecure_key)

    @property
    def dataset(self) -> str | None:
        """Whose account is charged."""
        return self._arguments.get("dataset")

    def begin(self, pcoll: PCollection, ledger: Ledger, command: str) -> BegunRun:
        """Add what has to come before all stages.

        Args:
          ledger: of the run; command: of its family.

        Raises:
          InputError: workers do not reach a file of this machine.
          ValueError: the folder serves another transform.
        """
        said, run = self._arguments, self._arguments.get("run")
        options = pcoll.pipeline.options
        ledger.verify()
        charge = None
        if "budget" in said:
            days = None if "budget_period" not in said else parse_days(said["budget_period"], "budget_period")
            charge = PipelineCharge(
                _here(said["budget"]), said["dataset"], said["release_id"], days, command, ledger
            )
            charge.check()
        file = None
        if "ledger" in said:
            file = LedgerFile(_here(said["ledger"]), ledger, command, said.get("release_id"))
        _check_reached(pcoll, {name: said[name] for name in _PATHS if name in said})
        if run is None:
            place = said.get("run_folder") or options.view_as(GoogleCloudOptions).temp_location
            folder = FolderOfRun(
                pcoll.pipeline,
                _here(place or tempfile.gettempdir()),
                said.get("insecure_test_key"),
                terms=Terms(file, charge),
            )
            return BegunRun(folder.store, ledger, folder)
        store = run.claim()
        terms = Terms(file, charge, held=store.path, encrypted=store.encrypted)
        if not terms.anything:
            return BegunRun(store, ledger)
        return BegunRun(store, ledger, FolderOfRun(pcoll.pipeline, "", terms=terms, store=store))


class BegunRun:
    """A run whose stages can be added.

    Attributes:
      store: of the stages.
    """

    def __init__(self, store: RunStore, ledger: Ledger, folder: FolderOfRun | None = None):
        self.store, self._ledger, self._folder = store, ledger, folder

    def end(self, result: PCollection, program: Program) -> PCollection:
        """Add what has to come after all stages of the program; what leaves them."""
        trips = 0 if program.may_end else program.trips
        return result if self._folder is None else self._folder.ending(result, trips)

    def labelled(self, released: PCollection) -> PCollection:
        """What leaves the transform, with the ledger as an attribute."""
        released.ledger = self._ledger  # type: ignore[attr-defined]
        return released


def _here(path: str) -> str:
    """A path that means the same in another process: that of a worker may work in another folder."""
    return os.path.abspath(os.path.expanduser(path)) if "://" not in path else path


def _check_reached(pcoll: PCollection, paths: dict[str, str]) -> None:
    """Refuse files of this machine where workers are on others.

    Raises:
      InputError: naming the argument.
    """
    pipeline = pcoll.pipeline
    if not read(_argv(pipeline.options, type(pipeline.runner).__name__)).remote_workers:
        return
    for name, path in paths.items():
        if path.startswith("sqlite:") or FileSystems.get_scheme(path) is None:
            which = "a file of SQLite" if name == "budget" else "a path"
            better = (
                "a database that they reach, postgresql://..." if name == "budget" else "a place on a store"
            )
            raise SettingError(
                f"{name}: '{path}' is {which} on this machine, which the workers do not reach; take {better}"
            )


def _argv(options: PipelineOptions, runner: str) -> list[str]:
    """The options of a pipeline that say where it runs, as they would be typed."""
    argv = []
    for name, value in {**options.get_all_options(), "runner": runner}.items():
        if name in EngineFlags.__annotations__ and value not in (None, False):
            for one in value if isinstance(value, list) else [value]:
                argv.append(f"--{name}" if one is True else f"--{name}={one}")
    return argv
