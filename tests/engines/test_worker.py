"""The worker's part of the contract with an engine: provision, staged files, environment, and its end."""

import argparse
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from apache_beam.portability import common_urns
from apache_beam.portability.api import (
    beam_artifact_api_pb2,
    beam_artifact_api_pb2_grpc,
    beam_fn_api_pb2,
    beam_fn_api_pb2_grpc,
    beam_provision_api_pb2,
    beam_provision_api_pb2_grpc,
    beam_runner_api_pb2,
)
from apache_beam.runners.worker import data_plane

from dpbeam.runners import worker
from tests.support.kill_at import in_child
from tests.support.waiting import wait_until

CONTENT = b"staged bytes" * 1000


class Provision(beam_provision_api_pb2_grpc.ProvisionServiceServicer):
    def __init__(self):
        self.ids = []
        self.info = info = beam_provision_api_pb2.ProvisionInfo(runner_capabilities=["a", "b"])
        info.pipeline_options["beam:option:job_name:v1"] = "named"
        info.control_endpoint.url = "control:1"
        info.logging_endpoint.url = "logging:2"

    def GetProvisionInfo(self, request, context):
        self.ids.append(dict(context.invocation_metadata())["worker_id"])
        return beam_provision_api_pb2.GetProvisionInfoResponse(info=self.info)


class Artifacts(beam_artifact_api_pb2_grpc.ArtifactRetrievalServiceServicer):
    def ResolveArtifacts(self, request, context):
        return beam_artifact_api_pb2.ResolveArtifactsResponse(replacements=request.artifacts)

    def GetArtifact(self, request, context):
        for start in range(0, len(CONTENT), 1000):
            yield beam_artifact_api_pb2.GetArtifactResponse(data=CONTENT[start : start + 1000])


class Log(beam_fn_api_pb2_grpc.BeamFnLoggingServicer):
    """What an engine hears: (worker, entry)."""

    def __init__(self):
        self.heard = []

    def Logging(self, request_iterator, context):
        name = dict(context.invocation_metadata())["worker_id"]
        for entries in request_iterator:
            self.heard += [(name, entry) for entry in entries.log_entries]
        yield from ()


