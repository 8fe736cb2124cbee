"""Pipelines of the in-process runner, and what comes out of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from dpbeam.engine.beam.store import RunFolder

_came: list[Any] = []


def _keep(value: Any) -> None:
    _came.append(value)


def kept(values: beam.PCollection, label: str = "Keep") -> beam.PCollection:
    """Lets `outcome` return the elements."""
    return values | label >> beam.Map(_keep)


def outcome(build: Callable[[beam.Pipeline], Any]) -> list:
    """What is `kept` of the pipeline that `build` fills, once it has run; in whatever order."""
    _came.clear()
    with beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"])) as pipeline:
        build(pipeline)
    return list(_came)


@contextlib.contextmanager
def unchecked(folder: RunFolder) -> Iterator[RunFolder]:
    """The folder of a run that does not come to its end, or whose blocks come from the test itself."""
    try:
        yield folder
    finally:
        folder.remove()
