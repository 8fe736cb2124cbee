"""Runs the cells of an experiment that are not finished, on all cores, and returns the results of all.

Each dataset is read once, in a process of its own, and kept as files that workers map: they hold the blocks of their
own cells, and share the rest. How many run at once follows from the memory that is free.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

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
    begin(len(cells), sum(name in journal.results for name in names))
    for dataset, source in experiment.sources.items():
        known = journal.results.get(_facts_key(digests[dataset]))
        todo = {
            name: cell
            for name, cell in zip(names, cells)
            if cell.dataset == dataset and name not in journal.results
        }
        if known is not None and not todo:
            facts[dataset] = known
            continue
        with owned_folder() as folder:
            with _naming(dataset):
                data = source.load()
            data.save(folder)
            facts[dataset] = data.facts()
            del data
            if known is None:
                journal.add(_facts_key(digests[dataset]), facts[dataset])
            tasks = [Task(cell, source.kind, folder) for cell in todo.values()]
            count = processes(_pairs(facts[dataset]), jobs)
            for number, result in run_tasks(run_task, tasks, count, lambda task: str(task.cell)):
                journal.add(list(todo)[number], result)
                advance(tasks[number].cell)
            forget()
    return Finished(experiment, cells, [journal.results[name] for name in names], facts)


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
