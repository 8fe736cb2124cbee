"""What an experiment is: datasets, methods, budgets, sweeps, tables, plots; and the cells that follow from it.

A file of an experiment is Python, and defines EXPERIMENT (lab/docs/how-to/evaluate.md). A *cell* is one run: a dataset,
a method with all its settings, a budget, a repetition. Whatever can be checked without data is checked before any cell
runs.
"""

from __future__ import annotations

import difflib
import itertools
import re
import runpy
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NoReturn

from dpbeam.errors import InputError, SettingError, naming_arguments
from dpbeam_lab.evaluation.data import PROVIDED, Repetition
from dpbeam_lab.evaluation.measures import BINNED, Measure
from dpbeam_lab.evaluation.methods import Method
from dpbeam_lab.evaluation.registry import measures, measures_of, methods
from dpbeam_lab.experiments.cells import Cell, prepared
from dpbeam_lab.experiments.sources import AbsentError, Named, Source

#: The name that a file gives to its experiment.
NAME = "EXPERIMENT"
MAX_CELLS = 1_000_000
#: Columns of results that a table or plot may name, besides settings and what datasets say of themselves.
DATASET, METHOD, EPSILON, DELTA, REPETITION = "dataset", "method", "epsilon", "delta", "repetition"
_RESERVED = (DATASET, METHOD, EPSILON, DELTA, REPETITION)
CPU_SECONDS = "cpu_seconds"
STATISTICS = ("mean ± sd", "mean", "median", "median (sd)", "median (quartiles)")
PLOT_KINDS = ("line", "bar")
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")


class Run:
    """A method of the registry, and what it is given.

    Args:
      kind: its name there.
      name: what tables call it; None: as the method itself says.
      sweep: setting -> values, of this method alone.
      settings: those of the command.
    """

    def __init__(
        self,
        kind: str = "select",
        *,
        name: str | None = None,
        sweep: Mapping[str, Sequence[Any]] | None = None,
        **settings: Any,
    ):
        self.kind, self.name, self.sweep, self.settings = kind, name, sweep or {}, settings


@dataclass(frozen=True)
class Variant:
    """A method as a line of tables names it.

    Attributes:
      label: the line's name.
      run: name of the method in the registry.
      settings: all that are given, sweeps apart.
      sweep: setting -> values.
    """

    label: str
    run: str
    settings: Mapping[str, Any]
    sweep: Mapping[str, Sequence[Any]]

    @property
    def method(self) -> Method:
        return methods()[self.run]

    def grid(self) -> Iterator[dict[str, Any]]:
        """All settings, for every point of the grid."""
        for values in itertools.product(*self.sweep.values()):
            yield {**self.settings, **dict(zip(self.sweep, values))}


@dataclass(frozen=True)
class Table:
    """A table: names of columns of the results; see lab/docs/how-to/evaluate.md."""

    title: str
    rows: Sequence[str] = (DATASET,)
    columns: str = METHOD
    value: str = "released"
    statistic: str = STATISTICS[0]
    where: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    best: str | None = None


@dataclass(frozen=True)
class Plot:
    """A figure: names of columns of the results; see lab/docs/how-to/evaluate.md."""

    name: str
    x: str
    y: Sequence[str] = ("released",)
    title: str = ""
    kind: str = "line"
    lines: str = METHOD
    panels: str | None = None
    log: Sequence[str] = ()
    statistic: str = "mean"
    where: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    best: str | None = None


