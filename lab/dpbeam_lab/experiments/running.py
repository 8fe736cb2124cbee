"""Runs the cells of an experiment that are not finished, on all cores, and returns the results of all.

Each dataset is read once, in a process of its own, and kept as files that workers map: they hold the blocks of their
own cells, and share the rest. How many run at once follows from the memory that is free.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dpbeam.errors import InputError
from dpbeam_lab.experiments.cells import Cell, Result, Task, forget, run_task
from dpbeam_lab.experiments.define import Experiment
from dpbeam_lab.experiments.folders import owned_folder
from dpbeam_lab.experiments.journal import Journal
from dpbeam_lab.experiments.workers import run_tasks

#: A worker keeps two sets of blocks of 150 bytes a pair (docs/architecture.md); the rest is room for the method.
BYTES_PER_PAIR = 400
BYTES_PER_WORKER = 300_000_000
_SHARE_OF_MEMORY = 0.6


@dataclass(frozen=True)
class Finished:
    """An experiment and its results.

    Attributes:
      experiment: what was run.
      cells: in order, and results: of each.
      facts: dataset -> what it says of itself.
    """

    experiment: Experiment
    cells: list[Cell]
    results: list[Result]
    facts: Mapping[str, Mapping[str, float]]


def run_experiment(
    experiment: Experiment,
    journal: Journal,
    jobs: int | None = None,
    begin: Callable[[int, int], None] = lambda total, finished: None,
    advance: Callable[[Cell], None] = lambda cell: None,
) -> Finished:
    """Run what is not in the journal.

    Args:
      journal: of finished cells.
      jobs: processes, at most; None: one per core, fewer where memory is short.
      begin: called with how many cells there are, and how many are finished.
      advance: called after every cell that is finished.

    Raises:
      InputError: a dataset that cannot be read, or a method that refuses the data.
      TaskError, WorkerDiedError: a method fails.
    """
    digests = {}
    for dataset, source in experiment.sources.items():
        with _naming(dataset):
            digests[dataset] = source.digest()
    cells = experiment.cells()
    names = [cell.digest(digests[cell.dataset]) for cell in cells]
    facts: dict[str, Mapping[str, float]] = {}
    begin(experiment.runs(), sum(name in journal.results for name in names))

    def result(cell: Cell) -> Result | None:
        return journal.results.get(names[cell.number])

    kept: list[Cell] = []
    for dataset, source in experiment.sources.items():
        known = journal.results.get(_facts_key(digests[dataset]))
        own = [cell for cell in cells if cell.dataset == dataset]

        def missing(own: list[Cell] = own) -> list[Cell]:
            return [cell for cell in _wanted(own, experiment.best, result) if result(cell) is None]

        if known is not None and not missing():
            facts[dataset] = known
            kept += _wanted(own, experiment.best, result)
            continue
        with owned_folder() as folder:
            with _naming(dataset):
                data = source.load()
            data.save(folder)
            facts[dataset] = data.facts()
            del data
            if known is None:
                journal.add(_facts_key(digests[dataset]), facts[dataset])
            count = processes(_pairs(facts[dataset]), jobs)
            while todo := sorted(missing(), key=_by_blocks):
                tasks = [Task(cell, source.kind, folder) for cell in todo]
                for number, values in run_tasks(run_task, tasks, count, lambda task: str(task.cell)):
                    journal.add(names[todo[number].number], values)
                    advance(todo[number])
            forget()
        kept += _wanted(own, experiment.best, result)
    return Finished(experiment, kept, [journal.results[names[cell.number]] for cell in kept], facts)


def _wanted(cells: list[Cell], setting: str | None, result: Callable[[Cell], Result | None]) -> list[Cell]:
    """The cells of a dataset that are to run.

    With `Experiment.best` these are those of the last repetition until all of them are finished, and then those of the
    other repetitions too where the setting has the value that it chose.
    """
    if setting is None:
        return cells
    last = max(cell.repetition.number for cell in cells)
    best: dict[tuple, tuple[float, Any]] = {}
    for cell in (cell for cell in cells if cell.repetition.number == last):
        finished = result(cell)
        if finished is None:
            return [cell for cell in cells if cell.repetition.number == last]
        value, group = finished["values"][0][-1], cell.apart_from(setting)
        if group not in best or value > best[group][0]:
            best[group] = value, cell.settings.get(setting)
    return [
        cell
        for cell in cells
        if cell.repetition.number == last or cell.settings.get(setting) == best[cell.apart_from(setting)][1]
    ]


def _by_blocks(cell: Cell) -> tuple[int, int]:
    """An order in which cells of one key and D0 share the blocks that are built for them."""
    return cell.repetition.number, cell.settings.get("max_items_per_user") or 0


@contextlib.contextmanager
def _naming(dataset: str) -> Iterator[None]:
    """Refusals within name the dataset."""
    try:
        yield
    except InputError as error:
        raise type(error)(f"datasets.{dataset}: {error}") from None


def _facts_key(digest: str) -> str:
    return f"data {digest}"


def _pairs(facts: Mapping[str, float]) -> int:
    """What memory grows with: pairs, demands, or items of a histogram."""
    if "users" in facts:
        return int(facts["entries"])
    return int(facts["items"] if "items" in facts else facts["agents"] * facts["resources"])


def processes(pairs: int, jobs: int | None) -> int:
    """How many processes run cells of so many pairs at once."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 2**32
    fit = int(_SHARE_OF_MEMORY * free / (BYTES_PER_WORKER + BYTES_PER_PAIR * pairs))
    return max(1, min(jobs or cores, fit))
