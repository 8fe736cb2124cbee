"""The family `count`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dpbeam.families.base import Family, Recalibrated, Shown, Table

if TYPE_CHECKING:
    from dpbeam.accounting.ledger import Ledger
    from dpbeam.counting.config import CountPlan


class Count(Family):
    """Noisy numbers of users of the items of a public list."""

    name = method = "count"
    summary = "noisy numbers of users of the items of a public list"

    def ledger(self, plan: CountPlan, **run: Any) -> Ledger:
        from dpbeam.counting.report import count_ledger

        return count_ledger(plan, **run)

    def recalibrated(self, ledger: Ledger) -> Recalibrated:
        from dpbeam.counting.config import CountConfig, plan_count

        plan = plan_count(CountConfig(ledger.epsilon, ledger.delta))
        return Recalibrated(plan.event, stated=plan.parameters())

    def report(self, plan: CountPlan) -> dict[str, Any]:
        from dpbeam.counting.report import count_report

        return count_report(plan)

    def shown(self, report: Mapping[str, Any]) -> Iterator[Shown]:
        yield f"count  epsilon {report['epsilon']:g}  delta {report['delta']:g}"
        rows = [("of the histogram of listed items per user", f"{report['histogram_deviation']:.4f}")]
        for row in report["deviations"]:
            rows.append((f"of a count where the clip is {row['clip']}", f"{row['deviation']:.2f}"))
        yield Table(
            ("standard deviation", "users"), tuple(rows), "Noise; the clip follows from the histogram"
        )

    def beside_items(self, parameters: Mapping[str, Any]) -> tuple[int, int]:
        return 0, 2
