"""Java pipelines with every kind of release, Python workers on Prism: the same rows as in Python."""

import os
import re
import shutil
import socket
import subprocess
import sys

import apache_beam as beam
import pytest

import dpbeam
from dpbeam.runners import options
from tests.engines.conftest import ROOT, RUN_SECONDS, _fetch, _refuse, java
from tests.support.pipelines import kept, outcome
from tests.support.stores import free_port
from tests.support.waiting import wait_until

PAIRS = [
    (f"u{user}", f"query {item}") for item, users in ((1, 500), (2, 300), (3, 4)) for user in range(users)
]
SOURCE = "src/main/java/dpbeam/SelectQueries.java"


def test_the_page_shows_the_program_that_is_run():
    page = (ROOT / "docs/how-to/java.md").read_text()
    (shown,) = re.findall(r"```java\n(.*?)```", page, re.DOTALL)
    lines = [line.strip() for line in (ROOT / "tests/java" / SOURCE).read_text().splitlines()]
    text = "\n".join(lines)
    assert "\n".join(line.strip() for line in shown.splitlines()) in text


def answers(port):
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """host:port of an expansion service, and of Prism."""
    _fetch("prism")
    ports = [free_port(), free_port()]
    commands = [
        [
            sys.executable,
            "-m",
            "apache_beam.runners.portability.expansion_service_main",
            f"--port={ports[0]}",
        ],
        [options.prism_binary(options.cache_folder()), f"--job_port={ports[1]}", "--serve_http=false"],
    ]
    commands[0] += ["--fully_qualified_name_glob=dpbeam.*", "--serve_loopback_worker"]
    with open(tmp_path_factory.mktemp("services") / "log", "w") as log:
        started = [subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT) for command in commands]
    try:
        for port in ports:
            wait_until(lambda port=port: answers(port), 120, "a service")
        yield [f"localhost:{port}" for port in ports]
    finally:
        for process in started:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """The folder of the built pipelines."""
    if shutil.which("mvn") is None:
        _refuse("needs Maven, to build the pipelines")
    folder = tmp_path_factory.mktemp("project") / "java"
    shutil.copytree(ROOT / "tests/java", folder, ignore=shutil.ignore_patterns("target"))
    build = ["mvn", "-q", "-B", "package", "dependency:copy-dependencies", "-DoutputDirectory=target/lib"]
    subprocess.run(build, cwd=folder, check=True, stdin=subprocess.DEVNULL, timeout=RUN_SECONDS)
    return folder


@pytest.fixture
def run_java(service, project, tmp_path):
    """Runs a program on the pairs; its output begins with `out.csv`, and its private folder is `temp`."""
    (tmp_path / "logs.csv").write_text("".join(f"{user},{item}\n" for user, item in PAIRS))

    def run(program):
        command = [java(), "-cp", "target/java-pipeline-1.jar:target/lib/*", f"dpbeam.{program}"]
        command += [
            "--runner=PortableRunner",
            f"--jobEndpoint={service[1]}",
            f"--expansionService={service[0]}",
        ]
        command += ["--defaultEnvironmentType=LOOPBACK", "--defaultEnvironmentConfig=localhost:1"]
        command += [
            f"--input={tmp_path}/logs.csv",
            f"--output={tmp_path}/out.csv",
            f"--runFolder={tmp_path}/temp",
        ]
        subprocess.run([*command, "--testKey=java"], cwd=project, check=True, timeout=RUN_SECONDS)
        assert os.listdir(tmp_path / "temp") == []

    return run


BUDGET = {"epsilon": 1.0, "delta": 1e-6, "insecure_test_key": "java"}
COLUMNS = {**BUDGET, "user": "user_id", "item": "query"}
LOGS = [beam.Row(user_id=user, query=item) for user, item in PAIRS]
AGENTS = [beam.Row(patient=f"a{n}", value=0.25 + n % 3 / 4, beds=1.0) for n in range(200)]


def in_python(transform, rows=LOGS):
    return sorted(outcome(lambda pipeline: kept(pipeline | beam.Create(rows) | transform)))


@pytest.mark.engines
@pytest.mark.slow
def test_a_java_pipeline_releases_what_python_releases(run_java, tmp_path):
    run_java("SelectQueries")
    wanted = in_python(dpbeam.SelectPartitions(**COLUMNS, noisy_counts=True, run_folder=str(tmp_path)))
    lines = [f"{row.query},{row.noisy_count}" for row in wanted]
    assert sorted((tmp_path / "out.csv").read_text().splitlines()) == sorted(lines) != []


@pytest.mark.engines
@pytest.mark.slow
def test_every_other_kind(run_java, tmp_path):
    run_java("EveryKind")
    domain, agents = ["query 1", "query 3", "nobody's"], {**BUDGET, "agent": "patient", "num_agents": 200}
    folder = {"run_folder": str(tmp_path)}
    kinds = [
        (dpbeam.TopKItems(**COLUMNS, k=2, noisy_counts=True, **folder), LOGS),
        (dpbeam.HittingSet(**COLUMNS, k=2, pairs=1000, **folder), LOGS),
        (dpbeam.CountItems(**COLUMNS, domain=domain, **folder), LOGS),
        (
            dpbeam.Packing(**agents, supplies={"beds": 150.0}, alpha=0.3, allow_small_supply=True, **folder),
            AGENTS,
        ),
    ]
    for transform, rows in kinds:
        wanted = in_python(transform, rows)
        name = type(transform).__name__
        lines = [line.split("\t") for line in (tmp_path / f"out.csv.{name}").read_text().splitlines()]
        types = [type(value) for value in wanted[0]]
        came = sorted(tuple(of(value) for of, value in zip(types, line)) for line in lines)
        assert came == [tuple(row) for row in wanted], name
