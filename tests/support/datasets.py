"""Real datasets for tests that compare with published figures; skipped where they are absent."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(os.environ.get("DPBEAM_DATA") or ROOT.parent / "shared" / "data")


def entries(name: str) -> list:
    """Batches of (users, items) of the dataset `name`, about a million rows each; skips the test without it."""
    path = FOLDER / name / "entries.parquet"
    if not path.exists():
        pytest.skip(
            f"dataset {name} is absent: set DPBEAM_DATA to the folder that holds {name}/entries.parquet"
        )
    table = pq.read_table(path, columns=["user", "item"])
    return [(batch.column("user"), batch.column("item")) for batch in table.to_batches(max_chunksize=1 << 20)]
