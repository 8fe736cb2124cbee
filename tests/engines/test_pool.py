"""The pool of workers: what it starts and ends, and who reaches it."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys

import grpc
import pytest
from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc

from tests.support.waiting import wait_until

pytestmark = pytest.mark.engines  # a process for each pool and worker

WORKER = """
import json, os, sys, time
open(os.environ["SEEN"] + f"/{os.getpid()}", "w").write(json.dumps(sys.argv[1:]))
time.sleep(100)
"""
SERVE = "import sys; from dpbeam.runners.pool import serve; sys.exit(serve(int(sys.argv[1]), sys.argv[2:]))"


def lives(process: int) -> bool:
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Pool:
    """A pool whose workers write their flags to a file and sleep."""

    def __init__(self, folder: pathlib.Path):
        self.seen = folder / "seen"
        self.seen.mkdir()
        program = folder / "worker.py"
        program.write_text(WORKER)
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVE, "0", sys.executable, str(program)],
            env={**os.environ, "SEEN": str(self.seen)},
            stdout=subprocess.PIPE,
            text=True,
        )
        line = self.process.stdout.readline()
        assert line.startswith("dpbeam worker: pool at localhost:"), line
        self.port = int(line.rpartition(":")[2])
        self.channel = grpc.insecure_channel(f"localhost:{self.port}")
        self.stub = beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolStub(self.channel)

    def workers(self) -> dict[int, list[str]]:
        """Flags of all workers so far, by process."""
        return {int(path.name): json.loads(path.read_text()) for path in self.seen.iterdir()}

    def start(self, name: str) -> int:
        """Start a worker as an engine does; its process."""
        before = set(os.listdir(self.seen))
        request = beam_fn_api_pb2.StartWorkerRequest(worker_id=name)
        request.provision_endpoint.url = "localhost:11"
        request.control_endpoint.url = "localhost:12"
        assert not self.stub.StartWorker(request, timeout=20).error
        wait_until(
            lambda: any(p.stat().st_size for p in self.seen.iterdir() if p.name not in before), 20, "a worker"
        )
        return int((set(os.listdir(self.seen)) - before).pop())

    def end(self) -> None:
        self.channel.close()
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        for process in self.workers():
            if lives(process):
                os.kill(process, signal.SIGKILL)


@pytest.fixture
def pool(tmp_path):
    made = Pool(tmp_path)
    yield made
    made.end()


def test_workers_start_with_the_addresses_and_end_when_told(pool):
    first, second = pool.start("1-1"), pool.start("1-2")
    assert pool.workers()[first] == [
        "--id=1-1",
        "--provision_endpoint=localhost:11",
        "--control_endpoint=localhost:12",
    ]
    pool.stub.StopWorker(beam_fn_api_pb2.StopWorkerRequest(worker_id="1-1"), timeout=20)
    assert not lives(first) and lives(second)
    pool.stub.StopWorker(beam_fn_api_pb2.StopWorkerRequest(worker_id="1-1"), timeout=20)  # again: harmless
    pool.process.terminate()
    assert pool.process.wait(20) == 0
    assert not lives(second)


def test_two_jobs_may_give_their_workers_the_same_id(pool):
    """The one is not lost to the pool when the other starts, and who began first is stopped first."""
    first, second = pool.start("1-1"), pool.start("1-1")
    pool.stub.StopWorker(beam_fn_api_pb2.StopWorkerRequest(worker_id="1-1"), timeout=20)
    assert not lives(first) and lives(second)
    third = pool.start("1-1")
    pool.process.terminate()
    assert pool.process.wait(20) == 0
    assert not lives(second) and not lives(third)


def test_a_worker_that_ended_is_no_zombie(pool):
    gone = pool.start("1")
    os.kill(gone, signal.SIGKILL)
    wait_until(lambda: not lives(gone), 20, "the end of the worker")
    pool.start("2")
    assert not pathlib.Path(f"/proc/{gone}").exists()


def test_it_listens_on_loopback_alone(pool):
    """Whoever reaches the pool can make a worker run code of his."""
    rows = [
        line.split()
        for name in ("tcp", "tcp6")
        for line in pathlib.Path(f"/proc/{pool.process.pid}/net/{name}").read_text().splitlines()[1:]
    ]
    listening = {row[1] for row in rows if row[3] == "0A" and row[1].endswith(f":{pool.port:04X}")}
    # 127.0.0.1, which a socket for both kinds of addresses says in IPv6.
    assert listening <= {f"{place}0100007F:{pool.port:04X}" for place in ("", "0000000000000000FFFF0000")}
    assert listening


def test_a_port_that_is_taken_is_one_line():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        argv = [sys.executable, "-m", "dpbeam.runners.worker", f"--pool_port={port}"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == f"dpbeam-worker: --pool_port: {port} is taken"
