"""PySparkRunner on YARN, with HDFS for all files: the page's own command, and what YARN does to an application."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dpbeam.cli import main
from dpbeam.storage import FileSystems
from tests.support.examples import ROOT, Workspace, blocks
from tests.support.long_items import write_long_items
from tests.support.stores import comparable, put, selection
from tests.support.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.slow
#: Spark 4.3 may fail by itself while it submits, before anything runs; whoever meets it submits again.
SPARKS_OWN = "ConcurrentModificationException"
#: Of a small machine; what the documents show has the sizes of a cluster.
SMALL = ["--num-executors=2", "--executor-memory=512m", "--driver-memory=512m"]


@pytest.fixture
def submit(yarn_on_hdfs, tmp_path):
    """Starts `spark-submit --master yarn` with a command of dpbeam; its output goes to tmp_path/log."""
    pytest.importorskip("pyspark")
    (tmp_path / "job.py").write_text("import sys\nfrom dpbeam.cli import main\nsys.exit(main())\n")
    environment = {
        **os.environ,
        **yarn_on_hdfs.variables(),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}",
    }
    places = [f"--conf=spark.{part}.PYTHONPATH={ROOT}" for part in ("yarn.appMasterEnv", "executorEnv")]

    def start(command: list[str], *flags: str) -> subprocess.Popen:
        with open(tmp_path / "log", "wb") as log:
            return subprocess.Popen(
                ["spark-submit", "--master=yarn", *SMALL, *places, *flags, "job.py", *command],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=tmp_path,
                env=environment,
            )

    return start


def executors(yarn) -> list[int]:
    """Containers of this YARN that run tasks, by what their command lines name."""
    here, numbers = Path(yarn.finding["HADOOP_CONF_DIR"]).parent.name, []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (folder / "cmdline").read_bytes().decode(errors="replace")
            if "java\0" in command and "YarnCoarseGrainedExecutorBackend" in command and here in command:
                numbers.append(int(folder.name))
    return numbers


@pytest.fixture(scope="module")
def pairs(yarn_on_hdfs, tmp_path_factory):
    """(folder of this machine, the same on HDFS): files of 6,000 users."""
    folder = tmp_path_factory.mktemp("pairs")
    write_long_items(folder, users=6_000, items=2_000, files=6)
    put(folder, f"{yarn_on_hdfs.url}/pairs")
    return str(folder), f"{yarn_on_hdfs.url}/pairs"


def files_of(place: str) -> dict[str, bytes]:
    """By name, of a folder on a store."""
    paths = FileSystems.list_prefix(f"{place}/")
    return {path.rpartition("/")[2]: FileSystems.read(path) for path in paths}


def test_the_first_example_of_the_page(yarn_on_hdfs, tmp_path):
    """As it stands but for the places of a cluster, and with little memory."""
    block = blocks((ROOT / "docs" / "how-to" / "spark.md").read_text())[0]
    assert block.mark == "run on yarn"
    code = block.code
    for shown, here in (
        ("namenode:9870", yarn_on_hdfs.url.removeprefix("hdfs://")),
        ("/etc/hadoop/conf", yarn_on_hdfs.finding["HADOOP_CONF_DIR"]),
        ("/opt/dpbeam/bin/python", sys.executable),
        ("spark-submit ", f"spark-submit {' '.join(SMALL)} "),
    ):
        assert shown in code
        code = code.replace(shown, here)
    workspace = Workspace(tmp_path)
    workspace.environment["PATH"] += os.pathsep + os.path.dirname(sys.executable)
    put(tmp_path / "logs", f"{yarn_on_hdfs.url}/logs")
    for _ in range(3):
        done = workspace.run(
            type(block)(block.line, block.language, code, block.mark), 400 * PATIENCE, apart=True
        )
        if SPARKS_OWN not in done.stderr:
            break
    assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr[-4000:]}"
    released = files_of(f"{yarn_on_hdfs.url}/out")
    assert set(released) == {"queries-00000-of-00001.parquet", "queries.ledger.json"}


def test_executors_that_are_killed_do_not_change_the_release(yarn_on_hdfs, submit, pairs, tmp_path):
    here, there = pairs
    assert main(selection(here, str(tmp_path / "own"))) == 0
    place = f"{yarn_on_hdfs.url}/killed"

    def log() -> str:
        return (tmp_path / "log").read_text()

    for _ in range(3):
        process = submit([*selection(there, place), "--runner=PySparkRunner"])
        wait_until(lambda: "Starting task" in log() or process.poll() is not None, 200, "a task of the job")  # noqa: B023
        if SPARKS_OWN not in log():
            break
    killed = executors(yarn_on_hdfs)
    for number in killed:
        os.kill(number, signal.SIGKILL)
    assert process.wait(400 * PATIENCE) == 0 and killed, log()[-6000:]
    assert re.search("lost executor", log(), re.I)
    own = {path.name: path.read_bytes() for path in (tmp_path / "own" / "out").iterdir()}
    assert sum(pq.read_table(path).num_rows for path in (tmp_path / "own" / "out").glob("*.parquet")) > 50
    assert comparable(files_of(f"{place}/out")) == comparable(own)
    assert not FileSystems.list_prefix(f"{place}/temp/"), "private files were left"


def test_yarn_knows_how_an_application_ended(yarn_on_hdfs, submit, tmp_path):
    """The driver runs in a container of its own; a command that is refused is a failed application, without output."""
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "a.csv").write_text("user,item\n" + "u,i\n" * 50 + "only one\n")
    place = f"{yarn_on_hdfs.url}/refused"
    put(tmp_path / "bad", f"{place}/in")
    command = [
        "select",
        f"--input={place}/in/a.csv",
        "--epsilon=1",
        "--delta=1e-6",
        f"--output={place}/out/x",
    ]
    python = f"--conf=spark.yarn.appMasterEnv.PYSPARK_PYTHON={sys.executable}"
    for _ in range(3):
        process = submit(
            [*command, f"--temp_location={place}/temp", "--runner=PySparkRunner"],
            *("--deploy-mode=cluster", python, "--conf=spark.yarn.maxAppAttempts=1"),
        )
        code, log = process.wait(400 * PATIENCE), (tmp_path / "log").read_text()
        if SPARKS_OWN not in log:
            break
    assert code != 0 and "final status: FAILED" in log, log[-4000:]
    assert "exit status of 2" in log or "exitCode: 2" in log or "exited with 2" in log, log[-4000:]
    assert not FileSystems.list_prefix(f"{place}/out/")
