"""The kind of release `count`: noisy numbers of users of the items of a public list."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpbeam.accounting.budget import Budget
from dpbeam.counts import DEVIATION, NOISY_COUNT
from dpbeam.families.base import OutputColumn, Release, Shown, Table

if TYPE_CHECKING:
    from dpbeam.counting.config import CountPlan

#: Clips of which the deviation of a count is shown.
_CLIPS = (1, 10, 100, 1_000)


@dataclass(frozen=True)
class CountConfig(Release):
    """Noisy numbers of users of the items of a public list.

    Attributes:
      epsilon, delta: the budget of all counts together.

    Raises:
      InputError: the budget is out of range.
    """

    name = writes = "count"
    summary = "noisy numbers of users of the items of a public list"
    added = (OutputColumn(NOISY_COUNT, int), OutputColumn(DEVIATION, float))

    def __post_init__(self) -> None:
        Budget(self.epsilon, self.delta)
        super().__post_init__()

    def plan(self, *public: Any) -> CountPlan:
        from dpbeam.counting.config import plan_count

        return plan_count(self)

    def stated(self) -> dict[str, Any]:
        return {**super().stated(), "public_domain": True, "noisy_counts": True}

    @classmethod
    def follows(cls, plan: CountPlan) -> dict[str, Any]:
        from dpbeam.counts.selection import COUNT_DEVIATION

        return {
            COUNT_DEVIATION: plan.noises.sigma
        }  # what it is multiplied by, the clip, stands in the output

    @classmethod
    def report(cls, plan: CountPlan) -> dict[str, Any]:
        return {
            **super().report(plan),
            "histogram_deviation": plan.noises.histogram_sigma,
            "deviations": [{"clip": c, "deviation": math.sqrt(c) * plan.noises.sigma} for c in _CLIPS],
        }

    @classmethod
    def shown(cls, report: Mapping[str, Any]) -> Iterator[Shown]:
        yield f"count  epsilon {report['epsilon']:g}  delta {report['delta']:g}"
        rows = [("of the histogram of listed items per user", f"{report['histogram_deviation']:.4f}")]
        for row in report["deviations"]:
            rows.append((f"of a count where the clip is {row['clip']}", f"{row['deviation']:.2f}"))
        yield Table(
            ("standard deviation", "users"), tuple(rows), "Noise; the clip follows from the histogram"
        )
