"""PySparkRunner on YARN, with HDFS for all files: the page's own command, and what YARN does to an application."""

import os
import subprocess
import sys

import pytest

from dpbeam.storage import FileSystems
from tests.support.examples import ROOT, Workspace, blocks
from tests.support.stores import put
from tests.support.waiting import PATIENCE

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
