"""Results of an experiment as rows, one per number, and as Parquet. NOT PRIVATE."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dpbeam_lab.evaluation.measures import Bin
from dpbeam_lab.evaluation.registry import methods
from dpbeam_lab.experiments.define import CPU_SECONDS, DATASET, DELTA, EPSILON, METHOD, REPETITION
from dpbeam_lab.experiments.running import Finished

NOT_PRIVATE = "not private: for public or test data"
_MEASURE, _LOW, _HIGH, _VALUE = "measure", "users_from", "users_to", "value"


@dataclass(frozen=True)
class Row:
    """One cell: what tables and plots choose and group by, and its numbers.

    Attributes:
      columns: dataset, method, budget, repetition, settings, facts of the data; None for a setting not given.
      values: measure -> number; cpu_seconds too.
      bins: measure -> number per bin; see `lab/dpbeam_lab/evaluation/measures.py`.
      parallel: whether the method could be run on a cluster.
    """

    columns: Mapping[str, Any]
    values: Mapping[str, float]
    bins: Mapping[str, Mapping[Bin, float]]
    parallel: bool = True


def rows_of(finished: Finished) -> list[Row]:
    """A row per cell, in the order of the cells."""
    rows = []
    swept = finished.experiment.swept()
    for cell, result in zip(finished.cells, finished.results):
        columns = {
            DATASET: cell.dataset,
            METHOD: cell.label,
            EPSILON: cell.epsilon,
            DELTA: cell.delta,
            REPETITION: cell.repetition.number,
            **{name: cell.settings.get(name) for name in swept},
            **finished.facts[cell.dataset],
        }
        values = {CPU_SECONDS: result["cpu_seconds"]}
        bins: dict[str, dict[Bin, float]] = {}
        for name, low, high, value in result["values"]:
            if low is None:
                values[name] = value
            else:
                bins.setdefault(name, {})[low, high] = value
        rows.append(Row(columns, values, bins, methods()[cell.run].parallel))
    return rows


def to_table(finished: Finished) -> pa.Table:
    """One row per number: columns of its cell, measure, bin, value; `cpu_seconds` of its cell last."""
    listed: list[dict[str, Any]] = []
    swept = finished.experiment.swept()
    for row, cell in zip(rows_of(finished), finished.cells):
        settings = {name: _plain(cell.settings.get(name)) for name in swept}
        about = {**row.columns, "run": cell.run, **settings}
        seconds = row.values[CPU_SECONDS]
        for name in cell.measures:
            if name in row.values:
                listed.append(
                    {
                        **about,
                        _MEASURE: name,
                        _LOW: None,
                        _HIGH: None,
                        _VALUE: row.values[name],
                        CPU_SECONDS: seconds,
                    }
                )
            for (low, high), value in row.bins.get(name, {}).items():
                listed.append(
                    {**about, _MEASURE: name, _LOW: low, _HIGH: high, _VALUE: value, CPU_SECONDS: seconds}
                )
    facts = list(dict.fromkeys(name for of_dataset in finished.facts.values() for name in of_dataset))
    fields = [
        (DATASET, pa.string()),
        (METHOD, pa.string()),
        ("run", pa.string()),
        (EPSILON, pa.float64()),
        (DELTA, pa.float64()),
        (REPETITION, pa.int64()),
        *((name, _type_of([row[name] for row in listed])) for name in swept),
        *((name, _type_of([row.get(name) for row in listed])) for name in facts),
        (_MEASURE, pa.string()),
        (_LOW, pa.int64()),
        (_HIGH, pa.int64()),
        (_VALUE, pa.float64()),
        (CPU_SECONDS, pa.float64()),
    ]
    schema = pa.schema(fields, metadata={"dpbeam": NOT_PRIVATE})
    columns = [pa.array([_cast(row.get(name), kind) for row in listed], kind) for name, kind in fields]
    return pa.Table.from_arrays(columns, schema=schema)


def _plain(value: Any) -> Any:
    """A setting as a cell of a table."""
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else value


def _type_of(values: Sequence[Any]) -> pa.DataType:
    """The type of a column of settings: whole numbers, numbers, truth values, or texts."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {bool} and kinds:
        return pa.bool_()
    if kinds <= {int}:
        return pa.int64()
    return pa.float64() if kinds <= {int, float} else pa.string()


def _cast(value: Any, kind: pa.DataType) -> Any:
    return str(value) if value is not None and pa.types.is_string(kind) else value


# Choosing and grouping


def chosen(rows: Sequence[Row], where: Mapping[str, Sequence[Any]]) -> list[Row]:
    """The rows whose columns have one of the values asked for."""
    return [row for row in rows if all(row.columns.get(name) in values for name, values in where.items())]


def at_best(rows: Sequence[Row], setting: str, value: str) -> list[Row]:
    """The rows at the best of a setting, for every method, dataset and budget: the one of the largest value.

    The last repetition chooses and is left out, so that what is shown was not chosen by its own noise: it chooses among
    values that others ran at (`Experiment.best`). Methods without the setting keep all other repetitions.
    """
    last = max((row.columns[REPETITION] for row in rows), default=0)
    others = {
        (_without(row, setting), row.columns[setting]) for row in rows if row.columns[REPETITION] < last
    }
    groups: dict[tuple, dict[Any, float]] = {}
    for row in rows:
        group, at = _without(row, setting), row.columns[setting]
        if row.columns[REPETITION] == last and value in row.values and (group, at) in others:
            groups.setdefault(group, {})[at] = row.values[value]
    best = {group: max(by_setting, key=lambda at: by_setting[at]) for group, by_setting in groups.items()}
    return [
        row
        for row in rows
        if row.columns[REPETITION] < last and row.columns[setting] == best.get(_without(row, setting), ...)
    ]


def _without(row: Row, setting: str) -> tuple:
    return tuple(
        (name, _plain(value)) for name, value in row.columns.items() if name not in (setting, REPETITION)
    )


def summary(values: Sequence[float], statistic: str) -> tuple[float, float]:
    """(centre, spread) of the values of repetitions: mean or median, with the standard deviation."""
    centre = statistics.median(values) if statistic.startswith("median") else math.fsum(values) / len(values)
    return centre, statistics.stdev(values) if len(values) > 1 else 0.0


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    """First and third quartile, between the two nearest values."""
    if len(values) == 1:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high
