"""What an experiment file says: datasets, methods, budgets, sweeps, tables, plots; and the cells that follow from it.

A *cell* is one run: a dataset, a method with all its settings, a budget, a repetition. Everything that can be checked
without data is checked here; messages name the file and the key. A library of schemas would take the place of `_Reader`
alone: all else is names that other keys, the registries or the data must know.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from dpbeam.errors import InputError, naming_arguments
from dpbeam.io.spec import InputSpec
from dpbeam_lab.evaluation.data import PROVIDED, Repetition
from dpbeam_lab.evaluation.measures import BINNED, Measure, measures, measures_of
from dpbeam_lab.evaluation.methods import Method, methods
from dpbeam_lab.experiments.cells import Cell, prepared
from dpbeam_lab.experiments.sources import AbsentError, Source, sources_of

MAX_CELLS = 1_000_000
#: Columns of results that a table or plot may name, besides settings and what datasets say of themselves.
DATASET, METHOD, EPSILON, DELTA, REPETITION = "dataset", "method", "epsilon", "delta", "repetition"
_RESERVED = (DATASET, METHOD, EPSILON, DELTA, REPETITION)
CPU_SECONDS = "cpu_seconds"
STATISTICS = ("mean ± sd", "mean", "median", "median (sd)", "median (quartiles)")
PLOT_KINDS = ("line", "bar")
_KEYS = (
    "title",
    "seed",
    "repetitions",
    "datasets",
    "budgets",
    "methods",
    "sweep",
    "measures",
    "tables",
    "plots",
)
_TABLE_KEYS = ("title", "rows", "columns", "value", "statistic", "where", "best")
_PLOT_KEYS = ("name", "title", "kind", "x", "y", "lines", "panels", "log", "where", "statistic", "best")
_METHOD_KEYS = ("run", "name", "sweep")
_EXPONENT = re.compile(r"[+-]?\d+(\.\d*)?[eE][+-]?\d+")  # YAML 1.1 takes 1e-5 for a text
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")


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
    sweep: Mapping[str, tuple]

    @property
    def method(self) -> Method:
        return methods()[self.run]

    def grid(self) -> Iterator[dict[str, Any]]:
        """All settings, for every point of the grid."""
        for values in itertools.product(*self.sweep.values()):
            yield {**self.settings, **dict(zip(self.sweep, values))}


@dataclass(frozen=True)
class TableSpec:
    """A table: names of columns of the results; see lab/docs/how-to/evaluate.md."""

    title: str
    rows: tuple[str, ...]
    columns: str
    value: str
    statistic: str
    where: Mapping[str, tuple]
    best: str | None


@dataclass(frozen=True)
class PlotSpec:
    """A figure: names of columns of the results; see lab/docs/how-to/evaluate.md."""

    name: str
    title: str
    kind: str
    x: str
    y: tuple[str, ...]
    lines: str
    panels: str | None
    log: tuple[str, ...]
    statistic: str
    where: Mapping[str, tuple]
    best: str | None


@dataclass(frozen=True)
class Experiment:
    """A checked experiment.

    Attributes:
      path: of its file.
      title: of its report.
      seed, repetitions: of the keys.
      datasets: by name.
      budgets: (epsilon, delta).
      variants: lines of methods.
      chosen: names of measures, None for all.
      absent: datasets that the folder does not hold, which are left out -> what is missing.
    """

    path: str
    title: str
    seed: int
    repetitions: int
    datasets: Mapping[str, Source]
    budgets: tuple[tuple[float, float], ...]
    variants: tuple[Variant, ...]
    chosen: tuple[str, ...] | None
    tables: tuple[TableSpec, ...]
    plots: tuple[PlotSpec, ...]
    absent: Mapping[str, str]

    def cells(self) -> list[Cell]:
        """All cells; those of one dataset and key stand together, since they share what is prepared for them."""
        cells: list[Cell] = []
        for name, source in self.datasets.items():
            for number in range(self.repetitions):
                for variant, measured in self._measured(source):
                    wanted = tuple(measure.name for measure in measured)
                    for settings in variant.grid():
                        for epsilon, delta in self.budgets:
                            cells.append(
                                Cell(
                                    len(cells),
                                    name,
                                    variant.label,
                                    variant.run,
                                    settings,
                                    epsilon,
                                    delta,
                                    Repetition(self.seed, number),
                                    wanted,
                                )
                            )
        return cells

    def reads(self) -> list[str]:
        """Files and patterns of the experiment and its datasets."""
        return [self.path, *(path for source in self.datasets.values() for path in source.reads())]

    def _measured(self, source: Source) -> Iterator[tuple[Variant, list[Measure]]]:
        """The variants that a dataset has the data for, and what is measured of each there."""
        for variant in self.variants:
            if variant.method.data in PROVIDED[source.kind]:
                yield variant, measures_of(variant.method.kind, self.chosen, source.kind)

    def swept(self) -> tuple[str, ...]:
        """Names of all settings that any method is given, in the order of the file."""
        names = ([*variant.settings, *variant.sweep] for variant in self.variants)
        return tuple(
            dict.fromkeys(name for of_variant in names for name in of_variant if name not in _RESERVED)
        )

    def printed(self) -> list[Measure]:
        """All measures that a cell has."""
        wanted = {
            measure.name
            for source in self.datasets.values()
            for _, measured in self._measured(source)
            for measure in measured
        }
        return [measure for name, measure in measures().items() if name in wanted]


class _Reader:
    """Refuses what it does not know, naming file and key."""

    def __init__(self, path: str):
        self.path = path

    def refuse(self, key: str, text: str) -> NoReturn:
        raise InputError(f"{self.path}: {key}: {text}")

    def mapping(self, key: str, value: Any, known: Iterable[str] | None = None) -> dict[str, Any]:
        if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
            self.refuse(key, f"must map names to values, got {_shown(value)}")
        if known is not None:
            for name in value:
                self.known(key, name, known)
        return {name: number(item) for name, item in value.items()}

    def known(self, key: str, name: Any, known: Iterable[str], what: str = "key") -> None:
        names = list(known)
        if name not in names:
            near = difflib.get_close_matches(str(name), names, n=1)
            hint = f"did you mean {near[0]}?" if near else f"one of {', '.join(names)}"
            self.refuse(key, f"unknown {what} {_shown(name)}; {hint}")

    def items(self, key: str, value: Any) -> list[Any]:
        if not isinstance(value, list) or not value:
            self.refuse(key, f"must be a list, got {_shown(value)}")
        return [number(item) for item in value]

    def integer(self, key: str, value: Any, low: int, high: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            self.refuse(key, f"must be an integer from {low} to {high}, got {_shown(value)}")
        return value

    def text(self, key: str, value: Any) -> str:
        if not isinstance(value, str) or not value:
            self.refuse(key, f"must be a text, got {_shown(value)}")
        return value


def number(value: Any) -> Any:
    """A value as it was meant: 1e-5 is a number, here and inside of lists."""
    if isinstance(value, list):
        return [number(item) for item in value]
    return float(value) if isinstance(value, str) and _EXPONENT.fullmatch(value) else value


def _shown(value: Any) -> str:
    return repr(value)[:60]


def parse_experiment(
    path: str, values: Any, input_of: Callable[[Mapping[str, Any], str], InputSpec], folder: str
) -> Experiment:
    """The experiment of a file.

    Args:
      path: of the file, for messages.
      values: what it holds.
      input_of: (flags of the input, place for messages) -> what to read.
      folder: where datasets named by their folder lie.

    Raises:
      InputError: naming file and key.
    """
    reader = _Reader(path)
    if not isinstance(values, dict):
        raise InputError(
            f"{path}: an experiment maps datasets, budgets and methods; see lab/docs/how-to/evaluate.md"
        )
    about = reader.mapping("file", values, _KEYS)
    for key in ("datasets", "budgets", "methods"):
        if key not in about:
            reader.refuse(key, "is missing")
    datasets, absent = _datasets(reader, about["datasets"], input_of, folder)
    chosen = _chosen(reader, about.get("measures"))
    experiment = Experiment(
        path,
        reader.text("title", about.get("title", "Experiment")),
        reader.integer("seed", about.get("seed", 1), 0, 2**31),
        reader.integer("repetitions", about.get("repetitions", 1), 1, 10_000),
        datasets,
        _budgets(reader, about["budgets"]),
        _variants(reader, about["methods"], about.get("sweep", {})),
        chosen,
        (),
        (),
        absent,
    )
    _check_cells(reader, experiment)
    return replace(
        experiment,
        tables=_tables(reader, about.get("tables"), experiment),
        plots=_plots(reader, about.get("plots"), experiment),
    )


def _datasets(
    reader: _Reader, value: Any, input_of: Callable[[Mapping[str, Any], str], InputSpec], folder: str
) -> tuple[dict[str, Source], dict[str, str]]:
    """The datasets at hand, and what is missing of the others: a file may name more than a reader has."""
    named = reader.mapping("datasets", value)
    if not named:
        reader.refuse("datasets", "there is none")
    sources: dict[str, Source] = {}
    absent: dict[str, str] = {}
    for name, about in named.items():
        key = f"datasets.{name}"
        try:
            for suffix, source in sources_of(reader.mapping(key, about), input_of, folder).items():
                sources[name + suffix] = source
        except AbsentError as error:
            absent[name] = str(error)
        except InputError as error:
            if str(error).startswith(reader.path):
                raise
            reader.refuse(key, str(error))
    if not sources:
        name, reason = next(iter(absent.items()))
        reader.refuse(f"datasets.{name}", reason)
    return sources, absent


def _chosen(reader: _Reader, value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    names = reader.items("measures", value)
    for name in names:
        reader.known("measures", name, measures(), "measure")
    return tuple(names)


def _budgets(reader: _Reader, value: Any) -> tuple[tuple[float, float], ...]:
    listed = value if isinstance(value, list) else [value]
    budgets: list[tuple[float, float]] = []
    for place, item in enumerate(listed):
        key = f"budgets[{place}]" if isinstance(value, list) else "budgets"
        budget = reader.mapping(key, item, ("epsilon", "delta"))
        parts = []
        for name in ("epsilon", "delta"):
            if name not in budget:
                reader.refuse(key, f"{name} is missing")
            several = budget[name] if isinstance(budget[name], list) else [budget[name]]
            for one in several:
                if isinstance(one, bool) or not isinstance(one, int | float):
                    reader.refuse(f"{key}.{name}", f"must be a number, got {_shown(one)}")
            parts.append([float(one) for one in several])
        budgets += [(epsilon, delta) for epsilon in parts[0] for delta in parts[1]]
    return tuple(dict.fromkeys(budgets))


def _sweep(reader: _Reader, key: str, value: Any) -> dict[str, tuple]:
    grid = reader.mapping(key, value)
    return {name: tuple(reader.items(f"{key}.{name}", values)) for name, values in grid.items()}


def _variants(reader: _Reader, value: Any, sweep: Any) -> tuple[Variant, ...]:
    shared = _sweep(reader, "sweep", sweep)
    used: set[str] = set()
    variants: list[Variant] = []
    for place, item in enumerate(reader.items("methods", value)):
        key = f"methods[{place}]"
        about = reader.mapping(key, item)
        run = about.get("run", "select")
        reader.known(f"{key}.run", run, methods(), "method")
        own_settings = {name: part for name, part in about.items() if name not in _METHOD_KEYS}
        own = _sweep(reader, f"{key}.sweep", about.get("sweep", {}))
        several = methods()[run].variants(own_settings)
        if several is None:
            label = about.get("name", methods()[run].label(own_settings))
            several = {reader.text(f"{key}.name", label): own_settings}
        elif "name" in about:
            reader.refuse(f"{key}.name", "these are several methods, which have names of their own")
        for label, settings in several.items():
            variants.append(_variant(reader, key, label, run, settings, own, shared, used))
    for name in shared:
        if name not in used:
            reader.refuse(f"sweep.{name}", "no method has this setting")
    for label in {variant.label for variant in variants}:
        if sum(variant.label == label for variant in variants) > 1:
            reader.refuse("methods", f"two are named {label!r}; give each a name")
    return tuple(variants)


def _variant(
    reader: _Reader,
    key: str,
    label: str,
    run: str,
    settings: Mapping[str, Any],
    own: dict[str, tuple],
    shared: dict[str, tuple],
    used: set[str],
) -> Variant:
    try:
        with naming_arguments():
            known = methods()[run].settings(settings)
    except InputError as error:
        reader.refuse(f"{key} ({label})", str(error))
    for name in (*settings, *own):
        reader.known(f"{key} ({label})", name, [*known, *_METHOD_KEYS], "setting")
    for name in own:
        if name in _RESERVED:
            reader.refuse(
                f"{key}.sweep.{name}", f"is no setting to sweep: give a line of methods for each {name}"
            )
        if name in settings:
            reader.refuse(f"{key}.sweep.{name}", "is set and swept")
    over = {name: values for name, values in shared.items() if name in known and name not in settings}
    used.update(over, (name for name in shared if name in settings or name in own))
    return Variant(label, run, settings, {**over, **own})


def _check_cells(reader: _Reader, experiment: Experiment) -> None:
    """Calibrate every variant at every point of its grid and budget: refused now, not after hours."""
    kinds = {kind for source in experiment.datasets.values() for kind in PROVIDED[source.kind]}
    points = 0
    for variant in experiment.variants:
        if variant.method.data not in kinds:
            reader.refuse(
                f"methods ({variant.label})", f"needs a dataset of {variant.method.data}: there is none"
            )
        if not measures_of(variant.method.kind, experiment.chosen):
            reader.refuse("measures", f"none of them applies to {variant.label}")
        for settings in variant.grid():
            for epsilon, delta in experiment.budgets:
                points += 1
                if points * experiment.repetitions * len(experiment.datasets) > MAX_CELLS:
                    reader.refuse("sweep", f"more than {MAX_CELLS:,} runs")
                try:
                    with naming_arguments():
                        prepared(variant.run, epsilon, delta, settings)
                except (InputError, TypeError, ValueError) as error:
                    at = "".join(f" {name}={settings[name]}" for name in variant.sweep)
                    reader.refuse(f"methods ({variant.label}{at})", str(error))


# Tables and plots


def _columns(experiment: Experiment) -> list[str]:
    facts = {name for source in experiment.datasets.values() for name in source.facts}
    return [DATASET, METHOD, EPSILON, DELTA, REPETITION, *experiment.swept(), *sorted(facts)]


def _values(experiment: Experiment) -> list[str]:
    return [*(measure.name for measure in experiment.printed()), CPU_SECONDS]


def _names(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _where(reader: _Reader, key: str, value: Any, experiment: Experiment) -> dict[str, tuple]:
    about = reader.mapping(key, value)
    for name in about:
        reader.known(key, name, _columns(experiment), "column")
    where = {name: tuple(_names(values)) for name, values in about.items()}
    for one in where.get(DATASET, ()):
        reader.known(f"{key}.{DATASET}", one, [*experiment.datasets, *experiment.absent], DATASET)
    for one in where.get(METHOD, ()):
        reader.known(f"{key}.{METHOD}", one, [variant.label for variant in experiment.variants], METHOD)
    return where


def _best(reader: _Reader, key: str, about: dict[str, Any], experiment: Experiment) -> str | None:
    best = about.get("best")
    if best is None:
        return None
    reader.known(f"{key}.best", best, experiment.swept(), "setting")
    if experiment.repetitions < 2:
        reader.refuse(
            f"{key}.best", "the first repetition chooses, so that there must be at least 2 repetitions"
        )
    return str(best)


def _tables(reader: _Reader, value: Any, experiment: Experiment) -> tuple[TableSpec, ...]:
    if value is None:
        kinds = dict.fromkeys(variant.method.kind for variant in experiment.variants)
        shown = [measures_of(kind, experiment.chosen)[0].name for kind in kinds]
        rows = [DATASET, *_varied(experiment)]
        value = [{"rows": rows, "columns": METHOD, "value": name} for name in dict.fromkeys(shown)]
    tables = []
    for place, item in enumerate(value if value == [] else reader.items("tables", value)):
        key = f"tables[{place}]"
        about = reader.mapping(key, item, _TABLE_KEYS)
        rows = _names(about.get("rows", DATASET))
        columns, shown = about.get("columns", METHOD), about.get("value", "released")
        for name in (*rows, columns):
            reader.known(key, name, _columns(experiment), "column")
        reader.known(f"{key}.value", shown, _values(experiment), "measure")
        statistic = about.get("statistic", STATISTICS[0])
        reader.known(f"{key}.statistic", statistic, STATISTICS, "statistic")
        tables.append(
            TableSpec(
                reader.text(f"{key}.title", about.get("title", shown)),
                tuple(rows),
                columns,
                shown,
                statistic,
                _where(reader, f"{key}.where", about.get("where", {}), experiment),
                _best(reader, key, about, experiment),
            )
        )
    return tuple(tables)


def _varied(experiment: Experiment) -> list[str]:
    """What differs between cells, besides dataset, method and repetition."""
    names = [name for name in experiment.swept() if any(name in v.sweep for v in experiment.variants)]
    for name, values in zip((EPSILON, DELTA), zip(*experiment.budgets)):
        if len(set(values)) > 1:
            names.append(name)
    return names


def _plots(reader: _Reader, value: Any, experiment: Experiment) -> tuple[PlotSpec, ...]:
    if value is None:
        return ()
    plots: list[PlotSpec] = []
    for place, item in enumerate(reader.items("plots", value)):
        key = f"plots[{place}]"
        about = reader.mapping(key, item, _PLOT_KEYS)
        name = reader.text(f"{key}.name", about.get("name", ""))
        if not _NAME.fullmatch(name) or any(plot.name == name for plot in plots):
            reader.refuse(f"{key}.name", "must be of letters, digits and _.+-, and name one plot")
        kind = about.get("kind", "line")
        reader.known(f"{key}.kind", kind, PLOT_KINDS, "kind")
        x = reader.text(f"{key}.x", about.get("x"))
        reader.known(f"{key}.x", x, [*_columns(experiment), *BINNED], "column")
        shown = _names(about.get("y", "released"))
        for one in shown:
            reader.known(f"{key}.y", one, _values(experiment), "measure")
        lines, panels = about.get("lines", METHOD), about.get("panels")
        reader.known(f"{key}.lines", lines, _columns(experiment), "column")
        if panels is not None:
            reader.known(f"{key}.panels", panels, _columns(experiment), "column")
        log = _names(about.get("log", []))
        for axis in log:
            reader.known(f"{key}.log", axis, ("x", "y"), "axis")
        statistic = about.get("statistic", "mean")
        reader.known(f"{key}.statistic", statistic, ("mean", "median"), "statistic")
        where = _where(reader, f"{key}.where", about.get("where", {}), experiment)
        best = _best(reader, key, about, experiment)
        if where.get(DATASET) and set(where[DATASET]) <= set(experiment.absent):
            continue  # nothing to draw: the report says what is left out
        plots.append(
            PlotSpec(
                name,
                str(about.get("title", "")),
                kind,
                x,
                tuple(shown),
                lines,
                panels,
                tuple(log),
                statistic,
                where,
                best,
            )
        )
    return tuple(plots)
