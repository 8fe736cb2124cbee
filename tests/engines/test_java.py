"""The Java pipeline of docs/how-to/java.md, with Python workers on Prism: the same rows as in Python."""

import os
import re
import shutil
import socket
import subprocess
import sys

import apache_beam as beam
import pytest

from dpbeam import SelectPartitions
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


@pytest.fixture
def service(tmp_path):
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
    with open(tmp_path / "services.log", "w") as log:
        started = [subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT) for command in commands]
    try:
        for port in ports:
            wait_until(lambda port=port: answers(port), 120, "a service")
        yield [f"localhost:{port}" for port in ports]
    finally:
        for process in started:
            process.kill()
            process.wait()


@pytest.mark.engines
@pytest.mark.slow
def test_a_java_pipeline_releases_what_python_releases(service, tmp_path):
    if shutil.which("mvn") is None:
        _refuse("needs Maven, to build the pipeline")
    project, jobs = tmp_path / "java", tmp_path / "temp"
    shutil.copytree(ROOT / "tests/java", project, ignore=shutil.ignore_patterns("target"))
    build = ["mvn", "-q", "-B", "package", "dependency:copy-dependencies", "-DoutputDirectory=target/lib"]
    subprocess.run(build, cwd=project, check=True, stdin=subprocess.DEVNULL, timeout=RUN_SECONDS)
    (tmp_path / "logs.csv").write_text("".join(f"{user},{item}\n" for user, item in PAIRS))
    command = [java(), "-cp", "target/java-pipeline-1.jar:target/lib/*", "dpbeam.SelectQueries"]
    command += ["--runner=PortableRunner", f"--jobEndpoint={service[1]}", f"--expansionService={service[0]}"]
    command += ["--defaultEnvironmentType=LOOPBACK", "--defaultEnvironmentConfig=localhost:1"]
    command += [f"--input={tmp_path}/logs.csv", f"--output={tmp_path}/out.csv", f"--runFolder={jobs}"]
    subprocess.run([*command, "--testKey=java"], cwd=project, check=True, timeout=RUN_SECONDS)

    select = SelectPartitions(
        epsilon=1.0,
        delta=1e-6,
        user="user_id",
        item="query",
        noisy_counts=True,
        run_folder=str(jobs),
        insecure_test_key="java",
    )
    rows = beam.Create([beam.Row(user_id=user, query=item) for user, item in PAIRS])
    wanted = outcome(
        lambda p: kept(p | rows | select | beam.Map(lambda row: f"{row.query},{row.noisy_count}"))
    )
    assert sorted((tmp_path / "out.csv").read_text().splitlines()) == sorted(wanted) != []
    assert os.listdir(jobs) == []
