"""What a Python worker of Spark does with a partition: one bundle of a stage, run by Beam's own worker code.

Elements come and go as bytes: keys and values apart where they are grouped, otherwise elements with their windows, by
Beam's coders. Nothing here knows Spark.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from apache_beam.coders.coder_impl import create_InputStream  # type: ignore[attr-defined]
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.runners.worker import bundle_processor, data_plane, sdk_worker
from apache_beam.transforms.window import GlobalWindow, GlobalWindows
from apache_beam.utils.windowed_value import PaneInfo, PaneInfoTiming

from dpbeam.engine.beam import coders as _coders  # noqa: F401  (registers the coders)
from dpbeam.runners.pyspark.stages import GROUP, Stage, kind_of
from dpbeam.storage import FileSystems

_NOTHING = object()
#: The one pane of a group: nothing comes before or after it.
_PANE = PaneInfo(True, True, PaneInfoTiming.ON_TIME, 0, 0)


class SideInputs(sdk_worker.CachingStateHandler):
    """Answers what steps ask of their side inputs; they have no other state.

    Args:
      answers: serialised key of a request -> encoded values; what is not there is empty.
    """

    def __init__(self, answers: Mapping[bytes, bytes]):
        self._answers = answers

    @contextlib.contextmanager
    def process_instruction_id(self, bundle_id: Any, cache_tokens: Any) -> Iterator[None]:
        yield

    def blocking_get(self, state_key: Any, coder: Any) -> Iterable[Any]:
        stream = create_InputStream(self._answers.get(state_key.SerializeToString(), b""))
        values = []
        while stream.size() > 0:
            values.append(coder.decode_from_stream(stream, True))
        return values

    def extend(self, state_key: Any, coder: Any, elements: Any) -> Any:
        raise NotImplementedError("side inputs are read only")

    def clear(self, state_key: Any) -> Any:
        raise NotImplementedError("side inputs are read only")

    def done(self) -> None:
        pass


def run_bundle(stage: Stage, elements: Iterable[Any], answers: Mapping[bytes, bytes]) -> Iterator[Any]:
    """Run a stage over the elements of a partition.

    Args:
      elements: of the stage's source: (encoded key, list of encoded values) of groups, encoded elements otherwise,
        anything for an impulse.
      answers: of the side inputs, as `Graph.encoded` makes them.

    Yields:
      what the stage sends: (encoded key, encoded value) to groups, else encoded elements. With several sinks, pairs of
      the sink's number and that. No element: no bundle.

    Raises:
      RuntimeError: a step put off a part of its work, which only unbounded input has.
    """
    waiting = iter(elements)
    first = next(waiting, _NOTHING)
    if first is _NOTHING:
        return
    sent: list[Any] = []
    processor = _processor(stage, SideInputs(answers))
    try:
        steps = processor.ops
        for number, (name, buffer) in enumerate(stage.sinks):
            take = _taker(sent, number if len(stage.sinks) > 1 else None)
            _connect(steps[name], kind_of(buffer), take)
        enter = _entry(steps[stage.source[0]], kind_of(stage.source[1]))
        context = bundle_processor.ExecutionContext(instruction_id=stage.name)
        for step in reversed(steps.values()):
            step.execution_context = context
            step.start()
        for element in itertools.chain((first,), waiting):
            enter(element)
            if sent:
                yield from sent
                sent.clear()
        for step in steps.values():
            step.finish()
        if context.delayed_applications:
            raise RuntimeError("a step put off a part of its work: its input is not bounded")
        yield from sent
    finally:
        processor.shutdown()


@functools.lru_cache(maxsize=1)
def use_options(options: str) -> None:
    """Let this process's filesystems know the job's options, as Beam's own workers do.

    Args:
      options: JSON of what was set, by name.
    """
    pipeline_options = PipelineOptions.from_dictionary(json.loads(options))
    FileSystems.set_options(pipeline_options)


def partition_of(key: bytes) -> int:
    """A number for the bytes of a key, the same in every process; those of small integers follow each other.

    Blocks and shards are numbered from 0: taken in turns they are spread evenly over any number of partitions.
    """
    return int.from_bytes(key, "little") if len(key) <= 8 else zlib.crc32(key)


def _processor(stage: Stage, state: SideInputs) -> bundle_processor.BundleProcessor:
    """The steps of a stage, set up. Its sampler of times is never started: nobody reads it."""
    return bundle_processor.BundleProcessor(
        frozenset(),
        beam_fn_api_pb2.ProcessBundleDescriptor.FromString(stage.descriptor),
        state,
        data_plane.InMemoryDataChannelFactory(data_plane.InMemoryDataChannel()),
    )


def _taker(sent: list[Any], number: int | None) -> Callable[[Any], None]:
    return sent.append if number is None else lambda value: sent.append((number, value))


class _Elements(data_plane.ClosableOutputStream):
    """Hands on each element as soon as it is encoded."""

    def __init__(self, take: Callable[[bytes], None]):
        super().__init__()
        self._take = take

    def maybe_flush(self) -> None:
        self._take(self.get())
        self._clear()


class _KeysAndValues:
    """Stands for the coder of what a step sends to a group: keys and values are encoded apart."""

    def __init__(self, coder: Any, take: Callable[[tuple[bytes, bytes]], None]):
        pair = coder.wrapped_value_coder
        self._key, self._value = pair.key_coder().get_impl(), pair.value_coder().get_impl()
        self._take = take

    def encode_to_stream(self, value: Any, stream: Any, nested: bool) -> None:
        key, part = value.value
        self._take((self._key.encode(key), self._value.encode(part)))


def _connect(step: Any, kind: str, take: Callable[[Any], None]) -> None:
    if kind == GROUP:
        step.windowed_coder_impl = _KeysAndValues(step.windowed_coder, take)
        step.set_output_stream(data_plane.ClosableOutputStream())
    else:
        step.set_output_stream(_Elements(take))


def _entry(step: Any, kind: str) -> Callable[[Any], None]:
    """Takes one element of the source."""
    if kind == "impulse":
        return lambda _: step.process(GlobalWindows.windowed_value(b""))
    if kind != GROUP:
        return step.process_encoded
    pair = step.windowed_coder.wrapped_value_coder
    key_impl, value_impl = pair.key_coder().get_impl(), pair.value_coder().value_coder().get_impl()
    at_end = GlobalWindows.windowed_value(None, GlobalWindow().max_timestamp(), _PANE)

    def enter(group: tuple[bytes, list[bytes]]) -> None:
        key, values = group
        step.process(at_end.with_value((key_impl.decode(key), [value_impl.decode(v) for v in values])))

    return enter
