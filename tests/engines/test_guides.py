"""The commands of the runners' pages, as they stand but for the cluster's address, on the engines that they name."""

import os
import re
import subprocess
import sys

import pytest

from tests.support.examples import ROOT, Workspace, blocks

PAGES = {
    "prism": "docs/how-to/prism.md",
    "flink-cluster": "docs/how-to/flink.md",
    "spark-cluster": "docs/how-to/spark.md",
    "pyspark-cluster": "docs/how-to/spark.md",
}
#: Its block runs in test_yarn.py.
YARN = {"yarn": "docs/how-to/spark.md"}
#: A program, which takes the session that stands.
SESSION = {"pyspark-local": "docs/how-to/spark.md"}
LIBRARIES = dict.fromkeys(("opendp", "tumult"), "docs/how-to/hand_over.md")
_ADDRESS = re.compile(r"(?<=[= ])(?:spark://)?localhost:\d+")


def test_every_block_for_an_engine_is_run():
    marks = {
        (path.relative_to(ROOT).as_posix(), block.mark)
        for path in (ROOT / "docs").rglob("*.md")
        for block in blocks(path.read_text())
        if block.mark and block.mark.startswith("run on")
    }
    assert marks == {(page, f"run on {name}") for name, page in (PAGES | YARN | SESSION | LIBRARIES).items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_the_commands_of_the_page(name, engine, tmp_path):
    flags = " ".join(engine(name).flags)
    address = re.search(r"--(?:flink_master|spark_master_url)=(\S+)", flags)
    workspace = Workspace(tmp_path)
    # As after `activate`, and with dpbeam beside the workers' Python.
    workspace.environment["PATH"] += os.pathsep + os.path.dirname(sys.executable)
    workspace.environment["PYSPARK_PYTHON"] = sys.executable
    (block,) = [b for b in blocks((ROOT / PAGES[name]).read_text()) if b.mark == f"run on {name}"]
    code = _ADDRESS.sub(address[1], block.code) if address else block.code
    assert len(re.findall(r"^ *(?:dpbeam |spark-submit )", code, re.M)) == 2
    done = workspace.run(type(block)(block.line, block.language, code, block.mark), 400, apart=True)
    assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
    assert (tmp_path / "out" / "queries.ledger.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", SESSION)
def test_the_session_of_a_notebook_is_taken_and_stays(name, engine, tmp_path):
    """The cell of the page, then the command, in a session made before; which goes on afterwards."""
    master = engine(name).flags[-1].partition("=")[2]
    workspace = Workspace(tmp_path)
    workspace.environment["PYSPARK_PYTHON"] = sys.executable
    (block,) = [b for b in blocks((ROOT / SESSION[name]).read_text()) if b.mark == f"run on {name}"]
    command = (
        "select --input=logs/*.parquet --user_column=user_id --item_column=query --epsilon=1 --delta=1e-8"
    )
    code = f"""
from pyspark.sql import SparkSession
spark = SparkSession.builder.master({master!r}).appName("notebook").getOrCreate()
{block.code}
from dpbeam.cli import main
assert main([*{command.split()!r}, "--output=out/queries", "--runner=PySparkRunner"]) == 0
assert main([*{command.split()!r}, "--output=out/other", "--runner=PySparkRunner", "--spark_master_url=local[7]"]) == 2
assert spark.sparkContext.appName == "notebook" and spark.range(10).count() == 10
"""
    done = workspace.run(type(block)(block.line, "python", code, block.mark), 400, apart=True)
    assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
    written = "".join(path.read_text() for path in (tmp_path / "out").glob("items-*"))
    assert set(re.findall(r"item='(.+?)'", written)) == {"item 0", "item 1", "item 2"}
    assert (tmp_path / "out" / "queries.ledger.json").exists()
    assert not list((tmp_path / "out").glob("other*"))


@pytest.mark.engines
@pytest.mark.slow
@pytest.mark.parametrize("name", LIBRARIES)
def test_another_library_takes_what_is_released(name, tmp_path):
    """Its block, in its own environment, on what the first block of the page has released."""
    script = str(ROOT / "scripts" / "libraries")
    fetched = subprocess.run(
        [script, "fetch", name], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    if fetched.returncode:
        reason = (fetched.stderr.strip().splitlines() or ["no reason given"])[-1]
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"cannot install {name}: {reason}")
    workspace = Workspace(tmp_path)
    examples = blocks((ROOT / LIBRARIES[name]).read_text())
    release = next(block for block in examples if block.mark == "run")
    assert workspace.run(release).returncode == 0
    (block,) = [block for block in examples if block.mark == f"run on {name}"]
    (tmp_path / "block.py").write_text(block.code)
    done = subprocess.run(
        [script, "run", name, "block.py"],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": workspace.environment["TMPDIR"]},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=400,
    )
    assert done.returncode == 0, f"{block.code}\n{done.stdout}\n{done.stderr}"
