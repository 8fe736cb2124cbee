"""`dpbeam.count`: noisy numbers of users of the items of a public list, from data in memory, without Beam."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Any

from dpbeam.counting.family import CountConfig
from dpbeam.errors import SettingError, naming_arguments
from dpbeam.in_memory.select import (
    Selection,
    input_pairs,
    released_by,
    released_table,
    run_key,
    warn_of_budget,
)
from dpbeam.in_memory.top_k import within_domain


def count(
    data: Any,
    *,
    domain: Any,
    epsilon: float,
    delta: float,
    user: str = "user",
    item: str | Sequence[str] = "item",
    item_type: str | Sequence[str] | None = None,
    on_null: str = "error",
    not_private_counts: MutableMapping[str, int] | None = None,
    insecure_test_key: str | None = None,
) -> Selection:
    """A noisy number of users of every item of a public list, under (epsilon, delta)-differential privacy.

        result = dpbeam.count(frame, domain=["tea", "coffee"], epsilon=1, delta=1e-8)
        result.table, result.ledger, result.to_pandas()

    Guarantee: (epsilon, delta)-DP for add/remove of one user, who may hold any number of items; see `dpbeam.select`.

    Args:
      data, user, item, item_type, on_null, not_private_counts, insecure_test_key: see `dpbeam.select`.
      domain: the list, a column of items or a frame with the item columns; other items are left out.
      epsilon, delta: the budget of all counts together.

    Returns:
      the list's items with `noisy_count` and `noisy_count_sd`, sorted by the bytes of the items.

    Raises:
      InputError, TypeError: see `dpbeam.select`.
    """
    if domain is None:
        raise SettingError("domain is required: the items to count, which must be public")
    key = run_key(insecure_test_key)
    with naming_arguments():
        plan = CountConfig(epsilon, delta).plan()
    warn_of_budget(epsilon, delta)
    pairs = input_pairs(data, user, item, item_type, on_null, not_private_counts, CountConfig.added)
    pairs, listed = within_domain(pairs, domain, data, user)
    assert listed is not None
    ledger = CountConfig.ledger(
        plan, input_parameters=pairs.parameters, fixed_key=key.insecure, privacy_unit=pairs.privacy_unit
    )
    ledger.verify()
    released, _ = released_by(plan.program(listed), pairs, key)
    return Selection(released_table(released, None, pairs.names, pairs.kinds, CountConfig.added), ledger)
