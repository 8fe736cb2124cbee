"""From a pipeline to the stages that Spark runs, with the phases by which Beam's own in-process runner makes them.

A stage is what Beam fuses: steps that hand elements to each other within one worker. Between stages lie *buffers*, each
written by some stages and read by others, of three kinds: `group`, a GroupByKey; `reshuffle`; and `materialize`, where
elements pass as they are: to a Flatten, to several readers, or to a side input.

What this runner does not do is refused here, by the step's name, before anything runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from apache_beam.coders import WindowedValueCoder
from apache_beam.portability import common_urns, python_urns
from apache_beam.portability.api import beam_fn_api_pb2, beam_runner_api_pb2
from apache_beam.runners.pipeline_context import PipelineContext
from apache_beam.runners.portability.fn_api_runner import translations
from apache_beam.runners.portability.fn_api_runner.execution import WindowGroupingBuffer
from apache_beam.runners.worker import bundle_processor

from dpbeam.errors import InputError, SettingError

IMPULSE = translations.IMPULSE_BUFFER
GROUP, RESHUFFLE = "group", "reshuffle"

_RESHUFFLE_URN = common_urns.composites.RESHUFFLE.urn
_GLOBAL_WINDOWS = common_urns.global_windows.urn
_REQUIREMENTS = {
    common_urns.requirements.REQUIRES_STATEFUL_PROCESSING.urn: "state or timers",
    common_urns.requirements.REQUIRES_BUNDLE_FINALIZATION.urn: "finalisation of bundles",
    common_urns.requirements.REQUIRES_STABLE_INPUT.urn: "stable input",
    common_urns.requirements.REQUIRES_TIME_SORTED_INPUT.urn: "input sorted by time",
    common_urns.requirements.REQUIRES_SPLITTABLE_DOFN.urn: "",  # done
}
_KNOWN = frozenset(
    (
        common_urns.primitives.PAR_DO.urn,
        common_urns.primitives.ASSIGN_WINDOWS.urn,
        common_urns.primitives.FLATTEN.urn,
        common_urns.primitives.GROUP_BY_KEY.urn,
        common_urns.primitives.IMPULSE.urn,
        common_urns.composites.COMBINE_PER_KEY.urn,
        common_urns.deprecated_primitives.READ.urn,
        _RESHUFFLE_URN,
    )
)


@dataclass(frozen=True)
class SideInput:
    """What a step reads besides its elements.

    Attributes:
      step, tag: who asks for it, and under which name.
      buffer: where its elements lie.
      pattern: the URN of how they are looked up.
      coder_id: of an element with its window.
    """

    step: str
    tag: str
    buffer: bytes
    pattern: str
    coder_id: str


@dataclass(frozen=True)
class Stage:
    """One fused stage.

    Attributes:
      name: Beam's, of all steps in it.
      descriptor: a serialised ProcessBundleDescriptor.
      source: the step that takes the elements, and the buffer that they come from.
      sinks: steps that give elements away, and the buffers that they go to.
      side_inputs: read by its steps.
    """

    name: str
    descriptor: bytes
    source: tuple[str, bytes]
    sinks: tuple[tuple[str, bytes], ...]
    side_inputs: tuple[SideInput, ...]


@dataclass(frozen=True)
class Graph:
    """The stages of a pipeline, each after those that it reads from."""

    stages: tuple[Stage, ...]
    components: beam_runner_api_pb2.Components

    def readers(self, buffer: bytes) -> int:
        """How many stages read a buffer, and how many steps have it as side input."""
        sources = sum(stage.source[1] == buffer for stage in self.stages)
        return sources + sum(side.buffer == buffer for stage in self.stages for side in stage.side_inputs)

    def encoded(self, side: SideInput, elements: Iterable[bytes]) -> dict[bytes, bytes]:
        """A side input as a worker asks for it: serialised key of the request -> what answers it."""
        coder = PipelineContext(self.components).coders.get_by_id(side.coder_id)
        pattern = beam_runner_api_pb2.FunctionSpec(urn=side.pattern)
        grouped = WindowGroupingBuffer(pattern, cast(WindowedValueCoder, coder))
        for element in elements:
            grouped.append(element)
        answers: dict[bytes, bytes] = {}
        names = {"transform_id": side.step, "side_input_id": side.tag}
        for key, window, data, _ in grouped.encoded_items():
            asked = beam_fn_api_pb2.StateKey()
            if side.pattern == common_urns.side_inputs.ITERABLE.urn:
                asked.iterable_side_input.MergeFrom(
                    beam_fn_api_pb2.StateKey.IterableSideInput(window=window, **names)
                )
            else:
                asked.multimap_side_input.MergeFrom(
                    beam_fn_api_pb2.StateKey.MultimapSideInput(window=window, key=key, **names)
                )
            answers[asked.SerializeToString()] = data
        return answers


def kind_of(buffer: bytes) -> str:
    """`group`, `reshuffle`, `materialize` or `impulse`."""
    return "impulse" if buffer == IMPULSE else str(translations.split_buffer_id(buffer)[0])


def make_graph(pipeline: beam_runner_api_pb2.Pipeline) -> Graph:
    """The stages of a pipeline, which is changed.

    Raises:
      InputError: it holds what this runner does not do; names the step.
    """
    check(pipeline)
    context, stages = translations.create_and_optimize_stages(
        pipeline,
        phases=[
            translations.annotate_downstream_side_inputs,
            translations.fix_side_input_pcoll_coders,
            translations.lift_combiners,
            translations.expand_sdf,
            _expand_reshuffle,
            translations.expand_gbk,
            translations.sink_flattens,
            translations.greedily_fuse,
            translations.read_to_impulse,
            translations.impulse_to_input,
            translations.sort_stages,
            translations.add_impulse_to_dangling_transforms,
            translations.populate_data_channel_coders,
        ],
        known_runner_urns=frozenset(
            (
                common_urns.primitives.FLATTEN.urn,
                common_urns.primitives.GROUP_BY_KEY.urn,
                _RESHUFFLE_URN,
            )
        ),
    )
    return Graph(tuple(_stage(context, stage) for stage in stages), context.components)


def check(pipeline: beam_runner_api_pb2.Pipeline) -> None:
    """Refuse what this runner does not do.

    Raises:
      InputError: names the first step of that kind.
    """
    for requirement in pipeline.requirements:
        if _REQUIREMENTS.get(requirement, requirement):
            name = _step_that_requires(pipeline, requirement)
            raise _refused(name, f"needs {_REQUIREMENTS.get(requirement, requirement)}")
    parts = pipeline.components
    assigns = common_urns.primitives.ASSIGN_WINDOWS.urn
    for transform in sorted(parts.transforms.values(), key=lambda t: t.spec.urn != assigns):
        # A step that only hands its inputs on runs nothing.
        leaf = not transform.subtransforms and set(transform.outputs.values()) - set(
            transform.inputs.values()
        )
        if not leaf and transform.spec.urn not in _KNOWN:
            continue
        if leaf and transform.spec.urn not in _KNOWN:
            raise _refused(
                transform.unique_name, f"is a primitive that it does not know: {transform.spec.urn}"
            )
        if transform.spec.urn == common_urns.primitives.FLATTEN.urn and not transform.inputs:
            raise _refused(transform.unique_name, "flattens nothing")
        environment = parts.environments.get(transform.environment_id)
        if environment is not None and environment.urn != python_urns.EMBEDDED_PYTHON:
            raise _refused(transform.unique_name, "is written in another language than Python")
        for id_ in transform.outputs.values():
            collection = parts.pcollections[id_]
            windowing = parts.windowing_strategies[collection.windowing_strategy_id]
            if windowing.window_fn.urn != _GLOBAL_WINDOWS:
                raise _refused(transform.unique_name, "uses windows other than the global one")
            if collection.is_bounded == beam_runner_api_pb2.IsBounded.UNBOUNDED:
                raise _refused(transform.unique_name, "is unbounded")


def _refused(step: str, why: str) -> InputError:
    return SettingError(f"--runner=PySparkRunner: the step '{step}' {why}, which this runner does not do")


def _step_that_requires(pipeline: beam_runner_api_pb2.Pipeline, requirement: str) -> str:
    of = common_urns.requirements
    tests = {
        of.REQUIRES_STATEFUL_PROCESSING.urn: lambda p: p.state_specs or p.timer_family_specs,
        of.REQUIRES_BUNDLE_FINALIZATION.urn: lambda p: p.requests_finalization,
        of.REQUIRES_STABLE_INPUT.urn: lambda p: p.requires_stable_input,
        of.REQUIRES_TIME_SORTED_INPUT.urn: lambda p: p.requires_time_sorted_input,
    }
    for transform in pipeline.components.transforms.values():
        if transform.spec.urn == common_urns.primitives.PAR_DO.urn and requirement in tests:
            payload = beam_runner_api_pb2.ParDoPayload.FromString(transform.spec.payload)
            if tests[requirement](payload):
                return transform.unique_name
    return "(unnamed)"


def _expand_reshuffle(
    stages: Iterable[translations.Stage], context: translations.TransformContext
) -> Iterator[translations.Stage]:
    """Each Reshuffle becomes a write followed by a read, as `expand_gbk` does with a GroupByKey."""
    for stage in stages:
        transform = translations.only_transform(stage.transforms)
        if transform.spec.urn != _RESHUFFLE_URN:
            yield stage
            continue
        if len(transform.inputs) != 1:
            raise _refused(transform.unique_name, "is a splittable DoFn with side inputs")
        for pcoll in (*transform.inputs.values(), *transform.outputs.values()):
            context.length_prefix_pcoll_coders(pcoll)
        buffer = translations.create_buffer_id(stage.name, kind=RESHUFFLE)

        def part(
            name: str,
            urn: str,
            inputs: Mapping[str, str] | None = None,
            outputs: Mapping[str, str] | None = None,
            of: beam_runner_api_pb2.PTransform = transform,
            buffer: bytes = buffer,
        ) -> beam_runner_api_pb2.PTransform:
            return beam_runner_api_pb2.PTransform(
                unique_name=f"{of.unique_name}/{name}",
                inputs=inputs,
                outputs=outputs,
                spec=beam_runner_api_pb2.FunctionSpec(urn=urn, payload=buffer),
            )

        write = translations.Stage(
            f"{transform.unique_name}/Write",
            [part("Write", bundle_processor.DATA_OUTPUT_URN, inputs=dict(transform.inputs))],
            downstream_side_inputs=frozenset(),
            must_follow=stage.must_follow,
        )
        yield write
        yield translations.Stage(
            f"{transform.unique_name}/Read",
            [part("Read", bundle_processor.DATA_INPUT_URN, outputs=dict(transform.outputs))],
            downstream_side_inputs=stage.downstream_side_inputs,
            must_follow=translations.union(frozenset([write]), stage.must_follow),
        )


def _stage(context: translations.TransformContext, stage: translations.Stage) -> Stage:
    """A stage with the coders of what enters and leaves it, and nothing of the others'."""
    sources: list[tuple[str, bytes]] = []
    sinks: list[tuple[str, bytes]] = []
    sides: list[SideInput] = []
    used: set[str] = set()
    transforms = {}
    for transform in stage.transforms:
        name = transform.unique_name
        used.update(transform.inputs.values(), transform.outputs.values())
        transforms[name] = beam_runner_api_pb2.PTransform()
        transforms[name].CopyFrom(transform)
        if transform.spec.urn in (bundle_processor.DATA_INPUT_URN, bundle_processor.DATA_OUTPUT_URN):
            enters = transform.spec.urn == bundle_processor.DATA_INPUT_URN
            (sources if enters else sinks).append((name, transform.spec.payload))
            (pcoll,) = (transform.outputs if enters else transform.inputs).values()
            port = beam_fn_api_pb2.RemoteGrpcPort(coder_id=context.data_channel_coders[pcoll])
            transforms[name].spec.payload = port.SerializeToString()
        elif transform.spec.urn in translations.PAR_DO_URNS:
            payload = beam_runner_api_pb2.ParDoPayload.FromString(transform.spec.payload)
            for tag, side in payload.side_inputs.items():
                pcoll = transform.inputs[tag]
                coder = context.safe_coders[context.data_channel_coders[pcoll]]
                buffer = translations.create_buffer_id(pcoll)
                sides.append(SideInput(name, tag, buffer, side.access_pattern.urn, coder))
    if len(sources) != 1:
        raise _refused(stage.name, f"reads from {len(sources)} places at once")
    parts = context.components
    descriptor = beam_fn_api_pb2.ProcessBundleDescriptor(
        id=stage.name,
        transforms=transforms,
        pcollections={name: parts.pcollections[name] for name in used},
        coders=dict(parts.coders.items()),
        windowing_strategies=dict(parts.windowing_strategies.items()),
        environments=dict(parts.environments.items()),
    )
    return Stage(stage.name, descriptor.SerializeToString(), sources[0], tuple(sinks), tuple(sides))
