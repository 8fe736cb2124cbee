"""The ledger of a selection, the same whether it runs on Beam or in memory."""

from __future__ import annotations

from typing import Any

from dpbeam.accounting.ledger import Ledger, key_source
from dpbeam.accounting.versions import code_revision, versions
from dpbeam.selection.plan import SelectionPlan

ONE_VALUE_OF_THE_USER_COLUMN = "one user: one value of the user column"


def selection_ledger(
    plan: SelectionPlan,
    *,
    input_parameters: dict[str, Any] | None,
    fixed_key: bool,
    privacy_unit: str = ONE_VALUE_OF_THE_USER_COLUMN,
    public_items: bool = False,
) -> Ledger:
    """What a run of `plan` costs and how.

    Args:
      input_parameters: public settings of the input, JSON values.
      fixed_key: whether the key of the run is a fixed one of tests, which voids the guarantee.
      privacy_unit: what one user is.
      public_items: whether a list of public items is released without budget.
    """
    config = plan.config
    return Ledger(
        method=config.method,
        epsilon=config.epsilon,
        delta=config.delta,
        accounting=plan.accounting,
        events=plan.event,
        privacy_unit=privacy_unit,
        parameters={**config.public_parameters(), **_counts(plan), "input": input_parameters},
        key_source=key_source(fixed=fixed_key),
        versions=versions(),
        code_revision=code_revision(),
        public_items=public_items,
    )


def _counts(plan: SelectionPlan) -> dict[str, Any]:
    """The noise of the counts; the clip that it is multiplied by is chosen in the run and stands in the output."""
    return {} if plan.counts is None else {"noisy_count_sd_per_sqrt_item": plan.counts[0].sigma}
