"""Packing writes the same bytes on every engine for a fixed key: in one step, and round by round in jobs."""

import json
import os
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.ledgers import without_times

pytestmark = [pytest.mark.engines, pytest.mark.slow]

#: Four passes in two jobs.
ROUND_BY_ROUND = ["--num_blocks=3", "--passes_per_job=2"]
RUNS = [("pyspark-cluster", []), ("flink-cluster", ROUND_BY_ROUND)]  # Prism: test_java


@pytest.fixture(scope="module")
def market(tmp_path_factory) -> str:
    folder, rng = tmp_path_factory.mktemp("market"), np.random.default_rng(0)
    names = [f"r{n}" for n in range(4)]
    for shard, agents in enumerate(np.array_split(np.arange(20_000), 3)):
        demands = {name: rng.random(len(agents)) * rng.integers(2, size=len(agents)) for name in names}
        columns = {"agent": [f"agent {n}" for n in agents], "value": rng.random(len(agents)), **demands}
        pq.write_table(pa.table(columns), folder / f"m-{shard}.parquet")
    (folder / "m.supplies.yaml").write_text("".join(f"{name}: 2000\n" for name in names))
    return str(folder / "m")


def command(market, folder, *flags: str) -> list[str]:
    (folder / "temp").mkdir(exist_ok=True)
    return [
        *(sys.executable, "-m", "pipelines.pack", "--agents", f"{market}-*.parquet"),
        *(
            f"--supplies={market}.supplies.yaml",
            "--epsilon=4",
            "--delta=1e-6",
            "--alpha=0.9",
            "--start_rounds=1",
        ),
        *(
            "--insecure_test_key=5e1ec7",
            f"--output={folder / 'out' / 'x'}",
            f"--temp_location={folder / 'temp'}",
        ),
        *flags,
    ]


def output(folder) -> dict[str, bytes]:
    """Files by name; the ledger less times, and the revision, which may move while the tests run in a work tree."""
    files = {path.name: path.read_bytes() for path in (folder / "out").glob("*")}
    del files["x.ledger.json"]
    ledger = without_times(folder / "out" / "x.ledger.json")
    return {**files, "ledger": json.dumps({**ledger, "code_revision": ""}).encode()}


@pytest.fixture(scope="module")
def expected(engine, market, tmp_path_factory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("direct")
    run = engine("direct").run(command(market, folder), folder / "log")
    assert run.code == 0, run.log[-4000:]
    return output(folder)


@pytest.mark.parametrize(
    ("name", "flags"),
    RUNS,
    ids=[f"{name}-{'round by round' if flags else 'one step'}" for name, flags in RUNS],
)
def test_same_bytes_on_every_engine(name, flags, engine, market, expected, tmp_path):
    run = engine(name).run(command(market, tmp_path, *flags), tmp_path / "log")
    assert run.code == 0, run.log[-4000:]
    assert output(tmp_path) == expected
    assert os.listdir(tmp_path / "temp") == []