@pytest.fixture
def services():
    server = grpc.server(ThreadPoolExecutor(4))
    provision = Provision()
    beam_provision_api_pb2_grpc.add_ProvisionServiceServicer_to_server(provision, server)
    beam_artifact_api_pb2_grpc.add_ArtifactRetrievalServiceServicer_to_server(Artifacts(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}", provision
    server.stop(None).wait()


def staged(name):
    return beam_runner_api_pb2.ArtifactInformation(
        type_urn=common_urns.artifact_types.FILE.urn,
        type_payload=beam_runner_api_pb2.ArtifactFilePayload(path="/on/the/launcher").SerializeToString(),
        role_urn=common_urns.artifact_roles.STAGING_TO.urn,
        role_payload=beam_runner_api_pb2.ArtifactStagingToRolePayload(staged_name=name).SerializeToString(),
    )


def test_it_asks_under_its_own_id(services):
    address, provision = services
    info = worker.provision_info(address, "worker-7")
    assert provision.ids == ["worker-7"]
    assert info.control_endpoint.url == "control:1"


def test_staged_files_keep_name_and_content_and_stay_in_the_folder(services, tmp_path):
    address, _ = services
    folder = tmp_path / "staged"
    assert worker.fetch_artifacts([staged("../../evil"), staged("session")], address, "w", str(folder)) == [
        "evil",
        "session",
    ]
    assert sorted(os.listdir(folder)) == ["evil", "session"]
    assert hashlib.sha256((folder / "session").read_bytes()).digest() == hashlib.sha256(CONTENT).digest()
    assert os.listdir(tmp_path) == ["staged"]


def test_no_staged_files_need_no_service(tmp_path):
    assert worker.fetch_artifacts([], "", "w", str(tmp_path / "staged")) == []


def test_the_harness_environment(services):
    address, _ = services
    args = argparse.Namespace(
        id="w", control_endpoint="flag:9", logging_endpoint=None, artifact_endpoint=None
    )
    variables = worker.harness_environment(args, worker.provision_info(address, "w"), "/folder")
    assert variables["WORKER_ID"] == "w"
    assert variables["SEMI_PERSISTENT_DIRECTORY"] == "/folder"
    assert variables["RUNNER_CAPABILITIES"] == "a b"
    assert json.loads(variables["PIPELINE_OPTIONS"]) == {"beam:option:job_name:v1": "named"}
    assert variables["CONTROL_API_SERVICE_DESCRIPTOR"].strip() == 'url: "flag:9"', (
        "a flag wins over the service"
    )
    assert variables["LOGGING_API_SERVICE_DESCRIPTOR"].strip() == 'url: "logging:2"'
    assert "STATUS_API_SERVICE_DESCRIPTOR" not in variables


def test_started_by_hand_it_says_so(capsys):
    assert worker.main([]) == 2
    assert "an engine starts it" in capsys.readouterr().out


def test_it_ends_with_the_process_that_started_it(tmp_path):
    """The worker waits for a service that never answers; its parent is killed and cannot clean up."""
    program = (
        "import subprocess, sys, time\n"
        "work = 'from dpbeam.runners import worker; worker.POLL_SECONDS = 0.02; "
        'worker.main(["--id=w", "--provision_endpoint=127.0.0.1:9"])\'\n'
        "child = subprocess.Popen([sys.executable, '-c', work])\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    parent = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment
    )
    child = int(parent.stdout.readline())
    try:
        wait_until(lambda: list(tmp_path.glob("dpbeam-worker-*")), 90, "the start of the worker")
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()
    wait_until(lambda: not _lives(child), 90, "the end of the worker")
    assert not list(tmp_path.glob("dpbeam-worker-*")), "its folder stayed"


def test_it_ends_when_the_engine_closes_its_control_service(tmp_path):
    """As after a cancelled job, while a user's function is busy."""
    folder = tmp_path / "worker"
    folder.mkdir()
    with socket.socket() as service:
        service.bind(("127.0.0.1", 0))
        service.listen(64)
        program = (
            "import sys, time\nfrom dpbeam.runners import worker\nworker.POLL_SECONDS = 0.02\n"
            "watch = worker.Watch(sys.argv[1])\nwatch.control = sys.argv[2]\nwatch.start()\n"
            "print('busy', flush=True)\ntime.sleep(600)\n"
        )
        argv = [sys.executable, "-c", program, str(folder), f"127.0.0.1:{service.getsockname()[1]}"]
        busy = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        assert busy.stdout.readline() == "busy\n"
        time.sleep(2 * 0.02 * worker.GONE_SIGNS)
        assert busy.poll() is None, "it must live while the service listens"
    try:
        assert busy.wait(60) == 1
        assert not folder.exists()
    finally:
        busy.kill()
        busy.stdout.close()


def _lives(process):
    try:
        with open(f"/proc/{process}/stat") as stat:
            return stat.read().rsplit(") ", 1)[1][0] != "Z"
    except FileNotFoundError:
        return False


def test_output_travels_in_small_messages():
    """In a process of its own: the limit holds for all streams that Beam makes later."""

    def work() -> int:
        worker.tune_data_plane(1000)
        assert data_plane._DEFAULT_SIZE_FLUSH_THRESHOLD == 1000
        for time_limit in (0, 1000):
            sent = []
            stream = data_plane.ClosableOutputStream.create(sent.append, sent.append, time_limit)
            for _ in range(20):
                stream.write(b"x" * 300)
                stream.maybe_flush()
            assert [len(message) for message in sent] == [1200] * 5, sent
            stream.close()
        return 0

    assert in_child(work) == 0


def test_a_worker_can_finish_a_bundle_that_nobody_reads_yet():
    """300 MB wait to be sent; without the worker's setting the last write never returns."""

    def work() -> int:
        signal.alarm(60)  # ends the process
        worker.tune_data_plane()
        stream = data_plane._GrpcDataChannel().output_stream("instruction", "transform")
        for _ in range(300):
            stream.write(bytes(1 << 20))
            stream.maybe_flush()
        stream.close()
        return 0

    assert in_child(work) == 0


def test_a_worker_that_cannot_begin_says_why_in_the_engines_log(services):
    """Engines throw away what a process prints: "exit code 1" was all that was seen."""
    address, provision = services
    server, log = grpc.server(ThreadPoolExecutor(2)), Log()
    beam_fn_api_pb2_grpc.add_BeamFnLoggingServicer_to_server(log, server)
    place = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    provision.info.dependencies.append(staged("session"))
    provision.info.artifact_endpoint.url = "127.0.0.1:1"  # nobody is there
    provision.info.logging_endpoint.url = place
    try:
        argv = [sys.executable, "-m", "dpbeam.runners", "--id=w-3", f"--provision_endpoint={address}"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    finally:
        server.stop(None).wait()
    assert done.returncode == 1 and "UNAVAILABLE" in done.stderr
    ((name, entry),) = log.heard
    assert name == "w-3" and entry.severity == beam_fn_api_pb2.LogEntry.Severity.CRITICAL
    assert entry.message.startswith("dpbeam-worker w-3 ends before it has begun: ")
    assert "UNAVAILABLE" in entry.message and "fetch_artifacts" in entry.trace


def test_an_engine_that_does_not_listen_is_not_waited_for():
    begun = time.monotonic()
    for endpoint in (None, "", "127.0.0.1:1"):
        worker.tell_engine(ValueError("text"), endpoint, "w")
    assert time.monotonic() - begun < worker.LOGGING_SECONDS
