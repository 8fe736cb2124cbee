"""Synthetic (user, item) data of any size: users and items by power laws, rows shuffled over all shards.

Rows are independent draws, so a shard is written in chunks from a seed of its own, in constant memory, and
every user's rows lie anywhere: the hardest layout to read. Rows may repeat.

The rank of a user or item is 1 + floor of a continuous power law bounded to [1, n + 1): P(rank = k) is the integral
of x^-exponent over [k, k + 1), up to its constant: a Zipf law, smoothed at the first ranks.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from dpbeam.errors import SettingError, StoreError
from dpbeam.io.files import write_atomically
from dpbeam.io.new_files import NewFile, check_prefix
from dpbeam.storage import FileSystems
from dpbeam_lab.power_law import power_law_ranks
from dpbeam_lab.room import check_disk

FORMATS = ("parquet", "jsonl", "csv", "tsv")
#: What a row takes at least, apart from long items.
_ROW_BYTES = {"parquet": 2, "jsonl": 34, "csv": 14, "tsv": 14}
MAX_SHARDS, MAX_ITEM_BYTES = 99_999, 4096
_SHARD = re.compile(rf"-\d{{5}}-of-\d{{5}}\.({'|'.join(FORMATS)})")
_MOST = 2**53  # of users, items and rows: numbers that floating point tells apart
_CHUNK = 1_000_000


def write_synthetic(
    prefix: str,
    *,
    users: int,
    items: int,
    mean_items_per_user: float,
    user_exponent: float = 0.5,
    item_exponent: float = 1.0,
    item_bytes: int = 0,
    seed: int = 0,
    shards: int = 1,
    format: str = "parquet",
    overwrite: bool = False,
) -> list[str]:
    """Write about users * mean_items_per_user rows as `PREFIX-00000-of-000NN.FORMAT`; return the paths.

    Args:
      users, items: sizes of the universes; rare ranks may not occur.
      mean_items_per_user: rows divided by users.
      user_exponent, item_exponent: of the power laws, at least 0 (0 is uniform).
      item_bytes: shortest length of an item; shorter names are padded in front with a scrambled text, as addresses of
        web pages are long and hardly compress together.
      seed: the same arguments and seed write the same bytes.

    Raises:
      InputError: naming the flag, for a value out of range or output that exists.
    """
    _check(users, items, mean_items_per_user, user_exponent, item_exponent, item_bytes, shards, seed, format)
    paths = shard_paths(prefix, shards, format, overwrite=overwrite)
    rows = round(users * mean_items_per_user)
    check_disk("--users", rows * (_ROW_BYTES[format] + item_bytes), os.path.dirname(prefix))
    bounds = [rows * i // shards for i in range(shards + 1)]
    seeds = np.random.SeedSequence(seed).spawn(shards)
    for shard, path in enumerate(paths):
        generator = np.random.default_rng(seeds[shard])
        count = bounds[shard + 1] - bounds[shard]
        chunks = (
            _draw(
                generator, min(_CHUNK, count - start), users, items, user_exponent, item_exponent, item_bytes
            )
            for start in range(0, count, _CHUNK)
        )
        write_atomically(path, functools.partial(_write, chunks=chunks, format=format))
    remove_earlier(prefix, paths)
    return paths


def shard_paths(prefix: str, shards: int, format: str, *, overwrite: bool) -> list[str]:
    """The files `PREFIX-00000-of-000NN.FORMAT` of synthetic data.

    Raises:
      InputError: there are files of the prefix, which may not be overwritten.
    """
    check_prefix(prefix)
    existing = FileSystems.list_prefix(f"{prefix}-")
    if existing and not overwrite:
        raise StoreError(
            f"--output: '{existing[0]}' exists; pass --overwrite to replace it, or another prefix"
        )
    paths = [f"{prefix}-{shard:05d}-of-{shards:05d}.{format}" for shard in range(shards)]
    for path in [*paths, *_earlier(prefix, paths)]:
        NewFile(path, "--output").check(overwrite=overwrite)
    return paths


def remove_earlier(prefix: str, paths: Sequence[str]) -> None:
    """Delete shards of earlier data of the prefix, in whatever number and format, but those that were just written."""
    for path in _earlier(prefix, paths):
        os.remove(path)


def _earlier(prefix: str, paths: Sequence[str]) -> list[str]:
    """Shards of synthetic data that are there and are not among the paths."""
    new, stem = set(map(os.path.basename, paths)), os.path.basename(prefix)
    named = ((path, os.path.basename(path)) for path in FileSystems.list_prefix(f"{prefix}-"))
    return [path for path, name in named if name not in new and _SHARD.fullmatch(name.removeprefix(stem))]


def _check(
    users: int,
    items: int,
    mean: float,
    user_exponent: float,
    item_exponent: float,
    item_bytes: int,
    shards: int,
    seed: int,
    format: str,
) -> None:
    ranges = (
        ("--users", users, 1, _MOST),
        ("--items", items, 1, _MOST),
        ("--shards", shards, 1, MAX_SHARDS),
        ("--item_bytes", item_bytes, 0, MAX_ITEM_BYTES),
        ("--seed", seed, 0, 2**63),
        ("--user_exponent", user_exponent, 0, 100),
        ("--item_exponent", item_exponent, 0, 100),
    )
    check_ranges(ranges, format, FORMATS)
    if not (np.isfinite(mean) and 0 < mean <= _MOST / users):
        raise SettingError(f"--mean_items_per_user: must be positive and give at most 2^53 rows, got {mean}")


def check_ranges(
    ranges: Iterable[tuple[str, float, float, float]], format: str, formats: Sequence[str]
) -> None:
    """Refuse a value of a flag, (flag, value, least, most), and a format. Raises InputError."""
    for flag, value, low, high in ranges:
        if not low <= value <= high:
            raise SettingError(f"{flag}: must be from {low} to {high}, got {value}")
    if format not in formats:
        raise SettingError(f"--output_format: expected one of {', '.join(formats)}, got '{format}'")


def _draw(
    generator: np.random.Generator,
    count: int,
    users: int,
    items: int,
    user_exponent: float,
    item_exponent: float,
    item_bytes: int,
) -> pa.Table:
    user = power_law_ranks(generator.random(count), users, user_exponent)
    item = power_law_ranks(generator.random(count), items, item_exponent)
    names = _names("item-", item)
    if item_bytes:
        names = _padded(names, item_bytes)
    return pa.table({"user": _names("user-", user), "item": names})


def _padded(names: pa.Array, length: int) -> pa.Array:
    """Names of at least `length` characters: text made from the name that hardly compresses, then the name."""
    encoded = names.dictionary_encode()
    padded = []
    for name in encoded.dictionary.to_pylist():
        text = hashlib.shake_128(name.encode()).hexdigest(length)
        padded.append(text[: max(0, length - len(name))] + name)
    return pa.array(padded, pa.string()).take(encoded.indices)


def _names(prefix: str, numbers: np.ndarray) -> pa.Array:
    return pc.binary_join_element_wise(prefix, pa.array(numbers).cast(pa.string()), "")


def _write(file: BinaryIO, chunks: Iterable[pa.Table], format: str) -> None:
    schema = pa.schema([("user", pa.string()), ("item", pa.string())])
    if format == "parquet":
        with pq.ParquetWriter(file, schema, compression="zstd") as writer:
            for chunk in chunks:
                writer.write_table(chunk)
        return
    if format != "jsonl":
        options = pacsv.WriteOptions(
            include_header=False, delimiter="," if format == "csv" else "\t", quoting_style="none"
        )
        file.write(b"user,item\n" if format == "csv" else b"user\titem\n")
    for chunk in chunks:
        if format == "jsonl":
            # The generated values need no escapes.
            lines = pc.binary_join_element_wise(
                '{"user":"', chunk["user"], '","item":"', chunk["item"], '"}\n', ""
            )
            file.write("".join(lines.to_pylist()).encode())
        else:
            pacsv.write_csv(chunk, file, options)
