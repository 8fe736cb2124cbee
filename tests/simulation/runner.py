"""A Beam runner that executes a batch pipeline's stages in an order that a random generator draws.

Stages are what engines fuse: functions that hand elements on by reference, up to a shuffle, a flatten or a second
reader. Between stages elements are bytes. A stage's elements are cut into tasks; a task may be run twice, at once or
one after the other, be lost in its midst, and be run again after the input has changed. Threads stand for workers: one
runs at a time, and another takes its turn where files are touched.
"""

from __future__ import annotations

import random
import threading
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import apache_beam as beam
from apache_beam import coders
from apache_beam.internal import pickler
from apache_beam.pipeline import AppliedPTransform, PipelineVisitor
from apache_beam.pvalue import PCollection
from apache_beam.runners import common
from apache_beam.transforms.sideinputs import SideInputMap
from apache_beam.transforms.window import GlobalWindows

#: What becomes of a task: run once; twice, one after the other; twice at once; lost, and run again; what came before it
#: is made again in part, for the tasks that are left; one of its elements goes missing.
ONCE, TWICE, SPECULATE, LOST, AGAIN, DROPPED = "once", "twice", "speculate", "lost", "again", "dropped"
#: Steps that Beam's own in-process runner would do without a shuffle of their own.
_SHUFFLES = (beam.GroupByKey, beam.Reshuffle)


class LostError(BaseException):
    """The worker of a task is lost: whatever it does from now on does not happen."""


class Workers:
    """Threads of which one runs at a time; `turn` is called where they may take turns."""

    def __init__(self, chance: random.Random):
        self._chance = chance
        self._waiting: list[threading.Semaphore] = []
        self._mine = threading.local()

    def turn(self) -> None:
        """A file is touched. Raises LostError where this worker is lost."""
        left = getattr(self._mine, "left", None)
        if left is None:
            return  # not a worker: the launcher, or the thread of a single task
        if left == 0:
            raise LostError
        self._mine.left = left - 1
        if self._waiting and self._chance.random() < 0.4:
            self._pass_on()

    def _pass_on(self) -> None:
        gate = threading.Semaphore(0)
        self._waiting.append(gate)
        others = range(len(self._waiting) - 1)
        self._waiting.pop(self._chance.choice(others)).release()
        gate.acquire()

    def run(self, tasks: Sequence[tuple[Callable[[], Any], int]]) -> list[Any]:
        """What the tasks give, or the errors that they raise.

        Args:
          tasks: each with the number of its operations after which its worker is lost; -1: it is not.
        """
        answers: list[Any] = [None] * len(tasks)
        ended = threading.Semaphore(0)

        def work(place: int, gate: threading.Semaphore) -> None:
            gate.acquire()
            self._mine.left = tasks[place][1]
            try:
                answers[place] = tasks[place][0]()
            except BaseException as error:
                answers[place] = error
            if self._waiting:
                self._waiting.pop(self._chance.randrange(len(self._waiting))).release()
            else:
                ended.release()

        gates = [threading.Semaphore(0) for _ in tasks]
        threads = [threading.Thread(target=work, args=entry, daemon=True) for entry in enumerate(gates)]
        self._waiting = gates
        for thread in threads:
            thread.start()
        self._waiting.pop(self._chance.randrange(len(tasks))).release()
        ended.acquire()
        for thread in threads:
            thread.join()
        return answers


class _Output(common.Receiver):
    def __init__(self, take: Callable[[Any], None]):
        self._take = take

    def receive(self, windowed_value: Any) -> None:
        self._take(windowed_value)

    def flush(self) -> None:
        pass


@dataclass
class _Stage:
    """Attributes:
    source: what it reads; nodes: its functions, each after that which feeds it; salt: of its keys.
    tasks: its elements by the number of the task; outputs: task -> collection -> encoded elements.
    """

    source: PCollection
    nodes: list[AppliedPTransform]
    salt: int
    tasks: dict[int, list[bytes]] = field(default_factory=dict)
    outputs: dict[int, dict[PCollection, list[bytes]]] = field(default_factory=dict)


class _Visitor(PipelineVisitor):
    """The primitives of a graph, a Reshuffle as one of them."""

    def __init__(self) -> None:
        self.nodes: list[AppliedPTransform] = []
        self._within = 0

    def enter_composite_transform(self, node: AppliedPTransform) -> None:
        if isinstance(node.transform, _SHUFFLES):
            if not self._within:
                self.nodes.append(node)
            self._within += 1

    def leave_composite_transform(self, node: AppliedPTransform) -> None:
        self._within -= isinstance(node.transform, _SHUFFLES)

    def visit_transform(self, node: AppliedPTransform) -> None:
        if not self._within:
            self.nodes.append(node)


