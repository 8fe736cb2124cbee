"""The family `top-k`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dpbeam.families.base import Family, Recalibrated, Shown, Table
from dpbeam.selection.family import domain_stage, shown_domain

if TYPE_CHECKING:
    from dpbeam.accounting.ledger import Ledger
    from dpbeam.topk.config import TopKPlan


class TopK(Family):
    """The k items that most users hold, in order."""

    name = method = "top-k"
    summary = "the k items that most users hold, in order"

    def ledger(self, plan: TopKPlan, **run: Any) -> Ledger:
        from dpbeam.topk.report import topk_ledger

        return topk_ledger(plan, **run)

    def recalibrated(self, ledger: Ledger) -> Recalibrated:
        from dpbeam.topk.config import TopKConfig, plan_topk

        values = ledger.parameters
        plan = plan_topk(
            TopKConfig(
                ledger.epsilon,
                ledger.delta,
                values["k"],
                mechanism=values["mechanism"],
                selection=domain_stage(ledger, ledger.delta or 0.5),
                selector_share=values["selector_share"],
                public_domain=values["public_domain"],
                noisy_counts=values["noisy_count_deviation"] is not None,
                noisy_count_share=values["noisy_count_share"],
                kbar=values["kbar"],
                max_items_per_user=values.get("max_items_per_user"),
            )
        )
        return Recalibrated(plan.event, plan.selection)

    def report(self, plan: TopKPlan) -> dict[str, Any]:
        from dpbeam.topk.report import topk_report

        return topk_report(plan)

    def shown(self, report: Mapping[str, Any]) -> Iterator[Shown]:
        yield from shown_domain(
            f"top-k  k {report['k']}  epsilon {report['epsilon']:g}  delta {report['delta']:g}", report
        )
        rows = [("choice", "mechanism", report["mechanism"])]
        for name, value in report["choice_budget"].items():
            used = " (used)" if name == report["composition"] else ""
            rows.append(("choice", f"budget under {name} composition{used}", f"{value:.5f}"))
        if "distance_needed" in report:
            what = "users of rank k above those of rank kbar + 1, for k items in 99 of 100 runs"
            rows.append(("choice", what, f"{report['distance_needed']:,}"))
        if report["noisy_count_deviation"] is not None:
            what = f"standard deviation, {report['noisy_count_noise']}"
            rows.append(("noisy counts", what, f"{report['noisy_count_deviation']:.2f}"))
        yield Table(("stage", "what", "value"), tuple(rows), "Choice and noise")
        if not report["expected_errors"]:
            yield "expected errors are simulated for --k up to 1000"
            return
        errors = [
            (
                str(row["top_count"]),
                f"{100 * row['found']:.1f} %",
                f"{row['rank_error']:.2f}",
                f"{row['count_error']:.1f}",
            )
            for row in report["expected_errors"]
        ]
        yield Table(
            ("users of the first", "of the top k found", "rank off by", "count off by at most"),
            tuple(errors),
            "Errors of the choice where rank r is held by 1/r of the users of the first",
        )

    def beside_items(self, parameters: Mapping[str, Any]) -> tuple[int, int]:
        return 1, int(parameters.get("noisy_count_deviation") is not None)
