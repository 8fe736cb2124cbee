"""A runner that loses elements and does not say so: `--runner=tests.support.hostile.HostileRunner --untested_runner`.

It is the simulator's runner, but one step of the graph gets less than it should, or gives less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import apache_beam as beam
from apache_beam.pipeline import AppliedPTransform, PipelineVisitor
from apache_beam.runners.runner import PipelineResult

from tests.support.quick_runner import QuickRunner

FLAGS = ("--runner=tests.support.hostile.HostileRunner", "--untested_runner")


@dataclass
class Loss:
    """What the runner loses, and what became of that.

    Attributes:
      step: the label of a step; None: of none.
      of: "inputs" or "outputs" of the step.
      which: number of the element, from 0 on -> whether it is lost.
      lost: how many were.
      leaves: labels of the steps that nothing follows.
    """

    step: str | None = None
    of: str = "inputs"
    which: Callable[[int], bool] = lambda number: number == 0
    lost: int = 0
    leaves: list[str] = field(default_factory=list)
    seen: int = 0

    def loses(self) -> bool:
        """Whether the next element is lost."""
        lost = self.which(self.seen)
        self.seen += 1
        self.lost += lost
        return lost


#: Of the run that comes next.
loss = Loss()


class _Losing(beam.DoFn):
    """A function that some of its elements do not reach, or do not leave."""

    def __init__(self, fn: beam.DoFn, of: str):
        self._fn, self._of = fn, of

    def setup(self) -> None:
        self._fn.setup()

    def start_bundle(self) -> None:
        self._fn.start_bundle()

    def process(self, element: Any, *others: Any, **named: Any) -> Iterator[Any]:
        if self._of == "inputs" and loss.loses():
            return
        yield from self._left(self._fn.process(element, *others, **named))

    def finish_bundle(self) -> Iterator[Any]:
        yield from self._left(self._fn.finish_bundle())

    def _left(self, elements: Any) -> Iterator[Any]:
        for element in elements or ():
            if not (self._of == "outputs" and loss.loses()):
                yield element


class Steps(PipelineVisitor):
    """The steps of a pipeline that run a function.

    Attributes:
      all: in the order of the graph.
    """

    def __init__(self) -> None:
        self.all: list[AppliedPTransform] = []
        self._consumed: set[Any] = set()

    def visit_transform(self, node: AppliedPTransform) -> None:
        self._consumed.update(node.inputs)
        if isinstance(node.transform, beam.ParDo):
            self.all.append(node)

    @property
    def leaves(self) -> list[AppliedPTransform]:
        """Those that nothing follows."""
        return [node for node in self.all if not self._consumed & set(node.outputs.values())]


class HostileRunner(QuickRunner):
    """Loses what `loss` says."""

    def run_pipeline(self, pipeline: beam.Pipeline, options: Any) -> PipelineResult:
        steps = Steps()
        pipeline.visit(steps)
        for node in steps.all:
            if node.full_label == loss.step:
                node.transform.fn = _Losing(node.transform.fn, loss.of)
        loss.leaves += [node.full_label for node in steps.leaves]
        return super().run_pipeline(pipeline, options)
