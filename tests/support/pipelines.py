"""Pipelines of the in-process runner, and what comes out of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

_came: list[Any] = []


def _keep(value: Any) -> None:
    _came.append(value)


def kept(values: beam.PCollection) -> beam.PCollection:
    """Lets `outcome` return the elements."""
    return values | "Keep" >> beam.Map(_keep)


def outcome(build: Callable[[beam.Pipeline], Any]) -> list:
    """What is `kept` of the pipeline that `build` fills, once it has run; in whatever order."""
    _came.clear()
    with beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"])) as pipeline:
        build(pipeline)
    return list(_came)
