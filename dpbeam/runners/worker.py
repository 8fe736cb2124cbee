"""Entry point of a Python worker that an engine starts as a plain process (`--environment_type=PROCESS`).

A container image starts workers through Beam's boot program, which installs packages at start. Where an engine
starts workers as processes, dpbeam is installed on every worker machine already, so this module does only what
is left of that contract: ask the engine's provision service for options and addresses, fetch the staged files
(a pickled main session, for callers that use one), and run Beam's own SDK harness. Two rules keep machines clean:
the worker ends when the engine that started it is gone, also after `kill -9`, and it removes its folder.

An engine calls it with `--id=... --provision_endpoint=...` and, depending on its version, further addresses.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Sequence
from types import ModuleType

import grpc
from apache_beam.portability import common_urns
from apache_beam.portability.api import (
    beam_artifact_api_pb2_grpc,
    beam_fn_api_pb2,
    beam_fn_api_pb2_grpc,
    beam_provision_api_pb2,
    beam_provision_api_pb2_grpc,
    beam_runner_api_pb2,
    endpoints_pb2,
)
from apache_beam.runners.portability import artifact_service
from apache_beam.runners.worker.worker_id_interceptor import WorkerIdInterceptor
from google.protobuf import json_format, text_format

PROVISION_SECONDS = 60  # a cluster that starts on a loaded machine answers within seconds
LOGGING_SECONDS = 10
POLL_SECONDS = 1.0
GONE_SIGNS = 5  # polls in a row; gives a harness that ends by itself the time to flush its log
MESSAGE_BYTES = 1 << 20
_STAGED = "staged"  # the folder name that Beam's harness looks into


def main(argv: Sequence[str] | None = None) -> int:
    """Run one worker until the engine ends it; returns the exit code."""
    args = make_parser().parse_known_args(sys.argv[1:] if argv is None else argv)[0]
    if args.id is None or args.provision_endpoint is None:
        print("dpbeam worker: started by hand; an engine starts it with --id and --provision_endpoint")
        return 2
    folder = tempfile.mkdtemp(prefix="dpbeam-worker-")
    watch = Watch(folder)
    signal.signal(signal.SIGTERM, watch.leave)
    watch.start()
    try:
        made_ready(args, folder, watch).main([])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def made_ready(args: argparse.Namespace, folder: str, watch: Watch) -> ModuleType:
    """Beam's harness, with all that it needs; the engine learns what keeps it from beginning."""
    logging_endpoint = args.logging_endpoint
    try:
        info = provision_info(args.provision_endpoint, args.id)
        logging_endpoint = logging_endpoint or info.logging_endpoint.url
        artifacts = args.artifact_endpoint or info.artifact_endpoint.url
        fetch_artifacts(info.dependencies, artifacts, args.id, os.path.join(folder, _STAGED))
        os.environ.update(harness_environment(args, info, folder))
        watch.control = args.control_endpoint or info.control_endpoint.url
        tune_data_plane()
        from apache_beam.runners.worker import sdk_worker_main  # reads the environment
    except Exception as error:
        tell_engine(error, logging_endpoint, args.id)
        raise
    return sdk_worker_main


@functools.cache
def tune_data_plane(message_bytes: int = MESSAGE_BYTES) -> None:
    """Let a worker finish a bundle whatever its output, and send it in messages of about `message_bytes`.

    Beam's Java runner (2.70) reads a bundle's output only after the worker has said that the bundle is done; until
    then it queues 100 messages on its heap. Beam's Python worker (2.77) stops working once 200 MB wait to be sent,
    so a bundle with more output than both hold would wait for ever. Here the worker holds the rest, as Beam's did
    before. With Beam's 10 MB a message the runner's queue could take a gigabyte of heap. Beam has no options for
    either. Calling it again changes nothing.
    """
    from apache_beam.runners.worker import data_plane

    with contextlib.suppress(ImportError, AttributeError):  # an older Beam, whose queue has no limit
        from apache_beam.utils.byte_limited_queue import ByteLimitedQueue

        start = data_plane._GrpcDataChannel._start_send_forwarder

        def start_with_room(channel: data_plane._GrpcDataChannel) -> None:
            channel._pending_send = ByteLimitedQueue()
            start(channel)

        data_plane._GrpcDataChannel._start_send_forwarder = start_with_room  # type: ignore[method-assign,assignment]
    default = data_plane._DEFAULT_SIZE_FLUSH_THRESHOLD
    data_plane._DEFAULT_SIZE_FLUSH_THRESHOLD = message_bytes
    for stream in (
        data_plane.SizeBasedBufferingClosableOutputStream,
        data_plane.TimeBasedBufferingClosableOutputStream,
    ):
        values = stream.__init__.__defaults__ or ()
        stream.__init__.__defaults__ = tuple(message_bytes if value == default else value for value in values)


def make_parser() -> argparse.ArgumentParser:
    """What an engine may say; further flags of a later one are ignored."""
    parser = argparse.ArgumentParser(prog="dpbeam-worker", description=__doc__.splitlines()[0])
    for flag in ("id", "provision_endpoint", "control_endpoint", "logging_endpoint", "artifact_endpoint"):
        parser.add_argument(f"--{flag}")
    return parser


