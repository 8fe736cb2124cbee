"""All (user, item) pairs of an input, read in this process: for what is evaluated in memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from dpbeam.io.readers import read_complete, read_scattered
from dpbeam.io.rows import Counts
from dpbeam.io.sources import InputSummary, plan_units
from dpbeam.io.spec import InputSpec
from dpbeam.kernels.canonical import encode_int64, encode_parts, plain


def read_pairs(spec: InputSpec, summary: InputSummary) -> Iterator[tuple[pa.Array, pa.Array]]:
    """(users, items) arrays of canonical bytes of the whole input; pairs may repeat.

    Raises:
      InputError: naming file, column or line.
    """
    for unit in plan_units(summary.files, spec):
        if not spec.complete_users:
            for batch in read_scattered(unit, spec, summary.kinds, Counts()):
                yield plain(batch.column("user")), plain(batch.column("item"))
            continue
        for block, batch in read_complete(unit, spec, summary.kinds, Counts()):
            blocks = encode_int64(pa.array(np.full(batch.num_rows, block)))
            yield encode_parts([blocks, encode_int64(batch.column("user"))]), plain(batch.column("item"))
