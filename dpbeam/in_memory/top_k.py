"""`dpbeam.top_k`: the k items that most users hold, from data in memory, in this process, without Beam.

The same plan, program, kernels and ledger as on Beam: for one key the ranking is that of `dpbeam top-k`.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Any

import pyarrow as pa

from dpbeam.counts.gathered import public_domain
from dpbeam.engine.program import Program
from dpbeam.errors import naming_arguments
from dpbeam.in_memory.select import (
    InputPairs,
    Selection,
    input_pairs,
    public_list,
    run_key,
    run_program,
    warn_of_budget,
)
from dpbeam.kernels import canonical
from dpbeam.kernels.columns import Columns
from dpbeam.randomness import RunKey
from dpbeam.selection.columns import ARROW_TYPES
from dpbeam.selection.domain import DomainRelease
from dpbeam.topk.family import TopKConfig
from dpbeam.topk.program import topk_program


class RankedItems(Selection):
    """Released items in the order of their rank, and what they cost; otherwise a `Selection`.

    The table has the columns `rank`, from 1, `item`, or the names of several item columns, and where asked for
    `noisy_count`.
    """


def top_k(
    data: Any,
    *,
    epsilon: float,
    delta: float,
    k: int,
    user: str = "user",
    item: str | Sequence[str] = "item",
    mechanism: str | None = None,
    selector: str | None = None,
    selector_share: float | None = None,
    domain: Any = None,
    kbar: int | None = None,
    noisy_counts: bool = False,
    noisy_count_share: float | None = None,
    max_items_per_user: int | None = None,
    preset: str | None = None,
    item_type: str | Sequence[str] | None = None,
    on_null: str = "error",
    not_private_counts: MutableMapping[str, int] | None = None,
    insecure_test_key: str | None = None,
    **settings: Any,
) -> RankedItems:
    """The k items that most users hold, in order, under (epsilon, delta)-differential privacy.

        result = dpbeam.top_k(frame, k=50, epsilon=1, delta=1e-8)
        result.items, result.ledger, result.to_pandas()

    Guarantee: (epsilon, delta)-DP for add/remove of one user, see `dpbeam.select`. Users may hold any number of items,
    of which all count.

    Args:
      data, user, item, item_type, on_null, not_private_counts, insecure_test_key: see `dpbeam.select`.
      epsilon, delta: the budget of this call; delta may be 0 where domain and mechanism need none.
      k: how many items; fewer come back where the domain has no more.
      mechanism: how they are chosen, as `--mechanism` of the command.
      selector: method of the selection of a domain, as `--selector` of the command.
      selector_share: its share of the budget.
      domain: a public domain, a column of items or a frame with the item columns; there is then no selection.
      kbar: of limited-domain, how many of the largest counts take part.
      noisy_counts: return a noisy count of each item, `noisy_count`, at `noisy_count_share` of the budget.
      max_items_per_user, preset, settings: of the selection; of limited-domain the first one alone.

    Raises:
      InputError, TypeError: see `dpbeam.select`.
    """
    key = run_key(insecure_test_key)
    values = {
        "epsilon": epsilon,
        "delta": delta,
        "k": k,
        "mechanism": mechanism,
        "selector": selector,
        "selector_share": selector_share,
        "kbar": kbar,
        "noisy_counts": noisy_counts,
        "noisy_count_share": noisy_count_share,
        "max_items_per_user": max_items_per_user,
        "preset": preset,
        "settings": settings,
    }
    with naming_arguments():
        plan = TopKConfig.asked(values, None if domain is None else "domain").plan()
    warn_of_budget(epsilon, delta, plan.config.doubts())
    pairs = input_pairs(data, user, item, item_type, on_null, not_private_counts, plan.config.columns())
    pairs, listed = within_domain(pairs, domain, data, user)
    return ranked(plan, topk_program(plan, listed), pairs, key)


def within_domain(pairs: InputPairs, domain: Any, data: Any, user: str) -> tuple[InputPairs, Columns | None]:
    """The pairs of a public domain, and the domain as programs take it; all pairs, and None, where there is none.

    Args:
      domain, data, user: of the call.

    Raises:
      InputError: see `public_list`.
    """
    if domain is None:
        return pairs, None
    items = public_list(domain, data, user, pairs, "domain")
    return pairs.filtered(items, keep=True), public_domain(items)


def ranked(plan: Any, program: Program, pairs: InputPairs, key: RunKey) -> RankedItems:
    """Run the program of a plan whose hub gives a ranking."""
    config: DomainRelease = plan.config
    ledger = config.ledger(
        plan, input_parameters=pairs.parameters, fixed_key=key.insecure, privacy_unit=pairs.privacy_unit
    )
    ledger.verify()
    batches, _ = run_program(program, pairs, key)
    batch = batches[0] if batches else None
    items = pa.array([], pa.large_binary()) if batch is None else batch.column("item")
    names = pairs.names if len(pairs.names) > 1 else ("item",)
    own = dict(zip(names, canonical.decode(items, pairs.kinds)))
    beside = {
        one.name: pa.array([], ARROW_TYPES[one.type]) if batch is None else batch.column(one.name)
        for one in config.columns()
    }
    before = {one.name: beside.pop(one.name) for one in config.columns() if one.before}
    return RankedItems(pa.table({**before, **own, **beside}), ledger)
