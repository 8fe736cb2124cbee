"""The kind of release `hitting-set`: at most k items that as many users as possible hold one of."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass
from typing import TYPE_CHECKING, Any

from dpbeam.counts import RANK
from dpbeam.families.base import OutputColumn, Shown, Table
from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.domain import DomainRelease
from dpbeam.selectors.base import setting

if TYPE_CHECKING:
    from dpbeam.hitting.config import HittingSetPlan

#: Items of the domain in the examples of `lost_users`.
_DOMAIN_SIZES = (100, 1_000, 10_000)


@dataclass(frozen=True)
class HittingSetConfig(DomainRelease):
    """At most k items that as many users as possible hold one of; for fields see `DomainRelease`."""

    name = writes = "hitting-set"
    summary = "at most k items that as many users as possible hold one of"
    added = (OutputColumn(RANK, int, before=True),)

    k: int = setting(MISSING, "how many items; required", kind=int, metavar="K", common=True)
    selection: SelectionConfig | None = None
    selector_share: float | None = setting(
        None,
        "its share of the budget (default 0.3 to 0.9, growing with k/epsilon)",
        kind=float,
        metavar="X",
    )
    public_domain: bool = False

    def plan(self, *public: Any) -> HittingSetPlan:
        from dpbeam.hitting.config import plan_hitting_set

        return plan_hitting_set(self)

    @classmethod
    def follows(cls, plan: HittingSetPlan) -> dict[str, Any]:
        return {"choice_range": plan.ranges, "rate": plan.rate}

    @classmethod
    def unreviewed(cls, plan: HittingSetPlan) -> list[str]:
        from dpbeam.hitting.config import FIRST_HIT

        first_hit = ["the composition first-hit"] if plan.composition == FIRST_HIT else []
        return [*super().unreviewed(plan), *first_hit]

    @classmethod
    def report(cls, plan: HittingSetPlan) -> dict[str, Any]:
        from dpbeam.hitting.config import HARD_COUNT, spread

        lost = [
            {"domain": size, "users": lost_users(plan.epsilon0, size) / plan.rate} for size in _DOMAIN_SIZES
        ]
        return {
            **super().report(plan),
            "hard_count": HARD_COUNT,
            "deviation": math.sqrt(spread(plan.epsilon0, plan.rate)),
            "lost_users": lost,
        }

    @classmethod
    def shown(cls, report: Mapping[str, Any]) -> Iterator[Shown]:
        yield from super().shown(report)
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


def lost_users(epsilon0: float, domain: int) -> float:
    """How many users a choice hits fewer than the best one, at most on average.

    The largest of d counts plus Gumbel(1/epsilon0) noise is behind the largest count by ln(d)/epsilon0 in the mean
    at most: E[max(c + Z)] >= max c + E[Z], and E[c chosen] >= E[max(c + Z)] - E[max Z] with E[max Z] = E[Z] +
    ln(d)/epsilon0.
    """
    return math.log(domain) / epsilon0
