"""All (user, item) pairs of an input, read in this process: for what is evaluated in memory."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import numpy as np
import pyarrow as pa

from dpbeam.errors import DataError
from dpbeam.io.readers import has_rows, read_complete, read_scattered
from dpbeam.io.rows import Counts
from dpbeam.io.sources import InputSummary, plan_units, spread
from dpbeam.io.spec import InputSpec
from dpbeam.kernels.canonical import encode_int64, encode_parts, plain
from dpbeam.kernels.pair_rules import BAD_ROWS, EMPTY_ITEMS, NULL_ROWS

NO_ROWS = "there is not a single row"
ALLOW = "pass --allow_empty if that may be so"
#: Which flags drop rows, and under which names those are counted.
_DROPPING = {"--on_null=drop": (NULL_ROWS, EMPTY_ITEMS), "--on_bad_row=skip": (BAD_ROWS,)}
_LOOK_BYTES = 1 << 18


def read_pairs(spec: InputSpec, summary: InputSummary) -> Iterator[tuple[pa.Array, pa.Array]]:
    """(users, items) arrays of canonical bytes of the whole input; pairs may repeat.

    Raises:
      InputError: naming file, column or line.
    """
    spec, counts = summary.spec or spec, Counts()
    for unit in plan_units(summary.files, spec):
        if not spec.complete_users:
            for batch in read_scattered(unit, spec, summary.kinds, counts):
                yield plain(batch.column("user")), plain(batch.column("item"))
            continue
        for block, batch in read_complete(unit, spec, summary.kinds, counts):
            blocks = encode_int64(pa.array(np.full(batch.num_rows, block)))
            yield encode_parts([blocks, encode_int64(batch.column("user"))]), plain(batch.column("item"))
    counts.check_read("--input")


def check_not_empty(spec: InputSpec, summary: InputSummary, unless: str = ALLOW) -> None:
    """Refuse an input without a single row, as a failed pipe leaves it, or whose rows are dropped one and all, as
    those of a wrong column or encoding are. Reads until it meets a row that stays, here and there: sorted nulls lie
    together.

    Args:
      unless: what to do if that may be so, for the message.

    Raises:
      InputError: there is none; or as `read_pairs`.
    """
    spec, counts = summary.spec or spec, Counts()
    if summary.rows_estimate and spec.on_null == "error" and spec.on_bad_row == "error":
        return
    for file in chain(*spread(summary.files)):
        units = plan_units([file], spec, max(_LOOK_BYTES, file.size >> 10))
        if any(has_rows(unit, spec, summary.kinds, counts) for unit in chain(*spread(units))):
            return
    flags = [flag for flag, names in _DROPPING.items() if any(counts[name] for name in names)]
    if flags:
        raise DataError(
            f"{', '.join(flags)}: not a single row of the input is left; without that, the first is an error that says "
            f"what is wrong; {unless}"
        )
    raise DataError(f"--input: {NO_ROWS}; {unless}")
