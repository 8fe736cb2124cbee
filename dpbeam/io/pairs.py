"""All (user, item) pairs of an input, read in this process: for what is evaluated in memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from dpbeam.errors import InputError
from dpbeam.io.readers import has_rows, read_complete, read_scattered
from dpbeam.io.rows import Counts
from dpbeam.io.sources import InputSummary, plan_units
from dpbeam.io.spec import InputSpec
from dpbeam.kernels.canonical import encode_int64, encode_parts, plain

NO_ROWS = "there is not a single row; pass --allow_empty if that may be so"
_LOOK_BYTES = 1 << 18


def read_pairs(spec: InputSpec, summary: InputSummary) -> Iterator[tuple[pa.Array, pa.Array]]:
    """(users, items) arrays of canonical bytes of the whole input; pairs may repeat.

    Raises:
      InputError: naming file, column or line.
    """
    spec = summary.spec or spec
    for unit in plan_units(summary.files, spec):
        if not spec.complete_users:
            for batch in read_scattered(unit, spec, summary.kinds, Counts()):
                yield plain(batch.column("user")), plain(batch.column("item"))
            continue
        for block, batch in read_complete(unit, spec, summary.kinds, Counts()):
            blocks = encode_int64(pa.array(np.full(batch.num_rows, block)))
            yield encode_parts([blocks, encode_int64(batch.column("user"))]), plain(batch.column("item"))


def check_not_empty(spec: InputSpec, summary: InputSummary) -> None:
    """Refuse an input without a single row, which a failed pipe before it leaves; reads until it meets one.

    Raises:
      InputError: there is none; or as `read_pairs`.
    """
    if summary.rows_estimate:
        return
    for file in summary.files:
        for unit in plan_units([file], spec, max(_LOOK_BYTES, file.size >> 10)):
            if has_rows(unit, spec, summary.kinds):
                return
    raise InputError(f"--input: {NO_ROWS}")
