"""Run a job to its end: tell its state and address, and cancel it on Ctrl-C, SIGTERM or SIGHUP.

Beam leaves a cluster's job running when its launcher dies, and a job that goes on after its launcher removed the
private folder of the run only wastes the cluster. A terminal's Ctrl-C also reaches the job server, so asking it to
cancel is not enough: a Flink job is found by its name and cancelled on the cluster itself. A Spark job's driver is
the job server, so it ends with it. On PySpark the launcher is the driver.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import http.client
import json
import os
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
from apache_beam.runners.runner import PipelineResult, PipelineState
from apache_beam.runners.worker.statesampler import StateSampler

from dpbeam.errors import complain
from dpbeam.runners import options as engine_options
from dpbeam.runners.worker import tune_data_plane
from dpbeam.signals import interrupting

POLL_SECONDS = 1.0
SILENT_POLLS = 5  # a job server that ends with its job misses one or two
CANCEL_SECONDS = 30.0
_SECONDS = 5.0
_FLINK_ENDED = ("FINISHED", "FAILED", "CANCELED")


def run_and_wait(
    pipeline: beam.Pipeline,
    argv: Sequence[str],
    tell: Callable[[str], None] = complain,
    follow: Callable[[list[str]], object] | None = None,
) -> PipelineResult:
    """Run a pipeline and wait for its end.

    Args:
      pipeline: built with `PipelineOptions(argv)`; not yet run.
      argv: the Beam flags as `complete` returned them.
      tell: gets one line per change of state, and the job's address once.
      follow: gets the names of the steps that run, in their order, again and again; on Flink clusters and on PySpark,
        which tell them.

    Raises:
      RuntimeError: the job failed; the message is the engine's.
      KeyboardInterrupt: SIGINT, SIGTERM or SIGHUP came; the job has been cancelled.
    """
    flags = engine_options.read(argv)
    if not flags.is_default:
        tune_data_plane()  # with LOOPBACK the worker is this process
    ended = threading.Event()
    result = None
    try:
        with interrupting(every=True):
            result = pipeline.run()
            with interrupting(every=True):  # Beam's job server installed a handler of its own during run()
                watch = threading.Thread(
                    target=_watch, args=(result, flags, tell, follow, ended), daemon=True
                )
                watch.start()
                result.wait_until_finish()
    except BaseException as error:
        ended.set()
        _stop_samplers()
        if isinstance(error, KeyboardInterrupt):
            tell("cancelling the job")
            _cancel(result, flags, tell)
        raise
    finally:
        ended.set()
    tell(f"job state: {PipelineState.DONE}")
    return result


@contextlib.contextmanager
def quiet_workers() -> Iterator[None]:
    """Workers that the in-process runner starts as processes (`multi_processing`) keep their log to themselves.

    They log 20 lines each on stderr; Beam passes them neither options nor a level.
    """
    environment = beam.transforms.environments.SubprocessSDKEnvironment
    made = environment.from_command_string
    environment.from_command_string = lambda command_string: made(f"{command_string} 2>{os.devnull}")  # type: ignore[method-assign]
    try:
        yield
    finally:
        environment.from_command_string = made  # type: ignore[method-assign]


def _stop_samplers() -> None:
    """Stop what Beam's in-process runner left running in this thread.

    It takes the time of every bundle in a thread. Interrupted just after it started one, it forgets that thread, which
    then runs for ever and keeps the program from ending.
    """
    for thread in threading.enumerate():
        sampler = getattr(getattr(thread, "_target", None), "__self__", None)
        if isinstance(sampler, StateSampler) and sampler.tracked_thread is threading.current_thread():
            with contextlib.suppress(AssertionError):  # it has ended meanwhile
                sampler.stop()


def _watch(
    result: PipelineResult,
    flags: engine_options.EngineFlags,
    tell: Callable[[str], None],
    follow: Callable[[list[str]], object] | None,
    ended: threading.Event,
) -> None:
    """Tell every new state until the job ends. The engine's errors are left to the waiting thread.

    Beam's `state` also stores what it read in the result, where the waiting thread keeps its own: asked of a copy, an
    answer that arrives late cannot overwrite DONE.
    """
    result = copy.copy(result)
    last, silent = None, 0
    job: Any = None
    while not ended.is_set():
        try:
            state = result.state
            silent = 0
        except Exception:  # wait_until_finish says why, if the job fails of it
            state = last
            silent += 1
            if silent == SILENT_POLLS and not ended.is_set():
                tell("job state: the job server does not answer")
        if state is not None and state != last and not PipelineState.is_terminal(state):
            tell(f"job state: {state}")
            last = state
        if job is None:
            job = result if hasattr(result, "running_steps") else flink_job(flags)
            if job and job.page:
                tell(f"job: {job.page}")
        elif follow is not None:
            steps = job.running_steps()
            if steps and not ended.is_set():
                follow(steps)
        if state is not None and PipelineState.is_terminal(state):
            return
        ended.wait(POLL_SECONDS)


@dataclass(frozen=True)
class FlinkJob:
    """A job on a Flink cluster, by the master's REST address and its id."""

    master: str
    id: str

    @property
    def page(self) -> str:
        """Its page for a browser, while it runs."""
        return f"{self.master}/#/job/running/{self.id}/overview"

    def running_steps(self) -> list[str]:
        """Names of the steps that run now, in the order of the job; none where the cluster does not tell."""
        answer = _ask(f"{self.master}/jobs/{self.id}")
        steps = answer.get("vertices") if isinstance(answer, dict) else None
        if not isinstance(steps, list):
            return []
        running = (step for step in steps if isinstance(step, dict) and step.get("status") == "RUNNING")
        return [str(step.get("name", "")) for step in running]


