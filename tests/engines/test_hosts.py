"""Hosts that share nothing but an object store: the same bytes as on one machine, also when one dies in mid-job."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from dpbeam.cli import main
from dpbeam.engine.beam.messages import FILE_PREFIX
from dpbeam.engine.beam.owner import RUN_FOLDER
from dpbeam.runners import options
from tests.engines.conftest import _fetch, _refuse, java, pyspark_daemon
from tests.support import hosts
from tests.support.hosts import Network
from tests.support.long_items import write_long_items
from tests.support.stores import ROOT, Store, comparable, running, selection
from tests.support.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.engines]

WORKERS = ("one", "two")
S3_PORT = 7070
FLINK = "launcher:8081"


@pytest.fixture(scope="module")
def network(tmp_path_factory) -> Iterator[Network]:
    """A launcher and two workers, which see this installation and the engines, and nothing else of this machine."""
    if missing := hosts.missing():
        _refuse(missing)
    if missing := hosts.refused():
        pytest.skip(f"needs network namespaces, which this machine refuses: {missing}")
    _fetch("flink")
    cache = pathlib.Path(options.cache_folder())
    parts = ["jars", *(path.name for path in cache.glob("flink-[0-9]*"))]
    seen = hosts.programs(os.path.realpath(java()), str(cache), parts)
    with Network(tmp_path_factory.mktemp("hosts"), ["launcher", *WORKERS], seen) as made:
        yield made


@pytest.fixture(scope="module")
def store(network, aws_keys, tmp_path_factory) -> Iterator[Store]:
    _fetch("s3")
    address = {"S3_HOST": network.address, "S3_PORT": str(S3_PORT)}
    made = Store("s3", "s3://dpbeam", f"{network.address}:{S3_PORT}", {**address, **aws_keys}, network.enter)
    with running(made, options.cache_folder(), tmp_path_factory.mktemp("s3") / "store"):
        yield made


@pytest.fixture(scope="module")
def objects(store) -> pathlib.Path:
    """Where the server keeps the bucket's objects, which no host sees."""
    return pathlib.Path(store.environment["DPBEAM_CACHE"], f"run/s3-{S3_PORT}/objects/dpbeam")


@pytest.fixture(scope="module")
def environment(store, aws_keys) -> dict[str, str]:
    """What every host has in its environment: its programs, where the store is, and credentials."""
    home = os.path.dirname(os.path.dirname(os.path.realpath(java())))
    variables = {"JAVA_HOME": home, "DPBEAM_PYTHON": sys.executable, "DPBEAM_CACHE": hosts.CACHE}
    variables["PATIENCE"] = str(PATIENCE)
    return {"AWS_ENDPOINT_URL": f"http://{store.address}", **aws_keys, **variables}


@pytest.fixture(scope="class")
def cluster(request, network, environment) -> Iterator[Network]:
    """The engine of the class of tests, on fresh hosts."""
    starting = {name: request.cls.start(network, name, environment) for name in network.names}
    for name, process in starting.items():
        request.cls.started(network, name, process)
    yield network
    network.end_hosts()


@pytest.fixture(scope="module")
def pairs(store, environment, tmp_path_factory) -> pathlib.Path:
    """The input here, which is in the store as well."""
    folder = tmp_path_factory.mktemp("pairs")
    write_long_items(folder, users=4_000, items=1_500, files=4)
    program = "import pathlib, sys; from tests.support.stores import put; put(pathlib.Path(sys.argv[1]), sys.argv[2])"
    argv = [*store.enter, sys.executable, "-c", program, str(folder), f"{store.url}/pairs"]
    subprocess.run(argv, check=True, cwd=ROOT, env={**os.environ, **environment}, timeout=60)
    return folder


@pytest.fixture(scope="module")
def expected(pairs, tmp_path_factory) -> dict[str, bytes]:
    """What the same command writes on this machine."""
    folder = tmp_path_factory.mktemp("expected")
    assert main(selection(str(pairs), str(folder))) == 0
    return output(folder)


def output(folder: pathlib.Path) -> dict[str, bytes]:
    return comparable({path.name: path.read_bytes() for path in (folder / "out").iterdir()})


