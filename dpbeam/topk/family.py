"""The kind of release `top-k`: the k items that most users hold, in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, replace
from typing import TYPE_CHECKING, Any

from dpbeam.counts import NOISY_COUNT, RANK
from dpbeam.families.base import OutputColumn, Shown, Table
from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.domain import DomainRelease
from dpbeam.selectors.base import setting

if TYPE_CHECKING:
    from dpbeam.accounting.ledger import Ledger
    from dpbeam.topk.config import TopKPlan

#: The mechanism that needs no selection.
LIMITED_DOMAIN = "limited-domain"


@dataclass(frozen=True)
class TopKConfig(DomainRelease):
    """The k items that most users hold, in order.

    Attributes:
      epsilon, delta: the budget of all stages together; delta may be 0 where all are pure.
      k, selection, selector_share, public_domain: see `DomainRelease`.
      mechanism: name of the known-domain mechanism, or "limited-domain", which needs no selection.
      noisy_counts: release noisy counts of the chosen items, at `noisy_count_share` of the budget.
      kbar: of limited-domain, how many of the largest counts take part; None: 10 k; 0: all.
      max_items_per_user: of limited-domain, how many items of a user count; None: all, or 100 with kbar = 0.
      beta: pruning failure of fast-joint (utility only); None: its default.
    """

    name = writes = "top-k"
    summary = "the k items that most users hold, in order"
    added = (OutputColumn(RANK, int, before=True), OutputColumn(NOISY_COUNT, int, "noisy_counts"))

    k: int = setting(MISSING, "how many items; required", kind=int, metavar="K", common=True)
    mechanism: str = setting(
        "gauss-rank",
        "gauss-rank (default), cdp-peel, pnf-peel, joint, fast-joint or limited-domain",
        metavar="NAME",
        common=True,
    )
    selection: SelectionConfig | None = None
    selector_share: float | None = setting(
        None,
        "its share of the budget (default 0.5; of gauss-rank more above k = 100, up to 0.7)",
        kind=float,
        metavar="X",
    )
    public_domain: bool = False
    noisy_counts: bool = setting(False, "release a noisy count of every chosen item", stated=False)
    noisy_count_share: float | None = setting(
        None, "share of --noisy_counts (default 0.2)", kind=float, metavar="X"
    )
    kbar: int | None = setting(
        None, "limited-domain: counts that take part (default 10 k; 0: all)", kind=int, metavar="N"
    )
    max_items_per_user: int | None = None
    beta: float | None = None

    @property
    def selects(self) -> bool:
        return super().selects and self.mechanism != LIMITED_DOMAIN

    @property
    def bounds(self) -> tuple[str, ...]:
        return ("max_items_per_user",) if self.mechanism == LIMITED_DOMAIN else ()

    def plan(self, *public: Any) -> TopKPlan:
        from dpbeam.topk.config import plan_topk

        return plan_topk(self)

    def stated(self) -> dict[str, Any]:
        bound = {} if self.max_items_per_user is None else {"max_items_per_user": self.max_items_per_user}
        return {**super().stated(), **bound}

    @classmethod
    def follows(cls, plan: TopKPlan) -> dict[str, Any]:
        deviation = None if plan.counts is None else plan.counts.deviation
        return {"choice_budget": plan.choice_budgets, "noisy_count_deviation": deviation}

    @classmethod
    def unreviewed(cls, plan: TopKPlan) -> list[str]:
        return [*super().unreviewed(plan), *([plan.config.mechanism] if plan.ranks_users else [])]

    @classmethod
    def of_ledger(cls, ledger: Ledger) -> TopKConfig:
        values = ledger.parameters
        return replace(
            super().of_ledger(ledger),
            noisy_counts=values["noisy_count_deviation"] is not None,
            max_items_per_user=values.get("max_items_per_user"),
        )

    @classmethod
    def columns_of(cls, parameters: Mapping[str, Any]) -> tuple[OutputColumn, ...]:
        counted = parameters.get("noisy_count_deviation") is not None
        return super().columns_of({"noisy_counts": counted, **parameters})

    @classmethod
    def report(cls, plan: TopKPlan) -> dict[str, Any]:
        from dpbeam.topk.report import choice_report

        return {**super().report(plan), **choice_report(plan)}

    @classmethod
    def shown(cls, report: Mapping[str, Any]) -> Iterator[Shown]:
        yield from super().shown(report)
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
