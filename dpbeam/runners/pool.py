"""A pool of Python workers beside an engine's process, as a sidecar of it (`--environment_type=EXTERNAL`).

The engine asks the pool for a worker where it would have started a container or a process, and the pool starts one
as `--environment_type=PROCESS` does: `dpbeam-worker` with the engine's addresses. Beam's own pool listens on every
address of the machine, and whoever reaches it can make a worker run code of his. This one listens on loopback, which
the containers of a pod share.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import traceback

import grpc
from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc
from apache_beam.utils.thread_pool_executor import shared_unbounded_instance

_STOP_SECONDS = 10.0


class WorkerPool(beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolServicer):
    """Starts and stops workers, each a process that runs `command` with the engine's addresses as flags."""

    def __init__(self, command: list[str]):
        self._command = command
        self._lock = threading.Lock()
        # With their ids, the oldest first: Beam numbers the workers of every job from 1, so two may have the same.
        self._workers: list[tuple[str, subprocess.Popen[bytes]]] = []

    def StartWorker(
        self, request: beam_fn_api_pb2.StartWorkerRequest, context: grpc.ServicerContext
    ) -> beam_fn_api_pb2.StartWorkerResponse:
        flags = [f"--id={request.worker_id}"]
        for name in ("provision", "control", "logging", "artifact"):
            url = getattr(request, f"{name}_endpoint").url
            flags += [f"--{name}_endpoint={url}"] if url else []
        try:
            with self._lock:
                self._reap()
                worker = subprocess.Popen([*self._command, *flags], stdin=subprocess.DEVNULL)
                self._workers.append((request.worker_id, worker))
        except OSError:
            return beam_fn_api_pb2.StartWorkerResponse(error=traceback.format_exc(limit=0))
        return beam_fn_api_pb2.StartWorkerResponse()

    def StopWorker(
        self, request: beam_fn_api_pb2.StopWorkerRequest, context: grpc.ServicerContext
    ) -> beam_fn_api_pb2.StopWorkerResponse:
        with self._lock:
            named = [entry for entry in self._workers if entry[0] == request.worker_id][:1]
            self._workers = [entry for entry in self._workers if entry not in named]
        _stop([worker for _, worker in named])
        return beam_fn_api_pb2.StopWorkerResponse()

    def close(self) -> None:
        """Stop every worker."""
        with self._lock:
            workers, self._workers = self._workers, []
        _stop([worker for _, worker in workers])

    def _reap(self) -> None:
        """Forget workers that ended by themselves; polling them leaves no zombies."""
        self._workers = [(name, worker) for name, worker in self._workers if worker.poll() is None]


def _stop(workers: list[subprocess.Popen[bytes]]) -> None:
    for worker in workers:
        worker.terminate()
    for worker in workers:
        try:
            worker.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()


def serve(port: int, command: list[str]) -> int:
    """Serve workers on loopback until SIGTERM or SIGINT; returns the exit code.

    Args:
      port: where; 0 takes a free one. It is printed.
      command: starts a worker, given the engine's addresses as flags.
    """
    ended = threading.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: ended.set())
    server = grpc.server(shared_unbounded_instance(), options=[("grpc.so_reuseport", 0)])
    pool = WorkerPool(command)
    beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(pool, server)
    try:
        bound = server.add_insecure_port(f"127.0.0.1:{port}")
    except RuntimeError:
        print(f"dpbeam-worker: --pool_port: {port} is taken", file=sys.stderr)
        return 2
    server.start()
    print(f"dpbeam worker: pool at localhost:{bound}", flush=True)
    ended.wait()
    server.stop(0).wait()
    pool.close()
    return 0
