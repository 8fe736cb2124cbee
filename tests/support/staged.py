"""The stages of `PySparkRunner` on lists, without Spark: the same graph, bundles and ways of elements."""

from __future__ import annotations

import itertools
import operator
import random
from collections import defaultdict

from apache_beam.runners.runner import PipelineResult, PipelineState

from dpbeam.runners.pyspark.bundle import partition_of, run_bundle
from dpbeam.runners.pyspark.runner import PySparkRunner
from dpbeam.runners.pyspark.stages import GROUP, IMPULSE, kind_of, make_graph


class StagedRunner(PySparkRunner):
    """Runs each partition of a stage; what it does not do is refused as by PySparkRunner.

    Args:
      partitions: of every shuffle.
      attempts: how often each bundle runs, one after the other, with its elements in another order; the output of
        one of them is taken.
    """

    def __init__(self, partitions=3, attempts=1):
        super().__init__()
        self._partitions, self._attempts = partitions, attempts
        self._random = random.Random(partitions)
        self.stages = []

    def run_portable_pipeline(self, pipeline, options):
        graph = make_graph(pipeline)
        self.stages = [stage.name for stage in graph.stages]
        buffers = defaultdict(list)
        for stage in graph.stages:
            answers = {}
            for side in stage.side_inputs:
                answers.update(graph.encoded(side, buffers[side.buffer]))
            for elements in self._bundles(stage.source[1], buffers):
                for sink, value in self._run(stage, elements, answers):
                    buffers[stage.sinks[sink][1]].append(value)
        return PipelineResult(PipelineState.DONE)

    def _run(self, stage, elements, answers):
        outputs = []
        for _ in range(self._attempts):
            outputs.append(list(run_bundle(stage, elements, answers)))
            self._random.shuffle(elements)
        sent = self._random.choice(outputs)
        return sent if len(stage.sinks) > 1 else [(0, value) for value in sent]

    def _bundles(self, buffer, buffers):
        if buffer == IMPULSE:
            return [[b""]]
        bundles = defaultdict(list)
        if kind_of(buffer) != GROUP:
            for number, element in enumerate(buffers[buffer]):
                bundles[number % self._partitions].append(element)
            return bundles.values()
        key = operator.itemgetter(0)
        for name, group in itertools.groupby(sorted(buffers[buffer], key=key), key=key):
            bundles[partition_of(name) % self._partitions].append((name, [value for _, value in group]))
        return bundles.values()
