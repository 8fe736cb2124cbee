"""Runs of `dpbeam select` that are charged to an account in the working folder, and what it then says."""

import glob
import os
import pathlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpbeam.budget.store import BudgetStore
from dpbeam.cli import main
from dpbeam.engine.beam.driver import ProgramRun
from dpbeam.jobs import running

SHARDS = 2
CHECK = running.RunFolder.check
ACCOUNT = ["--budget=b.db", "--dataset=logs", "--release_id=night"]
RESOLVE = ["budget", "resolve", *ACCOUNT]


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with pairs and an account of epsilon 1; the pipeline only writes shards of random lines."""
    monkeypatch.chdir(tmp_path)
    pathlib.Path("pairs.csv").write_text("u,i\na,b\n")
    create("logs", "--epsilon=1")
    when_run(monkeypatch, draw)
    return tmp_path


def create(dataset: str, *limits: str) -> None:
    assert (
        main(
            ["budget", "create", "--budget=b.db", f"--dataset={dataset}", *limits, "--delta=1e-5", "--quiet"]
        )
        == 0
    )


def when_run(monkeypatch, work) -> None:
    """Does `work` where the pipeline would run, which is not built."""
    monkeypatch.setattr(ProgramRun, "add_to", lambda *_: None)
    monkeypatch.setattr(running, "run_and_wait", lambda *_: work())
    monkeypatch.setattr(running.RunFolder, "check", lambda _: SHARDS)  # nobody leaves receipts


def draw() -> None:
    (folder,) = [f for f in glob.glob("out*.staging-*") if not glob.glob(f"{f}/shard-*")]
    for number in range(SHARDS):
        path = pathlib.Path(folder, f"shard-{number:05}-of-{SHARDS:05}.parquet")
        pq.write_table(pa.table({"item": [os.urandom(8).hex()]}), path)


def flags(*more: str, epsilon: str = "0.6", quiet: bool = True) -> list[str]:
    own = ["--input=pairs.csv", "--user_column=u", "--item_column=i", f"--epsilon={epsilon}", "--delta=1e-6"]
    return ["select", *own, "--output=out", "--method=basic", *["--quiet"] * quiet, *ACCOUNT, *more]


def account():
    return BudgetStore("b.db").account("logs")


def release():
    return account().releases["night"]


def kinds() -> list[str]:
    """Of the account's entries, those of runs."""
    return [entry.kind for entry in account().entries[2:]]
