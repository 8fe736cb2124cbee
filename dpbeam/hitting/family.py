"""The family `hitting-set`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dpbeam.families.base import Family, Recalibrated, Shown, Table
from dpbeam.selection.family import domain_stage, shown_domain

if TYPE_CHECKING:
    from dpbeam.accounting.ledger import Ledger
    from dpbeam.hitting.config import HittingSetPlan


class HittingSet(Family):
    """At most k items that as many users as possible hold one of."""

    name = method = "hitting-set"
    summary = "k items that as many users as possible hold one of"

    def ledger(self, plan: HittingSetPlan, **run: Any) -> Ledger:
        from dpbeam.hitting.report import hitting_set_ledger

        return hitting_set_ledger(plan, **run)

    def recalibrated(self, ledger: Ledger) -> Recalibrated:
        from dpbeam.hitting.config import HittingSetConfig, plan_hitting_set

        values = ledger.parameters
        plan = plan_hitting_set(
            HittingSetConfig(
                ledger.epsilon,
                ledger.delta,
                values["k"],
                selection=domain_stage(ledger, ledger.delta),
                selector_share=values["selector_share"],
                public_domain=values["public_domain"],
            )
        )
        return Recalibrated(plan.event, plan.selection)

    def report(self, plan: HittingSetPlan) -> dict[str, Any]:
        from dpbeam.hitting.report import hitting_set_report

        return hitting_set_report(plan)

    def shown(self, report: Mapping[str, Any]) -> Iterator[Shown]:
        yield from shown_domain(
            f"hitting-set  k {report['k']}  epsilon {report['epsilon']:g}  delta {report['delta']:g}", report
        )
        rows = []
        for name, value in report["choice_range"].items():
            used = " (used)" if name == report["composition"] else ""
            rows.append((f"range of a choice under {name} composition{used}", f"{value:.5f}"))
        rows.append(("probability with which a user takes part", f"{report['rate']:g}"))
        hard = f"standard deviation of the count of an item of {report['hard_count']} users"
        rows.append((hard, f"{report['deviation']:.1f}"))
        for row in report["lost_users"]:
            what = f"users that a choice among {row['domain']} items loses to noise, at most on average"
            rows.append((what, f"{row['users']:.1f}"))
        yield Table(("what", "value"), tuple(rows), "Choices")

    def beside_items(self, parameters: Mapping[str, Any]) -> tuple[int, int]:
        return 1, 0
