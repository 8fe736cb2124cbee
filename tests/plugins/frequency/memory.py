"""`frequency`: noisy shares of users that hold the items of a public list, from data in memory, without Beam."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from frequency.family import FrequencyConfig

from dpbeam.counts.gathered import public_domain
from dpbeam.errors import naming_arguments
from dpbeam.in_memory.select import (
    Selection,
    input_pairs,
    public_list,
    released_by,
    released_table,
    run_key,
    warn_of_budget,
)


def frequency(
    data: Any,
    *,
    domain: Any,
    epsilon: float,
    delta: float,
    clip: int = 4,
    users_share: float = 0.1,
    user: str = "user",
    item: str | Sequence[str] = "item",
    item_type: str | Sequence[str] | None = None,
    on_null: str = "error",
    insecure_test_key: str | None = None,
) -> Selection:
    """A noisy share of all users for every item of a public list, under (epsilon, delta)-differential privacy.

    Args:
      data, user, item, item_type, on_null, insecure_test_key: as of `dpbeam.select`.
      domain: the list; epsilon, delta, clip, users_share: as of `FrequencyConfig`.
    """
    key = run_key(insecure_test_key)
    with naming_arguments():
        plan = FrequencyConfig(epsilon, delta, clip, users_share).plan()
    warn_of_budget(epsilon, delta)
    pairs = input_pairs(data, user, item, item_type, on_null, None, FrequencyConfig.added)
    listed = public_domain(public_list(domain, data, user, pairs, "domain"))
    ledger = FrequencyConfig.ledger(
        plan, input_parameters=pairs.parameters, fixed_key=key.insecure, privacy_unit=pairs.privacy_unit
    )
    ledger.verify()
    released, _ = released_by(plan.program(listed), pairs, key)
    return Selection(released_table(released, None, pairs.names, pairs.kinds, FrequencyConfig.added), ledger)
