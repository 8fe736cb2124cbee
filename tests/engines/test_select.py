"""`dpbeam select` writes the same bytes on every engine, for a fixed key."""

import glob
import json
import os
import pathlib
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytestmark = pytest.mark.slow

METHODS = {
    "basic": ["--method=basic"],
    "mad": ["--method=mad"],
    "mad2r": ["--method=mad2r"],
    "gsu": ["--method=gsu", "--rounds=4"],
}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory) -> str:
    """Eight files of 12,000 users' pairs in random order."""
    folder = tmp_path_factory.mktemp("pairs")
    rng = np.random.default_rng(5)
    user = np.repeat(np.arange(12_000), rng.geometric(0.08, 12_000))
    item = (4_000 ** rng.random(len(user))).astype(int)
    order = rng.permutation(len(user))
    for part, rows in enumerate(np.array_split(order, 8)):
        table = pa.table({"user": user[rows], "item": pa.array([f"item {i}" for i in item[rows]])})
        pq.write_table(table, folder / f"part-{part}.parquet")
    return str(folder / "*.parquet")


def command(pairs: str, folder: pathlib.Path, method: str, shards: int) -> list[str]:
    return [
        *(sys.executable, "-m", "pipelines.select_items", "--input", pairs),
        *("--user_column=user", "--item_column=item", "--epsilon=1", "--delta=1e-6", "--noisy_weights"),
        *(f"--output={folder / 'out'}", f"--temp_location={folder / 'temp'}", f"--num_shards={shards}"),
        *("--insecure_test_key=5e1ec7", *METHODS[method]),
    ]


def output(folder: pathlib.Path) -> dict[str, bytes]:
    """Output files by name; the ledger less the commit, which may move while the tests run in a work tree."""
    found = {}
    for path in glob.glob(f"{folder / 'out'}*"):
        data = pathlib.Path(path).read_bytes()
        if path.endswith(".json"):
            data = json.dumps({**json.loads(data), "code_revision": ""}).encode()
        found[os.path.basename(path)] = data
    return found


@pytest.fixture(scope="module")
def released(engine, pairs, tmp_path_factory):
    """What the in-process runner writes, by method."""
    made: dict[str, dict[str, bytes]] = {}

    def get(method: str) -> dict[str, bytes]:
        if method not in made:
            folder = tmp_path_factory.mktemp(f"direct-{method}")
            run = engine("direct").run(command(pairs, folder, method, 1), folder / "log")
            assert run.code == 0, run.log[-4000:]
            made[method] = output(folder)
            table = pq.read_table(glob.glob(f"{folder / 'out'}-*"))
            assert table.num_rows > 50
        return made[method]

    return get


@pytest.mark.parametrize(
    ("name", "method", "shards"),
    [
        ("direct-2", "mad2r", 5),
        ("prism", "mad2r", 3),
        ("prism", "gsu", 7),
        ("flink-embedded", "mad", 2),
        ("flink-cluster", "mad2r", 5),
        ("flink-cluster", "gsu", 3),
        ("spark-embedded", "basic", 4),
        ("spark-cluster", "mad2r", 3),
        ("spark-cluster-uncached", "gsu", 5),
    ],
)
def test_same_bytes_on_every_engine(name, method, shards, engine, pairs, released, tmp_path):
    on = engine(name)
    run = on.run(command(pairs, tmp_path, method, shards), tmp_path / "log")
    assert run.code == 0, run.log[-4000:]
    assert output(tmp_path) == released(method)
    assert os.listdir(tmp_path / "temp") == [], "private intermediates were left behind"


@pytest.mark.parametrize("name", ["prism", "flink-cluster"])
def test_bad_input_is_one_line_and_exit_code_two(name, engine, tmp_path):
    (tmp_path / "a.csv").write_text("user,item\n" + "u,i\n" * 50 + "only one\n")
    argv = command(str(tmp_path / "a.csv"), tmp_path, "basic", 1)
    run = engine(name).run(argv, tmp_path / "log")
    assert run.code == 2, run.log[-4000:]
    last = run.log.strip().splitlines()[-1]
    assert last.startswith("dpbeam select: error: ") and "a.csv:52: " in last
    assert output(tmp_path) == {}
    assert os.listdir(tmp_path / "temp") == []