class Runner:
    """Runs one pipeline.

    Args:
      chance: decides.
      fate: what becomes of the next task, given its name.
      renew: replaces the input, before what was read of it is read again.
    """

    def __init__(
        self,
        workers: Workers,
        chance: random.Random,
        fate: Callable[[str], str],
        renew: Callable[[], None],
    ):
        self._workers, self._chance, self._fate, self._renew = workers, chance, fate, renew
        self._stages: list[_Stage] = []
        self._due = False  # what was made is to be made again
        self._made: dict[PCollection, Callable[[], list[bytes]]] = {}
        self._coders: dict[PCollection, coders.Coder] = {}
        self._functions: dict[AppliedPTransform, bytes] = {}

    def run(self, pipeline: beam.Pipeline) -> None:
        """Raises what a task raises."""
        visitor = _Visitor()
        pipeline.visit(visitor)
        self._plan(visitor.nodes)
        for number in range(len(self._stages)):
            self._run_stage(number)

    def _plan(self, nodes: list[AppliedPTransform]) -> None:
        readers: dict[Any, list[AppliedPTransform]] = defaultdict(list)
        beside = {side.pvalue for node in nodes for side in node.side_inputs}
        for node in nodes:
            for collection in node.main_inputs.values():
                readers[collection].append(node)
        stage_of: dict[PCollection, _Stage] = {}
        for node in nodes:
            outputs = [c for c in node.outputs.values() if isinstance(c, PCollection)]
            if isinstance(node.transform, beam.ParDo):
                (source,) = node.main_inputs.values()
                alone = len(readers[source]) == 1 and source not in beside and not node.side_inputs
                if source in stage_of and alone:
                    stage = stage_of[source]
                    stage.nodes.append(node)
                else:
                    stage = _Stage(source, [node], self._chance.randrange(1 << 30))
                    self._stages.append(stage)
                self._functions[node] = pickler.dumps(node.transform.fn)
                for collection in outputs:
                    stage_of[collection] = stage
                    self._made[collection] = lambda s=stage, c=collection: [
                        element for task in sorted(s.outputs) for element in s.outputs[task].get(c, ())
                    ]
                continue
            (made,) = outputs
            inputs = list(node.main_inputs.values())
            if isinstance(node.transform, beam.Impulse):
                self._coders[made] = coders.BytesCoder()
                self._made[made] = lambda c=made: [self._coders[c].encode(b"")]
            elif isinstance(node.transform, beam.GroupByKey):
                self._made[made] = lambda c=inputs[0], m=made: self._grouped(c, m)
                self._coders[made] = coders.PickleCoder()
            elif isinstance(node.transform, (beam.Flatten, beam.Reshuffle)):
                if isinstance(node.transform, beam.Reshuffle):
                    self._coders[made] = self._coder(inputs[0])
                self._made[made] = lambda i=inputs, m=made: [
                    self._coder(m).encode(self._coder(c).decode(element))
                    for c in i
                    for element in self._made[c]()
                ]
            else:
                raise NotImplementedError(node.full_label)

    def _coder(self, collection: PCollection) -> coders.Coder:
        if collection not in self._coders:
            self._coders[collection] = coders.registry.get_coder(collection.element_type)
        return self._coders[collection]

    def _grouped(self, collection: PCollection, made: PCollection) -> list[bytes]:
        """(key, encoded values) by the bytes of the key."""
        key_coder = coders.registry.get_coder(Any)
        groups: dict[bytes, tuple[Any, list[Any]]] = {}
        for element in self._made[collection]():
            key, value = self._coder(collection).decode(element)
            groups.setdefault(key_coder.encode(key), (key, []))[1].append(value)
        return [self._coders[made].encode(groups[name]) for name in sorted(groups)]

    def _cut(self, stage: _Stage) -> dict[int, list[bytes]]:
        """A stage's elements by task: of one element always the same, whatever else there is."""
        elements = self._made[stage.source]()
        tasks: dict[int, list[bytes]] = defaultdict(list)
        cut = 1 + stage.salt % 4
        grouped = isinstance(stage.source.producer.transform, beam.GroupByKey)
        for place, element in enumerate(elements):
            if grouped:
                key = coders.registry.get_coder(Any).encode(self._coders[stage.source].decode(element)[0])
                place = zlib.crc32(key, stage.salt)
            tasks[place % cut].append(element)
        return dict(tasks)

    def _run_stage(self, number: int) -> None:
        stage = self._stages[number]
        stage.tasks = self._cut(stage)
        waiting = list(stage.tasks)
        self._chance.shuffle(waiting)
        while waiting:
            task = waiting.pop()
            fate = self._fate(stage.nodes[0].full_label)
            self._due |= fate == AGAIN
            # Some are done, and others not. Before the first trip blocks of two inputs would be one set of data still.
            if self._due and "Trip" in stage.nodes[0].full_label and len(waiting) + 1 < len(stage.tasks):
                self._due = False
                self._again(number)
                stage.tasks |= {n: self._cut(stage).get(n, []) for n in (task, *waiting)}
            if fate == ONCE and waiting and self._chance.random() < 0.3:  # two workers, one task each
                self._attempt(stage, [task, waiting.pop()])
            elif fate == TWICE:
                self._attempt(stage, [task])
                self._attempt(stage, [task])
            elif fate == SPECULATE:
                self._attempt(stage, [task, task])
            elif fate == LOST:
                self._attempt(stage, [task], lost_at=self._chance.randrange(1, 12))
                self._attempt(stage, [task])
            else:
                self._attempt(stage, [task])
            if fate == DROPPED and (given := [out for out in stage.outputs[task].values() if out]):
                elements = self._chance.choice(given)
                elements.pop(self._chance.randrange(len(elements)))

    def _again(self, number: int) -> None:
        """A machine is gone with some of what was made before this stage, and the input has changed since."""
        self._renew()
        for stage in self._stages[:number]:
            tasks = self._cut(stage)
            for task in sorted(tasks):
                if self._chance.random() < 0.7:
                    stage.tasks[task] = tasks[task]
                    self._attempt(stage, [task])

    def _attempt(self, stage: _Stage, tasks: Sequence[int], lost_at: int = -1) -> None:
        """Run tasks, several at once; of two attempts at one, either's output is taken. Raises what one raises."""
        work = [(lambda t=task: self._task(stage, stage.tasks[t]), lost_at) for task in tasks]
        answers = self._workers.run(work)
        order = list(zip(tasks, answers))
        self._chance.shuffle(order)
        for task, answer in order:
            if isinstance(answer, LostError):
                continue
            if isinstance(answer, BaseException):
                raise answer
            stage.outputs[task] = answer

    def _task(self, stage: _Stage, elements: Iterable[bytes]) -> dict[PCollection, list[bytes]]:
        """One bundle through a stage's functions."""
        outputs: dict[PCollection, list[bytes]] = defaultdict(list)
        runners: dict[PCollection, common.DoFnRunner] = {}
        inside = {next(iter(node.main_inputs.values())) for node in stage.nodes[1:]}

        def receiver(collection: PCollection) -> _Output:
            if collection in inside:
                return _Output(lambda value: runners[collection].process(value))
            coder = self._coder(collection)
            return _Output(lambda value: outputs[collection].append(coder.encode(value.value)))

        for node in reversed(stage.nodes):  # who receives is there first
            (source,) = node.main_inputs.values()
            runners[source] = common.DoFnRunner(
                pickler.loads(self._functions[node]),
                node.transform.args,
                node.transform.kwargs,
                list(map(self._side, node.side_inputs)),
                source.windowing,
                tagged_receivers={
                    tag: receiver(c) for tag, c in node.outputs.items() if isinstance(c, PCollection)
                }
                or {None: _Output(lambda value: None)},
                step_name=node.full_label,
            )
        for runner in runners.values():
            runner.setup()
            runner.start()
        for value in self._decoded(stage.source, elements):
            runners[stage.source].process(GlobalWindows.windowed_value(value))
        for runner in reversed(list(runners.values())):
            runner.finish()
        for runner in runners.values():
            runner.teardown()
        return dict(outputs)

    def _decoded(self, source: PCollection, elements: Iterable[bytes]) -> Iterator[Any]:
        elements = list(elements)
        self._chance.shuffle(elements)
        for element in elements:
            value = self._coder(source).decode(element)
            if isinstance(source.producer.transform, beam.GroupByKey):
                self._chance.shuffle(value[1])
            yield value

    def _side(self, side: Any) -> SideInputMap:
        values = [
            GlobalWindows.windowed_value(self._coder(side.pvalue).decode(element))
            for element in self._made[side.pvalue]()
        ]
        return SideInputMap(type(side), side._view_options(), values)
