"""Runs the choices of `dpbeam tune` on all cores. Figures are those of one process."""

from __future__ import annotations

import contextlib
import functools
import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dpbeam_lab.evaluation.data import PAIRS, PairData, Repetition, open_data
from dpbeam_lab.evaluation.population import Population
from dpbeam_lab.evaluation.tuning import Choice, Figures, run_choice, run_here
from dpbeam_lab.experiments.folders import owned_folder
from dpbeam_lab.experiments.running import processes
from dpbeam_lab.experiments.workers import started

#: Pairs times choices from which on processes pay: they take a second or two to start.
WORTH_PROCESSES = 5_000_000
_CHOICES_PER_TASK = 6


@dataclass(frozen=True)
class _Task:
    """Choices of one sample of every user, and where the population lies."""

    folder: str
    repetition: Repetition
    choices: tuple[Choice, ...]

    def __str__(self) -> str:
        return ", ".join(f"{choice.title} D0 {choice.max_items}" for choice in self.choices)


class ParallelRuns(contextlib.AbstractContextManager):
    """`Runs` of `tune`, in processes that live until the end of the context.

    Attributes:
      jobs: processes, at most; None: one per core, fewer where memory is short, and one where there is little to do.
      started: how many there are; 0 before the first run.
    """

    def __init__(self, jobs: int | None = None):
        self.jobs = jobs
        self.started = 0
        self._stack = contextlib.ExitStack()
        self._run: Callable[[Sequence[_Task]], Iterator[tuple[int, Any]]] | None = None
        self._folder = ""
        self._saved: tuple[Population, str] | None = None

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def __call__(
        self, population: Population, repetition: Repetition, tried: Sequence[Choice]
    ) -> Iterator[tuple[int, Figures]]:
        """As `run_here`, in the order in which processes finish."""
        if not self.started:
            self._start(population, len(tried))
        if self._run is None:
            yield from run_here(population, repetition, tried)
            return
        size = max(1, min(_CHOICES_PER_TASK, len(tried) // (2 * self.started)))
        lots = list(_lots(tried, size))
        folder = self._save(population)
        tasks = [_Task(folder, repetition, tuple(tried[place] for place in lot)) for lot in lots]
        for number, figures in self._run(tasks):
            yield from zip(lots[number], figures)

    def _start(self, population: Population, choices: int) -> None:
        little = self.jobs is None and population.pairs * choices < WORTH_PROCESSES
        self.started = 1 if little else processes(population.pairs, self.jobs)
        if self.started > 1:
            self._folder = self._stack.enter_context(owned_folder())
            self._run = self._stack.enter_context(started(_run_task, self.started))

    def _save(self, population: Population) -> str:
        """The folder of a population; the one before is dropped, since its runs are over."""
        if self._saved is None or self._saved[0] is not population:
            folder = tempfile.mkdtemp(dir=self._folder)
            population.data().save(folder)
            if self._saved is not None:
                shutil.rmtree(self._saved[1])
            self._saved = (population, folder)
        return self._saved[1]


def _lots(tried: Sequence[Choice], size: int) -> Iterator[list[int]]:
    """Positions of choices that share a sample, and so its blocks, which a process then builds once; at most `size`."""
    for _, group in itertools.groupby(range(len(tried)), lambda place: tried[place].plan.program.cap):
        places = list(group)
        for start in range(0, len(places), size):
            yield places[start : start + size]


def _run_task(task: _Task) -> list[Figures]:
    data, holders = _opened(task.folder)
    return [run_choice(choice, data, holders, task.repetition) for choice in task.choices]


@functools.lru_cache(maxsize=1)
def _opened(folder: str) -> tuple[PairData, Any]:
    data = open_data(PAIRS, folder)
    assert isinstance(data, PairData)
    return data, data.holders
