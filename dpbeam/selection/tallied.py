"""A selection from counts of users instead of their pairs: every user adds the same to each of its items.

Guarantee: that of the selection, for a user who is counted for at most D0 items, once each; that this is so is declared
and cannot be checked. The weights of a user, 1/sqrt(D0) each (1/D0 in l1), are at most those of a user whose items are
known: the norm is at most 1, and no novel item gets more than thresholds allow for
(docs/explanation/privacy.md#counts-for-input).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpbeam.engine.forwarding import Forwarding
from dpbeam.engine.in_process import output_batches, run_trips
from dpbeam.engine.program import Keys, Program, Reply, Weighed
from dpbeam.errors import DataError, param
from dpbeam.kernels.columns import Columns
from dpbeam.kernels.pairs import Block, build_complete_block, common_kinds
from dpbeam.randomness import RunKey
from dpbeam.selection.plan import SelectionPlan

#: Sums stay below this, far from where int64 ends.
_LARGEST_SUM = 1 << 61
_COUNT = "count"


class _Tallied(Forwarding):
    """One trip of uniform weights whose sums are counts times the weight of a user of D0 items."""

    def __init__(self, inner: Program, unit: int):
        super().__init__(inner)
        self._unit = unit

    def weigh(self, trip: int, block: Block, reply: Reply, keys: Keys) -> Weighed:
        return {"weight": block.state[_COUNT] * self._unit}, None


def select_counted(plan: SelectionPlan, histogram: Columns, key: RunKey) -> pa.RecordBatch:
    """The released items of a histogram: (item: canonical bytes, the program's numbers).

    Args:
      plan: of a selector that takes counts.
      histogram: from `dpbeam.counts.gathered.histogram`.

    Raises:
      InputError: a count is too large to be added up.
    """
    items: pa.Array = histogram["items"]
    counts, kinds = histogram["counts"], common_kinds([histogram])
    unit = plan.selector.count_units(plan.program.cap)
    if unit is None:
        raise ValueError(f"{plan.config.method} cannot select from counts")
    if len(counts) and int(counts.max()) > _LARGEST_SUM // unit:
        raise DataError(
            f"{param('max_items_per_user')}: a count is above {_LARGEST_SUM // unit}, so it must be larger"
        )
    keys, held = Keys(key), counts > 0
    items, counts = items.filter(pa.array(held)), counts[held]
    block = build_complete_block(
        0, np.zeros(len(items), np.int64), items, keys.pairs, 1, max(1, len(items)), kinds
    )
    program, blocks = _Tallied(plan.program, unit), []
    if block is not None:
        block.state = {_COUNT: counts[pc.index_in(block.items, value_set=items).to_numpy()]}
        blocks.append(block)
    numbers = [(name, pa.float64()) for name in program.released_names]
    nothing = pa.RecordBatch.from_pylist([], pa.schema([("item", pa.large_binary()), *numbers]))
    return next(output_batches(program, run_trips(program, blocks, keys)), nothing)