@dataclass(frozen=True)
class Experiment:
    """What a file defines.

    Attributes:
      title: of its report.
      datasets: by name.
      budgets: (epsilon, delta).
      methods: what runs.
      sweep: setting -> values, for every method that has the setting and is not given it.
      seed, repetitions: of the keys.
      best: a setting whose value the last repetition chooses, for each dataset, method and budget by the largest first
        measure; the other repetitions run there alone.
      measures: names of measures, None for all.
      tables: None for one of each kind of method.
      path: of its file.
      absent: datasets that the folder does not hold, which are left out -> what is missing.
    """

    title: str
    datasets: Mapping[str, Source | Named]
    budgets: Sequence[tuple[float, float]]
    methods: Sequence[Run]
    sweep: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    repetitions: int = 1
    seed: int = 1
    best: str | None = None
    measures: Sequence[str] | None = None
    tables: Sequence[Table] | None = None
    plots: Sequence[Plot] = ()
    path: str = ""
    absent: Mapping[str, str] = field(default_factory=dict)

    @property
    def sources(self) -> Mapping[str, Source]:
        """The datasets, all of them found."""
        return {name: found for name, found in self.datasets.items() if isinstance(found, Source)}

    @cached_property
    def variants(self) -> list[Variant]:
        """The lines of methods, their settings checked by name."""
        used: set[str] = set()
        variants = [
            variant for place, run in enumerate(self.methods) for variant in self._lines(place, run, used)
        ]
        for name in self.sweep:
            if name not in used:
                self.refuse(f"sweep.{name}", "no method has this setting")
        labels = [variant.label for variant in variants]
        for label in labels:
            if labels.count(label) > 1:
                self.refuse("methods", f"two are named {label!r}; give each a name")
        return variants

    def _lines(self, place: int, run: Run, used: set[str]) -> Iterator[Variant]:
        key = f"methods[{place}]"
        self._known(key, run.kind, methods(), METHOD)
        method = methods()[run.kind]
        several = method.variants(run.settings)
        if several is None:
            several = {run.name or method.label(run.settings): run.settings}
        elif run.name is not None:
            self.refuse(key, "these are several methods, which have names of their own")
        for label, settings in several.items():
            try:
                with naming_arguments():
                    known = method.settings(settings)
            except InputError as error:
                self.refuse(f"{key} ({label})", str(error))
            for name in (*settings, *run.sweep):
                self._known(f"{key} ({label})", name, known, "setting")
            for name in run.sweep:
                if name in _RESERVED or name in settings:
                    why = (
                        "is set and swept" if name in settings else f"give a line of methods for each {name}"
                    )
                    self.refuse(f"{key}.sweep.{name}", why)
            over = {n: values for n, values in self.sweep.items() if n in known and n not in settings}
            used.update(over, (name for name in self.sweep if name in settings or name in run.sweep))
            yield Variant(label, run.kind, settings, {**over, **run.sweep})

    def cells(self) -> list[Cell]:
        """All cells; those of one dataset and key stand together, since they share what is prepared for them."""
        cells: list[Cell] = []
        for name, source in self.sources.items():
            for number in range(self.repetitions):
                for variant, measured in self._measured(source):
                    wanted = tuple(measure.name for measure in measured)
                    for settings, (epsilon, delta) in itertools.product(variant.grid(), self.budgets):
                        about = (name, variant.label, variant.run, settings, float(epsilon), float(delta))
                        cells.append(Cell(len(cells), *about, Repetition(self.seed, number), wanted))
        return cells

    def runs(self) -> int:
        """How many cells run: all, or fewer where `best` is set."""
        cells = self.cells()
        if self.best is None:
            return len(cells)
        alone = {cell.apart_from(self.best) for cell in cells}
        return len(cells) // self.repetitions + (self.repetitions - 1) * len(alone)

    def reads(self) -> list[str]:
        """Files and patterns of the experiment and its datasets."""
        return [self.path, *(path for source in self.sources.values() for path in source.reads())]

    def _measured(self, source: Source) -> Iterator[tuple[Variant, list[Measure]]]:
        """The variants that a dataset has the data for, and what is measured of each there."""
        for variant in self.variants:
            if variant.method.data in PROVIDED[source.kind]:
                yield variant, measures_of(variant.method.kind, self.measures, source.kind)

    def swept(self) -> tuple[str, ...]:
        """Names of all settings that any method is given, in the order of the file."""
        names = (name for variant in self.variants for name in (*variant.settings, *variant.sweep))
        return tuple(dict.fromkeys(name for name in names if name not in _RESERVED))

    def printed(self) -> list[Measure]:
        """All measures that a cell has."""
        measured = [part for source in self.sources.values() for _, part in self._measured(source)]
        wanted = {measure.name for part in measured for measure in part}
        return [measure for name, measure in measures().items() if name in wanted]

    def refuse(self, key: str, text: str) -> NoReturn:
        """Raises InputError: naming file and part."""
        raise SettingError(f"{self.path}: {key}: {text}")

    def _known(self, key: str, name: Any, known: Iterable[str], what: str) -> None:
        names = list(known)
        if name not in names:
            near = difflib.get_close_matches(str(name), names, n=1)
            hint = f"did you mean {near[0]}?" if near else f"one of {', '.join(names)}"
            self.refuse(key, f"unknown {what} {name!r}; {hint}")

    # What is checked without data

    def checked(self) -> Experiment:
        """The experiment with the default tables where it has none.

        Raises:
          InputError: a name that nothing has, or a budget or setting that a method refuses.
        """
        if self.repetitions < 1:
            self.refuse("repetitions", f"must be at least 1, got {self.repetitions}")
        for name in self.measures or ():
            self._known("measures", name, measures(), "measure")
        self._check_cells()
        if self.best is not None:
            self._check_best("best", self.best)
        whole = self if self.tables is not None else replace(self, tables=self._default_tables())
        for place, table in enumerate(whole.tables or ()):
            whole._check_view(f"tables[{place}]", table, (*table.rows, table.columns), [table.value])
        for place, plot in enumerate(whole.plots):
            columns = (plot.lines, *([] if plot.panels is None else [plot.panels]))
            whole._check_view(f"plots[{place}]", plot, columns, plot.y)
            whole._known(f"plots[{place}]", plot.kind, PLOT_KINDS, "kind")
            for axis in plot.log:
                whole._known(f"plots[{place}]", axis, ("x", "y"), "axis")
            whole._known(f"plots[{place}].x", plot.x, [*whole._columns(), *BINNED], "column")
            if not _FILE_NAME.fullmatch(plot.name) or [p.name for p in whole.plots].count(plot.name) > 1:
                whole.refuse(f"plots[{place}]", "its name must be of letters, digits and _.+-, and its own")
        # Nothing to draw where all data are absent: the report says what is left out.
        at_hand = [
            plot for plot in whole.plots if not set(plot.where.get(DATASET, [""])) <= set(whole.absent)
        ]
        return replace(whole, plots=at_hand)

    def _check_cells(self) -> None:
        """Calibrate every variant at every point of its grid and budget: refused now, not after hours."""
        kinds = {kind for source in self.sources.values() for kind in PROVIDED[source.kind]}
        points = 0
        for variant in self.variants:
            if variant.method.data not in kinds:
                self.refuse(
                    f"methods ({variant.label})", f"needs a dataset of {variant.method.data}: there is none"
                )
            if not measures_of(variant.method.kind, self.measures):
                self.refuse("measures", f"none of them applies to {variant.label}")
            for settings, (epsilon, delta) in itertools.product(variant.grid(), self.budgets):
                points += 1
                if points * self.repetitions * len(self.datasets) > MAX_CELLS:
                    self.refuse("sweep", f"more than {MAX_CELLS:,} runs")
                try:
                    with naming_arguments():
                        prepared(variant.run, float(epsilon), float(delta), settings)
                except (InputError, TypeError, ValueError) as error:
                    at = "".join(f" {name}={settings[name]}" for name in variant.sweep)
                    self.refuse(f"methods ({variant.label}{at})", str(error))

    def _columns(self) -> list[str]:
        facts = {name for source in self.sources.values() for name in source.facts}
        return [*_RESERVED, *self.swept(), *sorted(facts)]

    def _check_view(self, key: str, view: Table | Plot, columns: Iterable[str], shown: Iterable[str]) -> None:
        """Names of a table or plot."""
        for name in (*columns, *view.where):
            self._known(key, name, self._columns(), "column")
        for name in shown:
            self._known(key, name, [*(measure.name for measure in self.printed()), CPU_SECONDS], "measure")
        self._known(key, view.statistic, STATISTICS, "statistic")
        for name in view.where.get(DATASET, ()):
            self._known(f"{key}.where", name, [*self.datasets, *self.absent], DATASET)
        for name in view.where.get(METHOD, ()):
            self._known(f"{key}.where", name, [variant.label for variant in self.variants], METHOD)
        if view.best is not None:
            self._check_best(f"{key}.best", view.best)

    def _check_best(self, key: str, setting: str) -> None:
        """A setting that the last repetition chooses."""
        self._known(key, setting, self.swept(), "setting")
        if self.repetitions < 2:
            self.refuse(key, "the last repetition chooses: there must be at least 2 repetitions")

    def _default_tables(self) -> list[Table]:
        """The first measure of every kind of method, by dataset and what differs between cells."""
        names = [name for name in self.swept() if any(name in v.sweep for v in self.variants)]
        for name, values in zip((EPSILON, DELTA), zip(*self.budgets)):
            names += [name] * (len(set(values)) > 1)
        kinds = dict.fromkeys(variant.method.kind for variant in self.variants)
        shown = dict.fromkeys(measures_of(kind, self.measures)[0].name for kind in kinds)
        return [Table(name, [DATASET, *names], value=name) for name in shown]


