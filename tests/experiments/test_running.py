"""Experiments: results equal those of the commands' front door, and a run that was stopped goes on."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpbeam
from dpbeam.cli import main
from dpbeam.io.synth import write_synthetic

SMALL = """
title: Small
datasets:
  zipf: {{synth: {{users: 300, items: 200, mean_items_per_user: 8, seed: 1}}}}
budgets: {{epsilon: [1, 3], delta: 1e-4}}
repetitions: {repetitions}
methods:
  - {{method: basic}}
  - {{name: gsu2, method: gsu, rounds: 2}}
sweep: {{max_items_per_user: [4, 20]}}
"""


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "small.yaml"
    path.write_text(SMALL.format(repetitions=2))
    return path


def run(path, prefix, *flags) -> pa.Table:
    assert main(["evaluate", "run", str(path), f"--output={prefix}", "--quiet", *flags]) == 0
    return pq.read_table(f"{prefix}.parquet")


def without_time(table: pa.Table) -> list[dict]:
    return table.drop_columns("cpu_seconds").to_pylist()


def test_released_items_are_those_of_select(small, tmp_path):
    found = run(small, tmp_path / "out", "--jobs=1").to_pylist()
    (path,) = write_synthetic(str(tmp_path / "data"), users=300, items=200, mean_items_per_user=8.0, seed=1)
    pairs = pq.read_table(path)
    released = [row for row in found if row["measure"] == "released"]
    assert len(released) == 2 * 2 * 2 * 2
    for row in released:
        settings = {"rounds": 2} if row["method"] == "gsu2" else {}
        with pytest.warns(UserWarning, match="NOT PRIVATE"):
            expected = dpbeam.select(
                pairs,
                epsilon=row["epsilon"],
                delta=row["delta"],
                method=row["method"].removesuffix("2"),
                max_items_per_user=row["max_items_per_user"],
                insecure_test_key=f"evaluate 1 {row['repetition']}",
                **settings,
            )
        assert row["value"] == len(expected)
    assert np.ptp([row["value"] for row in released]) > 0
