"""`dpbeam.hitting_set`: k-hitting set on data in memory, in this process, without Beam.

The same plan, program, kernels and ledger as on Beam: for one key the items are those of `dpbeam hitting-set`.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dpbeam.engine.in_process import build_blocks, output_batches, run_trips
from dpbeam.engine.program import Keys
from dpbeam.errors import InputError
from dpbeam.front import InputPairs, Selection, input_pairs, listed_items, naming_arguments, run_key
from dpbeam.hitting.config import DEFAULT_SELECTOR, HittingSetConfig, plan_hitting_set
from dpbeam.hitting.program import HittingSetProgram
from dpbeam.hitting.report import hitting_set_ledger
from dpbeam.kernels import canonical
from dpbeam.kernels.canonical import Kinds
from dpbeam.kernels.pairs import kinds_column
from dpbeam.randomness import RunKey
from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.sizes import choose_sizes
from dpbeam.topk.program import public_domain

RANK = "rank"


class RankedItems(Selection):
    """Released items in the order of their rank, and what they cost; otherwise a `Selection`.

    The table has the columns `rank`, from 1, and `item`, or the names of several item columns.
    """

    @property
    def items(self) -> list[Any]:
        """The items in rank order; tuples where there are several item columns."""
        columns = [self.table[name].to_pylist() for name in self.table.schema.names if name != RANK]
        return columns[0] if len(columns) == 1 else list(zip(*columns))


def hitting_set(
    data: Any,
    *,
    epsilon: float,
    delta: float,
    k: int,
    user: str = "user",
    item: str | Sequence[str] = "item",
    selector: str | None = None,
    selector_share: float | None = None,
    domain: Any = None,
    max_items_per_user: int | None = None,
    preset: str | None = None,
    item_type: str | Sequence[str] | None = None,
    on_null: str = "error",
    not_private_counts: MutableMapping[str, int] | None = None,
    insecure_test_key: str | None = None,
    **settings: Any,
) -> RankedItems:
    """At most k items that as many users as possible hold one of, under (epsilon, delta)-differential privacy.

        result = dpbeam.hitting_set(frame, k=50, epsilon=1, delta=1e-8)
        result.items, result.ledger, result.to_pandas()

    Guarantee: as of `dpbeam.select`; add/remove one user. All items of a user count for who is hit.

    Args:
      data, user, item, item_type, on_null, not_private_counts, insecure_test_key: as of `dpbeam.select`.
      epsilon, delta: the budget of this call.
      k: how many items; fewer come back where the domain has no more.
      selector: method of the selection of a domain, as `--selector` of the command.
      selector_share: its share of the budget, by default between 0.3 and 0.9, growing with k/epsilon.
      domain: a public domain, a column of items or a frame with the item columns; there is then no selection.
      max_items_per_user, preset, settings: of the selection.

    Raises:
      InputError, TypeError: as `dpbeam.select`.
    """
    key = run_key(insecure_test_key)
    given = {"max_items_per_user": max_items_per_user, "preset": preset, **settings}
    with naming_arguments():
        selection = None
        if domain is None:
            selection = SelectionConfig(epsilon, delta, selector or DEFAULT_SELECTOR, **given)
        elif selector is not None or any(value is not None for value in given.values()):
            raise InputError("domain leaves no selection: drop selector and its settings")
        config = HittingSetConfig(epsilon, delta, k, selection, selector_share, domain is not None)
        plan = plan_hitting_set(config)
    pairs = input_pairs(
        data, user, item, item_type, on_null, not_private_counts, added={RANK: "the order of the items"}
    )
    listed = None
    if domain is not None:
        items = listed_items(domain, pairs.names, pairs.kinds, "domain")
        pairs = pairs.filtered(items, keep=True)
        # Blocks of bare arrays carry no kinds, so the domain carries none either.
        listed = {**public_domain(items, Kinds("string", pairs.kinds)), "kinds": kinds_column(b"")}
    ledger = hitting_set_ledger(plan, input_parameters=pairs.parameters, fixed_key=key.insecure)
    ledger.verify()
    return RankedItems(_ranked(HittingSetProgram(plan, listed, gather=True), pairs, key), ledger)


def _ranked(program: HittingSetProgram, pairs: InputPairs, key: RunKey) -> pa.Table:
    key.spend()
    keys = Keys(key)
    sizes = choose_sizes(len(pairs.items), item_bytes=pairs.item_bytes)
    blocks = build_blocks(
        pairs.batches(), keys, program.cap, num_blocks=sizes.num_blocks, num_shards=sizes.num_shards
    )
    found = list(output_batches(program, run_trips(program, list(blocks), keys)))
    items = found[0].column("item") if found else pa.array([], pa.large_binary())
    columns = [pa.array(np.arange(1, len(items) + 1)), *canonical.decode(items, pairs.kinds)]
    names = pairs.names if len(pairs.names) > 1 else ("item",)
    return pa.Table.from_arrays(columns, names=[RANK, *names])