def left_behind(objects: pathlib.Path, place: str) -> list[pathlib.Path]:
    """What is not output: private files, staged ones, parts of uploads that were not completed."""
    folders = [objects / place / "temp", *objects.glob(f"{place}/out/*/"), objects / ".sgwtmp"]
    return [path for folder in folders for path in folder.rglob("*") if path.is_file()]


def ask(network: Network, path: str) -> dict:
    """What the job manager's REST service answers."""
    return json.loads(network.hosts["launcher"].fetch(f"http://{FLINK}/{path}"))


def job_of(network: Network) -> str:
    """The id of the newest job."""
    jobs = ask(network, "jobs/overview")["jobs"]
    return max(jobs, key=lambda job: job["start-time"])["jid"] if jobs else ""


def task_managers(network: Network) -> list[str]:
    return [manager["id"] for manager in ask(network, "taskmanagers")["taskmanagers"]]


def steps_of(network: Network, job: str) -> list[dict[str, dict]]:
    """Of every step that is cut in two: task manager -> what it did there."""
    steps = []
    for vertex in ask(network, f"jobs/{job}")["vertices"]:
        if vertex["parallelism"] == len(WORKERS):
            managers = ask(network, f"jobs/{job}/vertices/{vertex['id']}/taskmanagers")["taskmanagers"]
            steps.append({manager["taskmanager-id"]: manager for manager in managers})
    return steps


def host_of(manager: str) -> str:
    return manager.partition(":")[0]


def that_worked(network: Network, job: str) -> set[str]:
    """The task managers of a job that is done; one of each worker, and both had data in several steps."""
    steps = [
        {name: did["metrics"]["read-records"] + did["metrics"]["write-records"] for name, did in step.items()}
        for step in steps_of(network, job)
    ]
    managers = {name for step in steps for name in step}
    assert sorted(map(host_of, managers)) == sorted(WORKERS), steps
    assert sum(len(step) == len(WORKERS) and min(step.values()) > 0 for step in steps) >= 4, steps
    return managers


def restarts(network: Network, job: str) -> int:
    """How often the engine tried a part of the job again, at most."""
    vertices = [
        ask(network, f"jobs/{job}/vertices/{v['id']}") for v in ask(network, f"jobs/{job}")["vertices"]
    ]
    return max(part["attempt"] for vertex in vertices for part in vertex["subtasks"])


def check_written(objects: pathlib.Path, place: str, expected: dict[str, bytes]) -> None:
    """The output is there, and nothing else."""
    assert output(objects / place) == expected
    assert left_behind(objects, place) == []


class OnHosts:
    """Runs of the command on one engine."""

    engine: str
    runner: tuple[str, ...]

    @classmethod
    def start(cls, network: Network, name: str, environment: dict[str, str]) -> subprocess.Popen:
        """The engine's master on the launcher, one worker of it with one slot on each of the others."""
        own = {"HOST": name, "MASTER": "launcher", "WORKERS": str(int(name in WORKERS))}
        variables = environment | {f"{cls.engine.upper()}_{key}": value for key, value in own.items()}
        return network.host(name).start(
            [f"scripts/{cls.engine}", "up"], variables, network.folder / f"{name}.log"
        )

    @classmethod
    def started(cls, network: Network, name: str, process: subprocess.Popen) -> None:
        assert process.wait(150 * PATIENCE) == 0, (network.folder / f"{name}.log").read_text()

    def command(self, place: str, store: Store) -> list[str]:
        command = selection(f"{store.url}/pairs", f"{store.url}/{place}", *self.runner)
        return [sys.executable, "-m", "dpbeam.cli", *command]

    def run_while_a_host_dies(self, cluster: Network, store: Store, objects, environment, expected) -> None:
        """kill -9 of all that runs there while messages travel; its disk and its network are thrown away."""
        place = f"{self.engine}-faults"  # the store outlives the engine
        log = cluster.folder / f"{place}.log"
        assert cluster.hosts["two"].run(["touch", "/tmp/mark"]).returncode == 0
        run = cluster.hosts["launcher"].start(self.command(place, store), environment, log)
        try:
            messages = f"{place}/temp/{RUN_FOLDER}*/{FILE_PREFIX}*"

            def come() -> bool:
                with contextlib.suppress(FileNotFoundError):  # a folder of the store that went meanwhile
                    return any(objects.glob(messages))
                return False

            wait_until(lambda: run.poll() is not None or come(), 240, "messages in files")
            assert run.poll() is None, log.read_text()
            cluster.hosts["two"].end()
            time.sleep(3)
            back = self.start(cluster, "two", environment)
            assert cluster.hosts["two"].run(["ls", "/tmp/mark"]).returncode == 2
            self.started(cluster, "two", back)
            assert run.wait(400 * PATIENCE) == 0, log.read_text()[-4000:]
        finally:
            run.kill()
            run.wait()
        check_written(objects, place, expected)


