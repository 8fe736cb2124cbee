"""`PySparkRunner`: a Beam runner on PySpark itself."""

from __future__ import annotations

import argparse
import json
import secrets
import threading
import time
from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions, SparkRunnerOptions, StandardOptions
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.runner import PipelineResult, PipelineRunner, PipelineState
from apache_beam.transforms import environments

from dpbeam.errors import SettingError, SetupError
from dpbeam.runners.pyspark.session import open_session
from dpbeam.runners.pyspark.stages import make_graph

_BEAMS_DEFAULT = "local[4]"
_POLL_SECONDS = 0.1
_CANCEL_SECONDS = 30.0


class PySparkOptions(PipelineOptions):
    """The flag that Beam's own runners on Spark lack."""

    @classmethod
    def _add_argparse_args(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--spark_conf",
            action="append",
            default=None,
            help="spark.KEY=VALUE, a setting of the session that the job makes; may be repeated",
        )


class PySparkRunner(PipelineRunner):
    """Runs batch pipelines on a Spark session, with Python workers that Spark starts.

    Takes `--spark_master_url` and `--spark_conf`, or the session that stands. Does ParDo with side inputs and several
    outputs, splittable DoFns over bounded input, GroupByKey, combines, Flatten and Reshuffle, in the global window. It
    has no metrics.
    """

    def default_environment(self, options: PipelineOptions) -> environments.Environment:
        return environments.EmbeddedPythonEnvironment.default()

    def run_portable_pipeline(
        self, pipeline: beam_runner_api_pb2.Pipeline, options: PipelineOptions
    ) -> PySparkResult:
        """Start a pipeline.

        Raises:
          InputError: it holds what this runner does not do, or there is no such session; nothing has run.
        """
        if options.view_as(StandardOptions).streaming:
            raise SettingError("--runner=PySparkRunner: runs batch pipelines alone; drop --streaming")
        graph = make_graph(pipeline)
        try:
            from dpbeam.runners.pyspark.job import SparkJob
        except ImportError as error:
            raise SetupError(f"--runner=PySparkRunner: PySpark is not complete here: {error}") from None
        context = open_session(master_of(options), options.view_as(PySparkOptions).spark_conf or (), "dpbeam")
        return PySparkResult(
            SparkJob(context, graph, options_text(options), f"dpbeam-{secrets.token_hex(8)}")
        )


def options_text(options: PipelineOptions) -> str:
    """JSON of the options that were set, for the workers; what JSON cannot hold concerns the launcher alone."""
    set_options = options.get_all_options(drop_default=True)
    plain = (str, int, float, bool, list)
    return json.dumps(
        {name: value for name, value in set_options.items() if isinstance(value, plain)}, default=str
    )


def master_of(options: PipelineOptions) -> str | None:
    """`--spark_master_url` where it was given: Beam's default is one for its own runner."""
    master = str(options.view_as(SparkRunnerOptions).spark_master_url)
    was_set = any(flag.startswith("--spark_master_url") for flag in getattr(options, "_flags", None) or ())
    return master if was_set or master != _BEAMS_DEFAULT else None


class _Running(threading.Thread):
    """A job in a thread of its own, so that who waits for it can be interrupted."""

    def __init__(self, job: Any):
        super().__init__(name="spark-job", daemon=True)
        self.job = job
        self.end = PipelineState.RUNNING
        self.error: BaseException | None = None

    def run(self) -> None:
        end = PipelineState.DONE
        try:
            self.job.run()
        except BaseException as error:
            self.error, end = error, PipelineState.FAILED
        if self.end == PipelineState.RUNNING:
            self.end = end


class PySparkResult(PipelineResult):
    """A job that runs."""

    def __init__(self, job: Any):
        super().__init__(PipelineState.RUNNING)  # type: ignore[no-untyped-call]
        self._running = _Running(job)
        self._running.start()

    @property
    def state(self) -> str:
        return self._running.end

    def wait_until_finish(self, duration: int | None = None) -> str:
        """Wait for the end; with `duration`, so many milliseconds at most.

        Raises:
          RuntimeError: the job failed; the message is Spark's, with the trace of the Python worker.
        """
        until = None if duration is None else time.monotonic() + duration / 1000
        while self._running.is_alive() and (until is None or time.monotonic() < until):
            self._running.join(_POLL_SECONDS)  # in pieces, so that signals are heard
        if self.state == PipelineState.FAILED and self._running.error is not None:
            raise RuntimeError(_message(self._running.error)) from self._running.error
        return self.state

    def cancel(self) -> str:
        """Cancel the job and wait until it has ended."""
        if not PipelineState.is_terminal(self.state):
            self._running.end = PipelineState.CANCELLED
            self._running.job.cancel()
            self._running.join(_CANCEL_SECONDS)
        return self.state

    @property
    def page(self) -> str | None:
        """Address of the session's page, where it has one."""
        return self._running.job.context.uiWebUrl

    def running_steps(self) -> list[str]:
        """Names of the stages that run now, in the order of the job."""
        return self._running.job.running_stages()


def _message(error: BaseException) -> str:
    """What Spark says of a failure, without what Py4J puts before it."""
    java = getattr(error, "java_exception", None)
    return str(error) if java is None else str(java.getMessage())
