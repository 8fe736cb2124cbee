"""The ledger of a count, and what its plan means."""

from __future__ import annotations

import math
from typing import Any

from dpbeam.accounting.ledger import Ledger, run_ledger
from dpbeam.counting.config import CountPlan

METHOD = "count"
#: Clips of which the deviation of a count is shown.
CLIPS = (1, 10, 100, 1_000)


def count_ledger(plan: CountPlan, **run: Any) -> Ledger:
    """What a run of `plan` costs and how; `run`: as of `run_ledger`."""
    parameters = {**plan.parameters(), "public_domain": True, "noisy_counts": True}
    return run_ledger(METHOD, plan, "gaussian", parameters, **run)


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
