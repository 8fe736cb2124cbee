"""The ledger of a selection, the same whether it runs on Beam or in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpbeam.accounting.ledger import Ledger, run_ledger
from dpbeam.accounting.release import Others
from dpbeam.counts.selection import COUNT_DEVIATION
from dpbeam.counts.user_rounds import OTHERS
from dpbeam.kernels.columns import Columns
from dpbeam.selection.known import known_parameters
from dpbeam.selection.plan import SelectionPlan

#: Of the parameters: the deviation of the number of users that hold nothing of the output.
OTHERS_DEVIATION = "others_sd"


#: The privacy unit of batches of whole users, which each name their own.


def one_value_of(column: str | None) -> str:
    """The privacy unit of pairs whose users stand in this column; None: in one without a name."""
    return f"one user: one value of the {'user column' if column is None else f'column {column!r}'}"


def selection_ledger(
    plan: SelectionPlan, *, known: Sequence[dict[str, Any]] | None = None, only_new: bool = False, **run: Any
) -> Ledger:
    """What a run of `plan` costs and how.

    Args:
      known: releases whose items take no part, from `named_release`; None: there are none.
      only_new: the output leaves their items out.
      run: see `run_ledger`.
    """
    named = known_parameters(known, only_new=only_new)
    parameters = {**plan.config.stated(), **count_parameters(plan), **named}
    unreviewed = plan.config.unreviewed(plan)
    return run_ledger(plan.config.method, plan, plan.accounting, parameters, unreviewed=unreviewed, **run)


def count_parameters(plan: SelectionPlan) -> dict[str, Any]:
    """The noise of the counts; the clip that it is multiplied by is chosen in the run and stands in the output."""
    if plan.counts is None:
        return {}
    others = {} if plan.others_deviation is None else {OTHERS_DEVIATION: plan.others_deviation}
    return {COUNT_DEVIATION: plan.counts[0].sigma, **others}


def others_in(plan: SelectionPlan, broadcast: Columns) -> Others | None:
    """How many users hold nothing of the output, from what the hub of a finished run last said; None: not asked for."""
    if plan.others_deviation is None:
        return None
    return Others(int(broadcast[OTHERS][0]), plan.others_deviation)
