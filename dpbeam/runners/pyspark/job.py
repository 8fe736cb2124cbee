"""A graph of stages as RDDs of Spark, run to its end.

Every buffer between stages is a shuffle, or an RDD that is read as it is. Spark runs what an action needs, repeats
what is lost, and spills. Three things keep a repeated task harmless and cheap:

- Where an element goes is a function of the element, of the bytes of its key, so a task that runs again, or twice at
  once, sends everything where the first did. The order in which elements lie in a partition may differ.
- What several stages read is kept, on the executors' disks where memory is short, until the job ends.
- An action for a side input is followed by others on the same RDDs, whose shuffles Spark does not repeat.

Nothing but side inputs is collected on the driver.
"""

from __future__ import annotations

import functools
import gc
import itertools
import operator
import zipimport
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark import SparkContext, StorageLevel
from pyspark.rdd import RDD
from pyspark.traceback_utils import SCCallSiteSync

from dpbeam.runners.pyspark.bundle import partition_of, run_bundle, use_options
from dpbeam.runners.pyspark.stages import GROUP, IMPULSE, RESHUFFLE, Graph, SideInput, Stage, kind_of

#: Partitions of a shuffle for each core, so that cores end at about the same time.
PARTITIONS_PER_CORE = 3


@dataclass
class SparkJob:
    """A graph on a Spark context.

    Args:
      context: of the session, which outlives the job.
      options: of the pipeline, as `bundle.use_options` takes them.
      group: name of Spark's job group, by which the job is followed and cancelled.
    """

    context: SparkContext
    graph: Graph
    options: str
    group: str
    _written: dict[bytes, list[RDD]] = field(default_factory=dict)
    _read: dict[bytes, RDD] = field(default_factory=dict)
    _collected: dict[bytes, list[bytes]] = field(default_factory=dict)
    _kept: list[Any] = field(default_factory=list)
    _cancelled: bool = False

    def run(self) -> None:
        """Run it to its end. Raises what Spark raises."""
        # Jobs of this thread alone. A cancelled task is interrupted: it may run for hours.
        self.context.setJobGroup(self.group, self.group, interruptOnCancel=True)
        ends = []
        try:
            for stage in self.graph.stages:
                made = self._run_stage(stage)
                if not stage.sinks:
                    ends.append(made)
                if self._cancelled:
                    return
            if ends:
                with _called(self.context, ends_name(self.graph)):
                    self.context.union(ends).foreachPartition(_drain)
        finally:
            for kept in self._kept:
                kept.unpersist()

    def cancel(self) -> None:
        """End what runs of it now; what would come next does not start."""
        self._cancelled = True
        self.context.cancelJobGroup(self.group)

    def running_stages(self) -> list[str]:
        """Names of the stages that run now, in their order."""
        tracker = self.context.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self.group)]
        own = {stage for job in jobs if job is not None for stage in job.stageIds}
        active = [tracker.getStageInfo(stage) for stage in sorted(own & set(tracker.getActiveStageIds()))]
        return [stage.name for stage in active if stage is not None]

    def _run_stage(self, stage: Stage) -> RDD:
        answers: dict[bytes, bytes] = {}
        for side in stage.side_inputs:
            answers.update(self._collect(side))
        shared = self.context.broadcast(answers) if answers else None
        if shared is not None:
            self._kept.append(shared)
        made = self._source(stage).mapPartitions(_Task(stage, self.options, shared))
        # Shuffles are kept by Spark itself; others are read by whoever reads the buffer.
        uses = sum(
            1 if kind_of(buffer) in (GROUP, RESHUFFLE) else self.graph.readers(buffer)
            for _, buffer in stage.sinks
        )
        if uses > 1:
            made = made.persist(StorageLevel.MEMORY_AND_DISK)
            self._kept.append(made)
        for number, (_, buffer) in enumerate(stage.sinks):
            part = made.mapPartitions(functools.partial(_only, number)) if len(stage.sinks) > 1 else made
            if kind_of(buffer) == RESHUFFLE:
                dealt = self._comes_in_order(stage)
                part = (
                    part.mapPartitionsWithIndex(functools.partial(_in_turns, part.getNumPartitions()))
                    if dealt
                    else part.mapPartitions(_by_content)
                )
            self._written.setdefault(buffer, []).append(part)
        return made

    def _comes_in_order(self, stage: Stage) -> bool:
        """Whether the elements of a stage lie in the same places every time that Spark makes them.

        So it is with constants, and still after one shuffle of them, since a single task writes to it.
        """
        buffer = stage.source[1]
        if stage.side_inputs or buffer == IMPULSE:
            return not stage.side_inputs
        writers = [s for s in self.graph.stages if any(written == buffer for _, written in s.sinks)]
        return kind_of(buffer) == RESHUFFLE and all(
            writer.source[1] == IMPULSE and not writer.side_inputs for writer in writers
        )

    def _source(self, stage: Stage) -> RDD:
        buffer = stage.source[1]
        if buffer == IMPULSE:
            return self.context.parallelize([b""], 1)
        if buffer not in self._read:
            parts = self._written[buffer]
            everything = parts[0] if len(parts) == 1 else self.context.union(parts)
            with _called(self.context, self._writers(buffer)):
                self._read[buffer] = self._shuffled(kind_of(buffer), everything)
        return self._read[buffer]

    def _shuffled(self, kind: str, written: RDD) -> RDD:
        if kind == GROUP:
            groups = functools.partial(_groups, written._memory_limit())  # spark.python.worker.memory
            return written.partitionBy(self._partitions, partition_of).mapPartitions(groups)
        if kind == RESHUFFLE:
            return written.partitionBy(self._partitions, int).mapPartitions(_values)
        return written

    @property
    def _partitions(self) -> int:
        return max(2, PARTITIONS_PER_CORE * self.context.defaultParallelism)

    def _writers(self, buffer: bytes) -> str:
        """The stage that writes most to a buffer, as the name of what Spark runs before the buffer is read."""
        names = [s.name for s in self.graph.stages if any(written == buffer for _, written in s.sinks)]
        return max(names, key=len)

    def _collect(self, side: SideInput) -> Mapping[bytes, bytes]:
        if side.buffer not in self._collected:
            with _called(self.context, self._writers(side.buffer)):
                self._collected[side.buffer] = self.context.union(self._written[side.buffer]).collect()
        return self.graph.encoded(side, self._collected[side.buffer])