class TestFlink(OnHosts):
    engine = "flink"
    runner = ("--runner=FlinkRunner", f"--flink_master={FLINK}")

    def test_the_hosts_share_nothing(self, cluster):
        """Neither a disk nor loopback, and what is common cannot be written: else the rest proves nothing."""
        first, second = (cluster.hosts[name] for name in WORKERS)
        assert first.run(["touch", "/tmp/mark", "/mark", f"{hosts.HOME}/mark"]).returncode == 0
        assert second.run(["ls", "/tmp/mark"]).returncode and second.run(["ls", "/mark"]).returncode
        assert second.run(["ls", f"{hosts.HOME}/mark"]).returncode
        for path in (str(ROOT), hosts.CACHE + "/jars", "/usr", "/etc"):
            assert "Read-only" in first.run(["touch", f"{path}/mark"]).stderr, path
        assert first.fetch(f"http://{FLINK}/overview")
        assert not first.fetch(f"http://localhost:{FLINK.partition(':')[2]}/overview")
        assert not pathlib.Path("/mark").exists()

    def test_a_host_that_dies_and_comes_back_empty(
        self, cluster, store, objects, environment, pairs, expected
    ):
        (lost,) = (name for name in task_managers(cluster) if host_of(name) == "two")
        self.run_while_a_host_dies(cluster, store, objects, environment, expected)
        job = job_of(cluster)
        assert restarts(cluster, job) > 0, "the host died too late"
        assert lost not in that_worked(cluster, job), "the host that came back had no part"


class TestPySpark(OnHosts):
    """A standalone cluster of PySpark's own jars, with Spark's workers."""

    engine = "pyspark"
    # A host that is gone answers nothing, not even that it is gone: Spark waits two minutes for it by default.
    runner = (
        *("--runner=PySparkRunner", "--spark_master_url=spark://launcher:7077"),
        *("--spark_conf=spark.network.timeout=20s", "--spark_conf=spark.network.timeoutInterval=5s"),
        "--spark_conf=spark.executor.heartbeatInterval=5s",
    )

    @classmethod
    def start(cls, network: Network, name: str, environment: dict[str, str]) -> subprocess.Popen:
        master = "spark://launcher:7077"
        worker = ("Worker", "--host", name, "-c", "1", "-m", "1g", "-d", "/tmp/work", master)
        command = worker if name in WORKERS else ("Master", "--host", name, "--port", "7077")
        argv, variables = pyspark_daemon(*command)
        variables |= environment | {"SPARK_DAEMON_JAVA_OPTS": "-Dspark.worker.timeout=20"}
        return network.host(name).start(argv, variables, network.folder / f"{name}.log")

    @classmethod
    def started(cls, network: Network, name: str, process: subprocess.Popen) -> None:
        log = network.folder / f"{name}.log"
        ready = "Successfully registered with master" if name in WORKERS else "elected leader"
        wait_until(lambda: process.poll() is not None or ready in log.read_text(), 90, f"Spark on {name}")
        assert process.poll() is None, log.read_text()

    def test_a_host_that_dies_and_comes_back_empty(
        self, cluster, store, objects, environment, pairs, expected
    ):
        self.run_while_a_host_dies(cluster, store, objects, environment, expected)
        master = (cluster.folder / "launcher.log").read_text()
        apps = re.findall(r"Launching executor (app-\S+)/\d+ on worker", master)
        assert apps.count(apps[-1]) > len(WORKERS), "the host died too late"
