"""Waiting for a job: what the watching thread asks must not change what the waiting thread sees."""

import http.server
import json
import threading
from typing import ClassVar

import apache_beam as beam
import pytest
from apache_beam.runners.runner import PipelineResult, PipelineState
from apache_beam.runners.worker.statesampler import StateSampler

from dpbeam.runners import job
from dpbeam.runners.job import run_and_wait
from dpbeam.runners.options import complete
from tests.support import quick_beam
from tests.support.waiting import wait_until


class SlowState(PipelineResult):
    """As Beam's portable result: `state` asks the server and stores the answer, `wait_until_finish` reads the store.

    The answer RUNNING to the watcher's question arrives after the job is done.
    """

    def __init__(self):
        super().__init__(PipelineState.RUNNING)
        self.asked, self.answer, self.stored = (threading.Event() for _ in range(3))

    @property
    def state(self):
        self.asked.set()
        self.answer.wait(10)
        self._state = PipelineState.RUNNING
        self.stored.set()
        return self._state

    def wait_until_finish(self, duration=None):
        assert self.asked.wait(10), "nothing watches the state"
        self._state = PipelineState.DONE
        self.answer.set()
        assert self.stored.wait(10)
        if self._state != PipelineState.DONE:
            raise RuntimeError(f"failed in state {self._state}")
        return self._state


def test_a_late_answer_to_the_watcher_does_not_fail_a_job_that_is_done(monkeypatch):
    monkeypatch.setattr(beam.Pipeline, "run", lambda self: SlowState())
    lines = []
    run_and_wait(beam.Pipeline(), complete([]), lines.append)
    assert lines[-1] == "job state: DONE"


def test_an_interrupt_while_a_bundle_starts_leaves_no_thread(monkeypatch):
    """A thread that goes on keeps the interpreter from ending."""
    for name, own in quick_beam.SAMPLER.items():
        monkeypatch.setattr(StateSampler, name, own)
    start, interrupted = threading.Thread.start, []

    def start_then_interrupt(self):
        start(self)
        sampler = getattr(getattr(self, "_target", None), "__self__", None)  # none once it has ended
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
    lines = []
    with pytest.raises(Exception, match="division by zero"):
        run_and_wait(pipeline, complete([]), lines.append)
    assert "job state: DONE" not in lines


class Silent(PipelineResult):
    """A job whose server answers nothing about its state, but which ends, after some questions."""

    def __init__(self, end):
        super().__init__(PipelineState.RUNNING)
        self._end, self._asked = end, []  # of its copies too

    @property
    def state(self):
        self._asked.append("state")
        raise ConnectionError("gone")

    def wait_until_finish(self, duration=None):
        wait_until(lambda: len(self._asked) > 12, 60, "the questions")
        self._end()
        return PipelineState.DONE


class Master(http.server.BaseHTTPRequestHandler):
    """The REST interface of a Flink master, as far as a launcher asks; `answers` maps a path to a body."""

    answers: ClassVar[dict[str, bytes]] = {}

    def do_GET(self):
        body = self.answers.get(self.path)
        self.send_response(404 if body is None else 200)
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, *_):
        pass


@pytest.fixture
def master():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Master)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    Master.answers = {}
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def watched(monkeypatch, flags, end=lambda: None):
    """What is told of a job that tells no state and is done after `end`, and the steps that are followed."""
    monkeypatch.setattr(beam.Pipeline, "run", lambda self: Silent(end))
    monkeypatch.setattr(job, "POLL_SECONDS", 0.01)
    lines, steps = [], []
    run_and_wait(beam.Pipeline(), flags, lines.append, steps.append)
    return lines, steps


FLINK = ["--runner=FlinkRunner", "--job_name=mine"]


def test_a_job_server_that_does_not_tell_the_state_is_said_once(monkeypatch):
    lines, steps = watched(monkeypatch, FLINK)
    assert lines == ["job state: the job server does not answer", "job state: DONE"]
    assert steps == []


def test_address_and_running_steps_of_a_flink_job(monkeypatch, master):
    jobs = [
        {"jid": "0", "name": "mine", "state": "FAILED"},
        {"jid": "1", "name": "yours", "state": "RUNNING"},
        {"jid": "2", "name": "mine", "state": "RUNNING"},
    ]
    steps = [("a", "FINISHED"), ("b", "RUNNING"), ("c", "CREATED"), ("d", "RUNNING")]
    Master.answers["/jobs/overview"] = json.dumps({"jobs": jobs}).encode()
    vertices = [{"name": name, "status": status} for name, status in steps]
    Master.answers["/jobs/2"] = json.dumps({"vertices": vertices}).encode()
    lines, followed = watched(monkeypatch, [*FLINK, f"--flink_master={master}"])
    assert lines.count(f"job: http://{master}/#/job/running/2/overview") == 1
    assert followed and all(names == ["b", "d"] for names in followed)


RUNNING = b'{"jobs": [{"jid": "2", "name": "mine", "state": "RUNNING"}]}'
NONSENSE = [
    (b"{}", b"{}"),
    (b"no JSON", b""),
    (b"[1]", b""),
    (b'{"jobs": [1, {"name": "mine"}]}', b""),
    (RUNNING, b"not found"),
    (RUNNING, b'{"vertices": [3, {}]}'),
    (RUNNING, b'{"vertices": null}'),
]


def test_a_master_that_answers_nonsense_changes_nothing(monkeypatch, master):
    """One after another, each to several questions of one job."""
    asked, died = [], []
    answer = Master.do_GET

    def next_nonsense(self):
        asked.append(self.path)
        overview, detail = NONSENSE[len(asked) // 3 % len(NONSENSE)]
        Master.answers = {"/jobs/overview": overview, "/jobs/2": detail}
        answer(self)

    monkeypatch.setattr(Master, "do_GET", next_nonsense)
    monkeypatch.setattr(threading, "excepthook", died.append)

    def all_asked():
        wait_until(lambda: len(asked) > 3 * len(NONSENSE), 60, "the last answer")

    lines, followed = watched(monkeypatch, [*FLINK, f"--flink_master={master}"], end=all_asked)
    assert lines[-1] == "job state: DONE" and followed == [] and died == []