def provision_info(endpoint: str, worker_id: str) -> beam_provision_api_pb2.ProvisionInfo:
    """What the engine tells a new worker.

    Raises:
      grpc.RpcError: the provision service does not answer within a minute.
    """
    with grpc.insecure_channel(endpoint) as channel:
        service = beam_provision_api_pb2_grpc.ProvisionServiceStub(
            grpc.intercept_channel(channel, WorkerIdInterceptor(worker_id))
        )
        request = beam_provision_api_pb2.GetProvisionInfoRequest()
        return service.GetProvisionInfo(request, timeout=PROVISION_SECONDS, wait_for_ready=True).info


def fetch_artifacts(dependencies: Sequence, endpoint: str, worker_id: str, folder: str) -> list[str]:
    """Fetch the files that the job staged; returns their names.

    Args:
      dependencies: artifact descriptions from the provision service.
      endpoint: address of the artifact service; may be empty if there are no dependencies.
      worker_id: sent along, the service serves many workers.
      folder: where the files go; made if needed.
    """
    os.makedirs(folder, exist_ok=True)
    names: list[str] = []
    if not dependencies:
        return names
    with grpc.insecure_channel(endpoint) as channel:
        service = beam_artifact_api_pb2_grpc.ArtifactRetrievalServiceStub(
            grpc.intercept_channel(channel, WorkerIdInterceptor(worker_id))
        )
        for artifact in artifact_service.resolve_artifacts(dependencies, service, folder):
            if artifact.role_urn != common_urns.artifact_roles.STAGING_TO.urn:
                continue
            role = beam_runner_api_pb2.ArtifactStagingToRolePayload.FromString(artifact.role_payload)
            stored = beam_runner_api_pb2.ArtifactFilePayload.FromString(artifact.type_payload)
            name = os.path.basename(role.staged_name)
            os.replace(stored.path, os.path.join(folder, name))
            names.append(name)
    return names


def tell_engine(error: Exception, endpoint: str | None, worker_id: str) -> None:
    """Put into the engine's log why the worker ends: engines throw away what it prints, and Beam's harness, which logs
    its own errors, has not begun.

    Args:
      endpoint: address of the logging service; None or empty, where none is known: nothing is sent.
    """
    if not endpoint:
        return
    entry = beam_fn_api_pb2.LogEntry(
        severity=beam_fn_api_pb2.LogEntry.Severity.CRITICAL,
        message=f"dpbeam-worker {worker_id} ends before it has begun: {type(error).__name__}: {error}",
        trace="".join(traceback.format_exception(error)),
        log_location=__name__,
        thread=threading.current_thread().name,
    )
    entry.timestamp.GetCurrentTime()
    with contextlib.suppress(grpc.RpcError), grpc.insecure_channel(endpoint) as channel:
        service = beam_fn_api_pb2_grpc.BeamFnLoggingStub(
            grpc.intercept_channel(channel, WorkerIdInterceptor(worker_id))
        )
        entries = iter([beam_fn_api_pb2.LogEntry.List(log_entries=[entry])])
        for _ in service.Logging(entries, timeout=LOGGING_SECONDS):  # ends when the service has taken it
            pass


def harness_environment(
    args: argparse.Namespace, info: beam_provision_api_pb2.ProvisionInfo, folder: str
) -> dict[str, str]:
    """The environment variables that Beam's harness reads; flags win over the provision service."""

    def address(flag: str | None, descriptor: endpoints_pb2.ApiServiceDescriptor) -> str:
        return text_format.MessageToString(endpoints_pb2.ApiServiceDescriptor(url=flag or descriptor.url))

    environment = {
        "WORKER_ID": args.id,
        "PIPELINE_OPTIONS": json_format.MessageToJson(info.pipeline_options),
        "SEMI_PERSISTENT_DIRECTORY": folder,
        "LOGGING_API_SERVICE_DESCRIPTOR": address(args.logging_endpoint, info.logging_endpoint),
        "CONTROL_API_SERVICE_DESCRIPTOR": address(args.control_endpoint, info.control_endpoint),
        "RUNNER_CAPABILITIES": " ".join(info.runner_capabilities),
    }
    if info.status_endpoint.url:
        environment["STATUS_API_SERVICE_DESCRIPTOR"] = address(None, info.status_endpoint)
    return environment


class Watch(threading.Thread):
    """Ends this process soon after the engine has gone, or has let go of this worker, or asks it to stop.

    The parent's death is polled: Linux's parent-death signal follows the *thread* that started the process, and
    engines start workers from threads that end long before the engine does. The control service is polled as well: an
    engine that cancels a job closes it, but a harness whose function is still busy would wait for that function.

    Args:
      folder: removed before the process ends.
    """

    def __init__(self, folder: str):
        super().__init__(name="engine-watch", daemon=True)
        self.folder = folder
        self.control: str | None = None  # HOST:PORT, once it is known
        self._parent = os.getppid()

    def run(self) -> None:
        signs = 0
        while os.getppid() == self._parent and signs < GONE_SIGNS:
            time.sleep(POLL_SECONDS)
            signs = signs + 1 if self.control and _refused(self.control) else 0
        self.leave()

    def leave(self, *_: object) -> None:
        """End this process and remove its folder."""
        shutil.rmtree(self.folder, ignore_errors=True)
        os._exit(1)


def _refused(address: str) -> bool:
    """Nobody listens at the address. A slow or overloaded service does not count."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        pass
    return False


if __name__ == "__main__":
    sys.exit(main())
