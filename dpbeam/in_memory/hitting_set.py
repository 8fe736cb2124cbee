"""`dpbeam.hitting_set`: k-hitting set on data in memory, in this process, without Beam.

The same plan, program, kernels and ledger as on Beam: for one key the items are those of `dpbeam hitting-set`.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Any

from dpbeam.errors import naming_arguments
from dpbeam.hitting.family import HittingSetConfig
from dpbeam.hitting.program import HittingSetProgram
from dpbeam.in_memory.select import input_pairs, run_key, warn_of_budget
from dpbeam.in_memory.top_k import RankedItems, ranked, within_domain


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

    Guarantee: (epsilon, delta)-DP for add/remove of one user, see `dpbeam.select`. All items of a user count for who
    is hit.

    Args:
      data, user, item, item_type, on_null, not_private_counts, insecure_test_key: see `dpbeam.select`.
      epsilon, delta: the budget of this call.
      k: how many items; fewer come back where the domain has no more.
      selector: method of the selection of a domain, as `--selector` of the command.
      selector_share: its share of the budget, by default between 0.3 and 0.9, growing with k/epsilon.
      domain: a public domain, a column of items or a frame with the item columns; there is then no selection.
      max_items_per_user, preset, settings: of the selection.

    Raises:
      InputError, TypeError: see `dpbeam.select`.
    """
    key = run_key(insecure_test_key)
    values = {
        "epsilon": epsilon,
        "delta": delta,
        "k": k,
        "selector": selector,
        "selector_share": selector_share,
        "max_items_per_user": max_items_per_user,
        "preset": preset,
        "settings": settings,
    }
    with naming_arguments():
        plan = HittingSetConfig.asked(values, None if domain is None else "domain").plan()
    warn_of_budget(epsilon, delta, plan.config.doubts())
    pairs = input_pairs(data, user, item, item_type, on_null, not_private_counts, plan.config.columns())
    pairs, listed = within_domain(pairs, domain, data, user)
    return ranked(plan, HittingSetProgram(plan, listed, gather=True), pairs, key)
