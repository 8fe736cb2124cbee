"""Histograms given as a file (`--histogram`): items and the number of users that hold each."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from dpbeam.counts.histogram import COUNT_LIMIT
from dpbeam.errors import InputError
from dpbeam.io.files import match_files
from dpbeam.io.formats.delimited import check_quotes
from dpbeam.io.streams import open_input
from dpbeam.kernels import canonical
from dpbeam.kernels.canonical import Kinds

_FLAG = "--histogram"


def read_histogram(pattern: str) -> tuple[pa.Array, np.ndarray, Kinds]:
    """Canonical items (n,) large_binary, counts (n,) int64, and the items' kind.

    Args:
      pattern: Parquet (`.parquet`) or CSV with columns `item` and `count`.

    Raises:
      InputError: a column is missing, null or of the wrong type, a count is negative or above 2^52, or an
        item occurs twice.
    """
    items, counts, kinds = [], [], set()
    for file in match_files([pattern], _FLAG):
        table = _read(file.path)
        for name in ("item", "count"):
            if table.schema.names.count(name) != 1:
                raise InputError(f"{_FLAG}: {file.path} has no column '{name}'")
            if table[name].null_count:
                raise InputError(f"{_FLAG}: {file.path}: null in column '{name}'")
        if not (pa.types.is_integer(table["count"].type) or len(table) == 0):
            raise InputError(
                f"{_FLAG}: {file.path}: column 'count' has type {table['count'].type}, not integers"
            )
        encoded, kind = canonical.encode(table["item"], f"{_FLAG}: {file.path}: column 'item'")
        items.append(canonical.plain(encoded))
        kinds.add(kind or canonical.STRING)
        counts.append(_int64(table["count"], file.path))
    if len(kinds) > 1:
        raise InputError(f"{_FLAG}: item ids mix types across the files")
    strings, totals = pa.concat_arrays(items), np.concatenate(counts)
    if pc.count_distinct(strings).as_py() < len(strings):
        raise InputError(f"{_FLAG}: an item occurs twice; add its counts up first")
    return strings, totals, Kinds(None, (kinds.pop(),))


def _int64(column: pa.ChunkedArray, path: str) -> np.ndarray:
    if not len(column):
        return np.empty(0, np.int64)
    if pc.min(column).as_py() < 0 or pc.max(column).as_py() > COUNT_LIMIT:
        raise InputError(f"{_FLAG}: {path}: column 'count' must hold numbers from 0 to 2^52")
    return column.cast(pa.int64()).to_numpy()


def _read(path: str) -> pa.Table:
    parquet = path.lower().endswith(".parquet")
    if not parquet:
        try:
            check_quotes(path)  # one quote out of place would make items and counts part of another item
        except InputError as error:
            raise InputError(f"{_FLAG}: {str(error).partition('; mend the line')[0]}") from None
    with open_input(path) as file:
        try:
            if parquet:
                return pq.read_table(file)
            return pacsv.read_csv(
                file,
                parse_options=pacsv.ParseOptions(newlines_in_values=True),
                convert_options=pacsv.ConvertOptions(column_types={"item": pa.string()}),
            )
        except (pa.ArrowException, OSError):
            raise InputError(f"{_FLAG}: {path} cannot be read as Parquet or CSV") from None
