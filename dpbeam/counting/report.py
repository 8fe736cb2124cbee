"""The ledger of a count, and what its plan means."""

from __future__ import annotations

import math
from typing import Any

from dpbeam.accounting.ledger import Ledger, key_source
from dpbeam.accounting.versions import code_revision, versions
from dpbeam.counting.config import CountPlan

METHOD = "count"
#: Clips of which the deviation of a count is shown.
CLIPS = (1, 10, 100, 1_000)


def count_ledger(
    plan: CountPlan, *, input_parameters: dict[str, Any] | None, fixed_key: bool, privacy_unit: str
) -> Ledger:
    """What a run of `plan` costs and how; arguments as of `selection_ledger`."""
    return Ledger(
        method=METHOD,
        epsilon=plan.config.epsilon,
        delta=plan.config.delta,
        accounting="gaussian",
        events=plan.event,
        privacy_unit=privacy_unit,
        parameters={
            **plan.parameters(),
            "public_domain": True,
            "noisy_counts": True,
            "input": input_parameters,
        },
        key_source=key_source(fixed=fixed_key),
        versions=versions(),
        code_revision=code_revision(),
    )


def count_report(plan: CountPlan) -> dict[str, Any]:
    """Settings, budget and noise of a plan, as JSON values; needs no data."""
    return {
        "job": METHOD,
        "epsilon": plan.config.epsilon,
        "delta": plan.config.delta,
        "histogram_deviation": plan.noises.histogram_sigma,
        **plan.parameters(),
        "deviations": [{"clip": clip, "deviation": math.sqrt(clip) * plan.noises.sigma} for clip in CLIPS],
    }
