"""What a runner must do for dpbeam, tried with two small pipelines: `check_runner`.

`dpbeam check` says whether a runner is there and can reach what a job needs. This says whether it runs all of a
pipeline: each leaf, each branch, each side input, and a bundle again that has failed.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.metrics.metric import Metrics, MetricsFilter
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pvalue import AsList, AsSingleton, PCollection
from apache_beam.runners.runner import PipelineRunner, PipelineState
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from dpbeam.storage import FileSystems

_NUMBERS = tuple(range(40))
_MORE = tuple(range(100, 120))
_KEYS = 7
_NAMESPACE = "dpbeam.testing"


def check_runner(
    runner: PipelineRunner | str, folder: str, flags: Sequence[str] = (), *, metrics: bool = True
) -> None:
    """Run two pipelines, and hold what their leaves did against what they should have done.

    Args:
      runner: a runner, or the value of Beam's flag --runner.
      folder: that workers and this machine see; what is written there is removed.
      flags: Beam's others.
      metrics: whether the runner says it has metrics.

    Raises:
      AssertionError: naming all that is lost or doubled.
    """
    whole = _Trial(runner, flags, FileSystems.join(folder, f"check-{uuid.uuid4().hex}"))
    wrong = whole.run(_whole, _expected())
    if metrics and not wrong:
        wrong = whole.miscounted()
    assert not wrong, "; ".join(wrong)
    again = _Trial(runner, flags, FileSystems.join(folder, f"check-{uuid.uuid4().hex}"))
    wrong = again.run(_failing, {"a bundle that failed": _groups(_NUMBERS)}, may_fail=True)
    assert not wrong, "; ".join(wrong)


class _Trial:
    """One run of one pipeline, whose leaves write to a folder."""

    def __init__(self, runner: PipelineRunner | str, flags: Sequence[str], folder: str):
        self._runner, self._flags, self._folder = runner, flags, folder
        self._result: Any = None
        self._expected: dict[str, list[Any]] = {}

    def run(
        self,
        build: Callable[[beam.Pipeline, str], None],
        expected: dict[str, list[Any]],
        may_fail: bool = False,
    ) -> list[str]:
        """What is wrong; nothing where the pipeline fails and may."""
        self._expected = expected
        FileSystems.make_folder(self._folder)
        try:
            pipeline = beam.Pipeline(runner=self._runner, options=PipelineOptions([*self._flags]))
            build(pipeline, self._folder)
            try:
                self._result = pipeline.run()
                state = self._result.wait_until_finish()
            except Exception as error:
                return [] if may_fail else [f"the pipeline fails: {error}"]
            if state not in (PipelineState.DONE, None):
                return [] if may_fail else [f"the pipeline ends as {state}"]
            return [fault for leaf, values in expected.items() for fault in self._leaf(leaf, values)]
        finally:
            FileSystems.remove_folder(self._folder)

    def _leaf(self, leaf: str, expected: list[Any]) -> Iterator[str]:
        paths = FileSystems.list_prefix(FileSystems.join(self._folder, f"{leaf.replace(' ', '_')}-"))
        # A runner may run a bundle twice, and a leaf that writes then writes again.
        came = {json.dumps(json.loads(FileSystems.read(path))) for path in paths}
        wanted = {json.dumps(value) for value in expected}
        if came != wanted:
            yield f"{leaf}: {len(wanted - came)} of {len(wanted)} elements are lost, {len(came - wanted)} are others"

    def miscounted(self) -> list[str]:
        """Leaves whose counters are not there, or too small."""
        query = self._result.metrics().query(MetricsFilter().with_namespace(_NAMESPACE))
        counts = {
            one.key.metric.name: max(one.committed or 0, one.attempted or 0) for one in query["counters"]
        }
        return [
            f"metrics: the counter of '{leaf}' is {counts.get(leaf)}, not {len(values)}"
            for leaf, values in self._expected.items()
            if counts.get(leaf, 0) < len(values)
        ]


class _Leaf(beam.DoFn):
    """A leaf of the pipeline: writes each element to a file, and counts it."""

    def __init__(self, folder: str, name: str):
        self._folder, self._name = folder, name

    def process(self, element: Any) -> None:
        Metrics.counter(_NAMESPACE, self._name).inc()
        name = f"{self._name.replace(' ', '_')}-{uuid.uuid4().hex}"
        with FileSystems.put(FileSystems.join(self._folder, name)) as file:
            file.write(json.dumps(element).encode())


class _AtTheEnd(beam.DoFn):
    """Gives its elements when the bundle ends."""

    def __init__(self) -> None:
        self._kept: list[int] = []

    def start_bundle(self) -> None:
        self._kept = []

    def process(self, element: int) -> None:
        self._kept.append(element)

    def finish_bundle(self) -> Iterator[Any]:
        for element in self._kept:
            yield WindowedValue(element, GlobalWindow().max_timestamp(), (GlobalWindow(),))


class _FailsOnce(beam.DoFn):
    """Fails in the middle of its first bundle, in whatever process that runs."""

    def __init__(self, folder: str):
        self._folder = folder

    def process(self, element: int) -> Iterator[int]:
        mark = FileSystems.join(self._folder, "failed")
        if element == _NUMBERS[20] and FileSystems.put_once(mark, uuid.uuid4().bytes):
            raise RuntimeError("a bundle that fails once, to see whether it runs again as a whole")
        yield element


def _whole(pipeline: beam.Pipeline, folder: str) -> None:
    numbers = pipeline | "Numbers" >> beam.Create(_NUMBERS) | beam.Reshuffle()
    more = pipeline | "More" >> beam.Create(_MORE)
    both = (numbers, more) | beam.Flatten()
    total = numbers | beam.CombineGlobally(sum)
    side = AsList(numbers), AsSingleton(total)
    leaves = {
        "first leaf": numbers,
        "groups": _grouped(numbers, "Group"),
        "flattened": both,
        "groups of flattened": _grouped(both, "GroupBoth"),
        "side inputs": more | "Beside" >> beam.Map(_beside, *side),
        "ends of bundles": numbers | "AtTheEnd" >> beam.ParDo(_AtTheEnd()),
        "last leaf": total,
    }
    for name, values in leaves.items():
        _ = values | name >> beam.ParDo(_Leaf(folder, name))


def _expected() -> dict[str, list[Any]]:
    both = (*_NUMBERS, *_MORE)
    return {
        "first leaf": list(_NUMBERS),
        "groups": _groups(_NUMBERS),
        "flattened": list(both),
        "groups of flattened": _groups(both),
        "side inputs": [_beside(number, _NUMBERS, sum(_NUMBERS)) for number in _MORE],
        "ends of bundles": list(_NUMBERS),
        "last leaf": [sum(_NUMBERS)],
    }


def _failing(pipeline: beam.Pipeline, folder: str) -> None:
    numbers = pipeline | "Numbers" >> beam.Create(_NUMBERS) | "Fail" >> beam.ParDo(_FailsOnce(folder))
    name = "a bundle that failed"
    _ = _grouped(numbers, "Group") | name >> beam.ParDo(_Leaf(folder, name))


def _grouped(numbers: PCollection, name: str) -> PCollection:
    keyed = numbers | f"{name}Key" >> beam.Map(_with_key)
    return keyed | name >> beam.GroupByKey() | f"{name}Sort" >> beam.Map(_sorted)


def _with_key(number: int) -> tuple[int, int]:
    return number % _KEYS, number


def _sorted(group: tuple[int, Iterable[int]]) -> list[Any]:
    return [group[0], sorted(group[1])]


def _groups(numbers: Sequence[int]) -> list[Any]:
    return [_sorted((key, [number for number in numbers if number % _KEYS == key])) for key in range(_KEYS)]


def _beside(number: int, listed: Collection[int], total: int) -> list[Any]:
    return [number, sorted(listed), total]