def flink_job(flags: engine_options.EngineFlags) -> FlinkJob | None:
    """The running job of a Flink cluster, None for other runners or before the job is there."""
    master = engine_options.flink_address(flags) if flags.runner == "FlinkRunner" else None
    jobs = _flink_jobs(master, flags.job_name) if master and flags.job_name else []
    return FlinkJob(master, jobs[0]) if master and jobs else None


def _cancel(
    result: PipelineResult | None, flags: engine_options.EngineFlags, tell: Callable[[str], None]
) -> None:
    if result is not None:
        # A job server that the same Ctrl-C ended cannot answer; its failure must not hide the cluster's job.
        canceller = threading.Thread(target=_quietly, args=(result.cancel,), daemon=True)
        canceller.start()
        canceller.join(_SECONDS)
    master = engine_options.flink_address(flags) if flags.runner == "FlinkRunner" else None
    if master is None or flags.job_name is None:
        return
    until = time.monotonic() + CANCEL_SECONDS
    while jobs := _flink_jobs(master, flags.job_name):
        for job in jobs:
            request = urllib.request.Request(f"{master}/jobs/{job}?mode=cancel", method="PATCH")
            _quietly(functools.partial(_send, request))
        if time.monotonic() > until:
            tell(f"the job may still run: cancel it at {master}")
            return
        time.sleep(POLL_SECONDS)


def _send(request: urllib.request.Request) -> None:
    urllib.request.urlopen(request, timeout=_SECONDS).close()


def _quietly(action: Callable[[], object]) -> None:
    with contextlib.suppress(Exception):
        action()


def _flink_jobs(master: str, name: str) -> list[str]:
    """Ids of the jobs of this name that have not ended; none where the cluster does not tell."""
    answer = _ask(f"{master}/jobs/overview")
    jobs = answer.get("jobs") if isinstance(answer, dict) else None
    return [
        job["jid"]
        for job in (jobs if isinstance(jobs, list) else [])
        if isinstance(job, dict)
        and job.get("name") == name
        and job.get("state") not in _FLINK_ENDED
        and "jid" in job
    ]


def _ask(address: str) -> object:
    """What a REST address answers, None where it gives no JSON."""
    try:
        with urllib.request.urlopen(address, timeout=_SECONDS) as answer:
            return json.load(answer)
    except (OSError, ValueError, http.client.HTTPException):
        return None