def ends_name(graph: Graph) -> str:
    """Name of the last stages of a graph, which give nothing to others."""
    return " ".join(stage.name for stage in graph.stages if not stage.sinks)


@dataclass(frozen=True)
class _Task:
    """What a worker does with a partition."""

    stage: Stage
    options: str
    shared: Any

    def __call__(self, elements: Iterator[Any]) -> Iterator[Any]:
        _settle()
        use_options(self.options)
        return run_bundle(self.stage, elements, {} if self.shared is None else self.shared.value)


@functools.cache
def _settle() -> None:
    """Spare this worker what Spark's does before and after each task, where it need not be done again and again.

    - It forgets what archives on the path hold, and Python below 3.13 then reads all of them at once: 95 ms of CPU,
      where a task of few elements takes 5. Spark never changes an archive that it has sent.
    - It collects garbage, and would look at all that Beam consists of: 90 ms.
    """
    zipimport.zipimporter.invalidate_caches = lambda self: None  # type: ignore[method-assign]
    gc.freeze()


class _called:
    """Spark shows stages that are made within by this name, not by the line that made them."""

    def __init__(self, context: SparkContext, name: str):
        self._context, self._name = context, name
        self._outer = SCCallSiteSync(context)

    def __enter__(self) -> None:
        self._outer.__enter__()
        self._context._jsc.setCallSite(self._name)

    def __exit__(self, *raised: Any) -> None:
        self._outer.__exit__(*raised)


def _in_turns(sources: int, source: int, elements: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Elements of one of `sources` partitions, numbered through all of them."""
    return ((source + sources * place, element) for place, element in enumerate(elements))


def _by_content(elements: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    return ((zlib.crc32(element), element) for element in elements)


def _values(pairs: Iterable[tuple[int, bytes]]) -> Iterator[bytes]:
    return (element for _, element in pairs)


def _groups(megabytes: int, pairs: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, list[bytes]]]:
    """Values of each key; sorted by the key's bytes, on disk where there are more than fit in memory."""
    from pyspark.shuffle import ExternalSorter

    key = operator.itemgetter(0)
    ordered = ExternalSorter(megabytes).sorted(pairs, key=key)
    for name, group in itertools.groupby(ordered, key=key):
        yield name, [value for _, value in group]


def _only(number: int, sent: Iterable[tuple[int, Any]]) -> Iterator[Any]:
    return (value for sink, value in sent if sink == number)


def _drain(elements: Iterable[Any]) -> None:
    for _ in elements:
        pass
