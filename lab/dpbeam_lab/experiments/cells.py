"""One cell of an experiment, and how a worker runs it. No file formats and no Beam: workers start fast."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpbeam.version import __version__
from dpbeam_lab.evaluation.data import Data, Repetition, open_data
from dpbeam_lab.evaluation.measures import Case
from dpbeam_lab.evaluation.methods import Prepared
from dpbeam_lab.evaluation.registry import measures, methods, run

#: Every repetition and dataset comes back to the same plans, which take up to a second each.
_PLANS = 512
Result = Mapping[str, Any]
"""`values`: [measure, least users or None, most users or None, value] of each number; `cpu_seconds`."""


@dataclass(frozen=True)
class Cell:
    """One run.

    Attributes:
      number: its place in the experiment.
      dataset: name of the dataset.
      label, run, settings: of the method.
      epsilon, delta: the budget.
      repetition: its keys.
      measures: names of what is measured.
    """

    number: int
    dataset: str
    label: str
    run: str
    settings: Mapping[str, Any]
    epsilon: float
    delta: float
    repetition: Repetition
    measures: tuple[str, ...]

    def digest(self, data: str) -> str:
        """What the result follows from; `data`: digest of the dataset. Labels and places do not belong to it."""
        about = {
            "version": __version__,
            "data": data,
            "run": self.run,
            "settings": self.settings,
            "budget": [self.epsilon, self.delta],
            "keys": [self.repetition.seed, self.repetition.number],
            "measures": self.measures,
        }
        return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()

    def apart_from(self, setting: str) -> tuple:
        """What cells have in common that differ in this setting and in their keys alone."""
        others = {name: value for name, value in self.settings.items() if name != setting}
        return self.dataset, self.label, json.dumps(others), self.epsilon, self.delta

    def __str__(self) -> str:
        settings = "".join(f" {name}={value}" for name, value in self.settings.items())
        budget = f"epsilon={self.epsilon:g} delta={self.delta:g}"
        return f"{self.dataset}: {self.label}{settings} {budget} repetition={self.repetition.number}"


@dataclass(frozen=True)
class Task:
    """A cell, and where its data lie."""

    cell: Cell
    kind: str
    folder: str


def run_task(task: Task) -> Result:
    """Run a cell; the data stay open for the next one."""
    return run_cell(task.cell, _open_data(task.kind, task.folder))


@functools.lru_cache(maxsize=1)
def _open_data(kind: str, folder: str) -> Data:
    return open_data(kind, folder)


def forget() -> None:
    """Let go of the data."""
    _open_data.cache_clear()


def prepared(name: str, epsilon: float, delta: float, settings: Mapping[str, Any]) -> Prepared:
    """A calibrated method, remembered.

    Raises:
      InputError: naming a setting.
    """
    return _prepared(name, epsilon, delta, json.dumps(dict(settings)))


@functools.lru_cache(maxsize=_PLANS)
def _prepared(name: str, epsilon: float, delta: float, settings: str) -> Prepared:
    return methods()[name].prepare(epsilon, delta, json.loads(settings))


def run_cell(cell: Cell, data: Data) -> Result:
    """One run and its measures, as the journal keeps them."""
    method = prepared(cell.run, cell.epsilon, cell.delta, cell.settings)
    outcome, seconds = run(method, data, cell.repetition)
    case = Case(data, outcome, cell.epsilon, cell.delta, cell.settings)
    values: list[list[Any]] = []
    for name in cell.measures:
        measured = measures()[name].compute(case)
        if isinstance(measured, Mapping):
            values += [[name, low, high, float(value)] for (low, high), value in measured.items()]
        else:
            values.append([name, None, None, float(measured)])
    return {"values": values, "cpu_seconds": round(seconds, 4)}
