"""Histograms given as a file (`--histogram`): items and the number of users that hold each."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpbeam.counts.histogram import COUNT_LIMIT
from dpbeam.errors import InputError
from dpbeam.io.files import match_files
from dpbeam.io.lists import ListSpec, faults_of, list_format, list_kinds, list_rows, whole_column
from dpbeam.io.rows import Rows
from dpbeam.kernels.canonical import INT, STRING, Kinds

_FLAG = "--histogram"


def read_histogram(pattern: str) -> tuple[pa.Array, np.ndarray, Kinds]:
    """Canonical items (n,) large_binary, counts (n,) int64, and the items' kind.

    Args:
      pattern: files with columns `item` and `count`, in any format of the input with columns; CSV where the extension
        tells none.

    Raises:
      InputError: a column is missing, null or of the wrong type, a count is negative or above 2^52, or an
        item occurs twice.
    """
    items, counts, kinds = [pa.array([], pa.large_binary())], [np.empty(0, np.int64)], set()
    for file in match_files([pattern], _FLAG):
        form = list_format(file.path, "csv")
        spec = ListSpec.of(file.path, form, _FLAG, ("item", "count"), (STRING, INT))
        with faults_of(_FLAG):
            columns = list_kinds(spec)
            if columns.item[1] != INT:
                raise InputError(f"{file.path}: column 'count' holds {columns.item[1]} values, not integers")
            kinds.add(columns.item[0])
            for rows in list_rows(spec, columns):
                items.append(whole_column(spec, rows, 0))
                counts.append(_counts(spec, rows))
    if len(kinds) > 1:
        raise InputError(f"{_FLAG}: item ids mix types across the files")
    strings, totals = pa.concat_arrays(items), np.concatenate(counts)
    if pc.count_distinct(strings).as_py() < len(strings):
        raise InputError(f"{_FLAG}: an item occurs twice; add its counts up first")
    return strings, totals, Kinds(None, (kinds.pop(),))


def _counts(spec: ListSpec, rows: Rows) -> np.ndarray:
    """(n,) int64."""
    column, (path,) = rows.items[1], spec.patterns
    if len(column) and (pc.min(column).as_py() < 0 or pc.max(column).as_py() > COUNT_LIMIT):
        raise InputError(f"{path}: column 'count' must hold numbers from 0 to 2^52")
    whole_column(spec, rows, 1)
    return column.cast(pa.int64()).to_numpy()
