"""Synthetic markets of any size: agents with values and demands, and the supplies to go with them.

Values are uniform in [0, 1); a demand is uniform in [0, 1), or zero where a coin says so. Shards are written in chunks
from seeds of their own, in constant memory.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from dpbeam.errors import SettingError
from dpbeam.io.files import write_atomically
from dpbeam.io.new_files import NewFile
from dpbeam_lab.room import check_disk
from dpbeam_lab.synth import MAX_SHARDS, check_ranges, remove_earlier, shard_paths

FORMATS = ("parquet", "csv")
MAX_RESOURCES = 10_000
_CELLS = 5_000_000  # drawn at once


def write_market(
    prefix: str,
    *,
    agents: int,
    resources: int,
    filled: float = 0.5,
    supply_share: float = 0.1,
    seed: int = 0,
    shards: int = 1,
    format: str = "parquet",
    overwrite: bool = False,
) -> list[str]:
    """Write agents as `PREFIX-00000-of-000NN.FORMAT` and supplies as `PREFIX.supplies.yaml`; return the paths.

    Args:
      filled: the share of demands that are not zero.
      supply_share: supply of every resource, per agent.
      seed: the same arguments and seed write the same bytes.

    Raises:
      InputError: naming the flag, for a value out of range or output that exists.
    """
    ranges = (
        ("--agents", agents, 1, 2**53),
        ("--resources", resources, 1, MAX_RESOURCES),
        ("--shards", shards, 1, MAX_SHARDS),
        ("--seed", seed, 0, 2**63),
    )
    check_ranges(ranges, format, FORMATS)
    for flag, share in (("--filled", filled), ("--supply_share", supply_share)):
        if not 0 < share <= 1:
            raise SettingError(f"{flag}: must lie in (0, 1], got {share}")
    paths = shard_paths(prefix, shards, format, overwrite=overwrite)
    check_disk("--agents", agents * resources * filled * 7, os.path.dirname(prefix))
    supply_file = NewFile(f"{prefix}.supplies.yaml", "--output")
    supply_file.check(overwrite=overwrite)
    names = [f"r{j}" for j in range(resources)]
    seeds = np.random.SeedSequence(seed).spawn(shards)
    for shard, path in enumerate(paths):
        rows = range(agents * shard // shards, agents * (shard + 1) // shards)
        tables = _draw(np.random.default_rng(seeds[shard]), rows, names, filled)
        write_atomically(path, lambda file, tables=tables: _write(file, tables, format))  # type: ignore[misc]
    remove_earlier(prefix, paths)
    supplies = json.dumps(dict.fromkeys(names, supply_share * agents), indent=2) + "\n"
    supply_file.write(supplies.encode(), overwrite=overwrite)
    return [*paths, str(supply_file)]


def _draw(generator: np.random.Generator, rows: range, names: list[str], filled: float) -> Iterator[pa.Table]:
    step = max(1, _CELLS // len(names))
    for start in range(rows.start, max(rows.stop, rows.start + 1), step):
        numbers = np.arange(start, min(start + step, rows.stop))
        agents = pc.binary_join_element_wise("agent-", pa.array(numbers).cast(pa.string()), "")
        values = generator.random(len(numbers))
        shape = (len(names), len(numbers))
        demands = generator.random(shape) * (generator.random(shape) < filled)
        yield pa.table({"agent": agents, "value": values, **dict(zip(names, demands))})


def _write(file: BinaryIO, tables: Iterator[pa.Table], format: str) -> None:
    writer = None
    for table in tables:
        if writer is None:
            make = pq.ParquetWriter if format == "parquet" else pacsv.CSVWriter
            writer = make(file, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()
