"""Pairs whose items are so long that messages between blocks and shards go through files as well."""

from __future__ import annotations

import pathlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def write_long_items(folder: pathlib.Path, *, users: int, items: int, files: int) -> None:
    """Files `part-N.parquet` of columns `user` and `item`, in random order."""
    rng = np.random.default_rng(5)
    name = [f"item {i} {rng.bytes(150).hex()}" for i in range(items)]
    user = np.repeat(np.arange(users), rng.geometric(0.08, users))
    item = (items ** rng.random(len(user))).astype(int)
    order = rng.permutation(len(user))
    for part, rows in enumerate(np.array_split(order, files)):
        table = pa.table({"user": user[rows], "item": pa.array([name[i] for i in item[rows]])})
        pq.write_table(table, folder / f"part-{part}.parquet", dictionary_pagesize_limit=1 << 22)