def read_experiment(path: str, folder: str) -> Experiment:
    """The experiment that a file defines, checked.

    Args:
      folder: where datasets named by their folder lie.

    Raises:
      InputError: naming the file, and the line or part that is wrong.
    """
    if path.endswith((".yaml", ".yml")):
        raise SettingError(f"{path}: an experiment is a file of Python; see lab/docs/how-to/evaluate.md")
    try:
        found = runpy.run_path(path).get(NAME)
    except OSError as error:
        raise SettingError(f"cannot read '{path}': {error.strerror}") from None
    except Exception as error:  # of whatever the file does
        lines = [
            frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path
        ]
        line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else 1
        said = error.msg if isinstance(error, SyntaxError) else str(error)
        raise SettingError(f"{path}:{line}: {said or type(error).__name__}") from None
    if not isinstance(found, Experiment):
        raise SettingError(f"{path}: defines no {NAME}; see lab/docs/how-to/evaluate.md")
    experiment = replace(found, path=path)
    sources: dict[str, Source | Named] = {}
    absent: dict[str, str] = {}
    for name, dataset in found.datasets.items():
        try:
            sources[name] = dataset.at(folder)
        except AbsentError as error:
            absent[name] = str(error)
        except InputError as error:
            experiment.refuse(f"datasets.{name}", str(error))
    if not sources:
        name, reason = next(iter(absent.items()), ("", "there is none"))
        experiment.refuse(f"datasets.{name}".rstrip("."), reason)
    return replace(experiment, datasets=sources, absent=absent).checked()
