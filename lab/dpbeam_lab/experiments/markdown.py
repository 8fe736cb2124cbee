"""The report of an experiment in Markdown: what was run, tables, plots, and what each measure means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpbeam_lab.evaluation.registry import measures
from dpbeam_lab.experiments.define import CPU_SECONDS, METHOD, Experiment, Table
from dpbeam_lab.experiments.results import NOT_PRIVATE, Row, at_best, chosen, quartiles, rows_of, summary
from dpbeam_lab.experiments.running import Finished
from dpbeam_lab.tables import markdown_table

_SECONDS_MEANING = (
    "CPU seconds of a run in process, on one core, without reading, sampling and building of blocks"
)


def report(finished: Finished, figures: Sequence[tuple[str, str]]) -> str:
    """The whole report.

    Args:
      figures: (title, file beside the report).
    """
    experiment = finished.experiment
    rows = rows_of(finished)
    parts = [f"# {experiment.title}", _head(experiment), _datasets(finished)]
    for spec in experiment.tables or ():
        parts += [f"## {spec.title}", *_notes(spec), table(rows, spec)]
    for title, file in figures:
        parts.append(f"![{title}]({file})")
    parts += ["## Measures", _meanings(experiment)]
    return "\n\n".join(parts) + "\n"


def _head(experiment: Experiment) -> str:
    keys = f"test keys `evaluate {experiment.seed} 0`"
    if experiment.repetitions > 1:
        keys += f" to `evaluate {experiment.seed} {experiment.repetitions - 1}`"
    budgets = ", ".join(f"({epsilon:g}, {delta:g})" for epsilon, delta in experiment.budgets)
    lines = [
        f"**{NOT_PRIVATE[0].upper()}{NOT_PRIVATE[1:]}.** Results are held against the truth, with test keys.",
        "",
        f"Repetitions: {experiment.repetitions}, {keys}. (epsilon, delta): {budgets}.",
    ]
    alone = [v.label for v in experiment.variants if not v.method.parallel]
    if alone:
        lines += ["", f"Not parallel, for comparison only: {', '.join(alone)}."]
    notes = dict.fromkeys((v.label, v.method.note) for v in experiment.variants if v.method.note)
    lines += [line for label, note in notes for line in ("", f"{label}: {note}.")]
    return "\n".join(lines)


def _datasets(finished: Finished) -> str:
    names = list(dict.fromkeys(name for facts in finished.facts.values() for name in facts))
    lines = [
        [dataset, *(_count(facts.get(name)) for name in names)] for dataset, facts in finished.facts.items()
    ]
    grid = markdown_table(["dataset", *names], lines)
    absent = finished.experiment.absent
    return f"{grid}\n\nNot at hand, and left out: {', '.join(absent)}." if absent else grid


def _count(value: float | None) -> str:
    return "" if value is None else f"{value:,}"


def _notes(spec: Table) -> list[str]:
    unit = "seconds" if spec.value == CPU_SECONDS else measures()[spec.value].unit
    text = f"`{spec.value}`, in {unit}; {spec.statistic} of repetitions"
    if spec.best is not None:
        text += f", at the best {spec.best} (in brackets): the last repetition chooses and is left out"
    return [text + "."]


def table(rows: Sequence[Row], spec: Table) -> str:
    """One table; cells without runs are empty."""
    rows = chosen(rows, spec.where)
    if spec.best is not None:
        rows = at_best(rows, spec.best, spec.value)
    rows = [row for row in rows if spec.value in row.values]
    cells: dict[tuple[tuple, Any], list[Row]] = {}
    for row in rows:
        place = tuple(named(row, name) for name in spec.rows)
        cells.setdefault((place, named(row, spec.columns)), []).append(row)
    places = list(dict.fromkeys(place for place, _ in cells))
    columns = list(dict.fromkeys(column for _, column in cells))
    title = "" if spec.columns == METHOD else f"{spec.columns} "
    head = [*spec.rows, *(title + column for column in columns)]
    lines = [
        [*place, *(_cell(cells.get((place, column), []), spec) for column in columns)] for place in places
    ]
    return markdown_table(head, lines)


def named(row: Row, column: str) -> str:
    """A value of a row for people; a method that no cluster can run is marked."""
    text = shown(row.columns.get(column))
    return text if column != METHOD or row.parallel else f"{text} (not parallel)"


def _cell(rows: Sequence[Row], spec: Table) -> str:
    if not rows:
        return ""
    values = [row.values[spec.value] for row in rows]
    centre, spread = summary(values, spec.statistic)
    text = figure(centre)
    if "±" in spec.statistic:
        text += f" ± {_spread(spread, centre)}"
    elif "quartiles" in spec.statistic:
        low, high = quartiles(values)
        text += f" ({figure(low)}..{figure(high)})"
    elif "(sd)" in spec.statistic:
        text += f" ({_spread(spread, centre)})"
    if spec.best is not None:
        at = rows[0].columns[spec.best]
        text += "" if at is None else f" ({shown(at)})"
    return text


def figure(value: float) -> str:
    """A number for people: whole from 100 on, else three figures."""
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def _spread(value: float, centre: float) -> str:
    return f"{value:,.0f}" if abs(centre) >= 100 or abs(value) >= 9.5 else f"{value:.1g}"


def shown(value: Any) -> str:
    """A setting, budget or name as a table shows it."""
    if value is None:
        return "default"
    if isinstance(value, float):
        return f"{value:g}"
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _meanings(experiment: Experiment) -> str:
    lines = [[f"`{m.name}`", m.unit, m.meaning] for m in experiment.printed()]
    return markdown_table(
        ["measure", "unit", "meaning"], [*lines, [f"`{CPU_SECONDS}`", "seconds", _SECONDS_MEANING]]
    )
