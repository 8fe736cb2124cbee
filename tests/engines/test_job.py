"""Waiting for a job: what the watching thread asks must not change what the waiting thread sees."""

import threading

import apache_beam as beam
import pytest
from apache_beam.runners.runner import PipelineResult, PipelineState
from apache_beam.runners.worker.statesampler import StateSampler

from dpbeam.runners import complete, run_and_wait


class SlowState(PipelineResult):
    """As Beam's portable result: `state` asks the server and stores the answer, `wait_until_finish` reads the store.

    The answer RUNNING to the watcher's question arrives after the job is done.
    """

    def __init__(self):
        super().__init__(PipelineState.RUNNING)
        self.asked, self.answer = threading.Event(), threading.Event()

    @property
    def state(self):
        self.asked.set()
        self.answer.wait(10)
        self._state = PipelineState.RUNNING
        return self._state

    def wait_until_finish(self, duration=None):
        assert self.asked.wait(10), "nothing watches the state"
        self._state = PipelineState.DONE
        self.answer.set()
        for thread in threading.enumerate():  # until the late answer has been stored
            if thread.daemon and thread is not threading.current_thread() and "_watch" in thread.name:
                thread.join(2)
        if self._state != PipelineState.DONE:
            raise RuntimeError(f"failed in state {self._state}")
        return self._state


def test_a_late_answer_to_the_watcher_does_not_fail_a_job_that_is_done(monkeypatch):
    monkeypatch.setattr(beam.Pipeline, "run", lambda self: SlowState())
    told = []
    run_and_wait(beam.Pipeline(), complete([]), told.append)
    assert told[-1] == "job state: DONE"


def test_an_interrupt_while_a_bundle_starts_leaves_no_thread(monkeypatch):
    """A thread that goes on keeps the interpreter from ending."""
    start, interrupted = threading.Thread.start, []

    def start_then_interrupt(self):
        start(self)
        sampler = getattr(self._target, "__self__", None)
        if isinstance(sampler, StateSampler) and sampler.tracked_thread is threading.current_thread():
            interrupted.append(self)
            if len(interrupted) == 1:
                raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", start_then_interrupt)
    pipeline = beam.Pipeline()
    _ = pipeline | beam.Create([1]) | beam.Map(print)
    with pytest.raises((KeyboardInterrupt, RuntimeError)) as raised:
        run_and_wait(pipeline, complete([]), lambda _: None)
    assert "KeyboardInterrupt" in repr(raised.value)
    assert interrupted and not any(thread.is_alive() for thread in interrupted)


def test_a_failed_job_raises_the_engines_message():
    pipeline = beam.Pipeline()
    _ = pipeline | beam.Create([1]) | beam.Map(lambda _: 1 / 0)
    told = []
    with pytest.raises(Exception, match="division by zero"):
        run_and_wait(pipeline, complete([]), told.append)
    assert "job state: DONE" not in told
