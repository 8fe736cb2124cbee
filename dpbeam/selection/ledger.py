"""The ledger of a selection, the same whether it runs on Beam or in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpbeam.accounting.ledger import Ledger, key_source
from dpbeam.accounting.versions import code_revision, versions
from dpbeam.selection.known import KNOWN
from dpbeam.selection.plan import SelectionPlan

#: Of the parameters: what a noisy count's deviation is a multiple of.
COUNT_DEVIATION = "noisy_count_sd_per_sqrt_item"


def one_value_of(column: str | None) -> str:
    """The privacy unit of pairs whose users stand in this column; None: in one without a name."""
    return f"one user: one value of the {'user column' if column is None else f'column {column!r}'}"


def selection_ledger(
    plan: SelectionPlan,
    *,
    input_parameters: dict[str, Any] | None,
    fixed_key: bool,
    privacy_unit: str,
    public_items: bool = False,
    known: Sequence[dict[str, Any]] | None = None,
) -> Ledger:
    """What a run of `plan` costs and how.

    Args:
      input_parameters: public settings of the input, JSON values.
      fixed_key: whether the key of the run is a fixed one of tests, which voids the guarantee.
      privacy_unit: what one user is, as `one_value_of` says it.
      public_items: whether a list of public items is released without budget.
      known: releases whose items take no part, from `named_release`; None: there are none.
    """
    config = plan.config
    named = {} if known is None else {KNOWN: list(known)}
    return Ledger(
        method=config.method,
        epsilon=config.epsilon,
        delta=config.delta,
        accounting=plan.accounting,
        events=plan.event,
        privacy_unit=privacy_unit,
        parameters={
            **config.public_parameters(),
            **count_parameters(plan),
            **named,
            "input": input_parameters,
        },
        key_source=key_source(fixed=fixed_key),
        versions=versions(),
        code_revision=code_revision(),
        public_items=public_items,
    )


def count_parameters(plan: SelectionPlan) -> dict[str, Any]:
    """The noise of the counts; the clip that it is multiplied by is chosen in the run and stands in the output."""
    return {} if plan.counts is None else {COUNT_DEVIATION: plan.counts[0].sigma}
