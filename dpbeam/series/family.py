"""The family `series`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dpbeam.families.base import Family, Recalibrated, Shown

if TYPE_CHECKING:
    from dpbeam.accounting.ledger import Ledger
    from dpbeam.series.config import SeriesPlan


class Series(Family):
    """Nights that release items one by one from growing data."""

    name = method = "series"
    summary = "release items night by night from growing data, for one budget"

    def ledger(self, plan: SeriesPlan, **run: Any) -> Ledger:
        from dpbeam.series.config import series_ledger

        return series_ledger(plan, **run)

    def recalibrated(self, ledger: Ledger) -> Recalibrated:
        from dpbeam.series.config import SeriesConfig, plan_series

        plan = plan_series(SeriesConfig.of_parameters(ledger.epsilon, ledger.delta, ledger.parameters))
        return Recalibrated(plan.event, stated=plan.stated_parameters())

    def report(self, plan: SeriesPlan) -> dict[str, Any]:
        config, schedule = plan.config, plan.config.resolved_schedule
        return {
            "job": self.name,
            "epsilon": config.epsilon,
            "delta": config.delta,
            "nights": [config.name_of(night) for night in range(1, config.nights + 1)],
            "rounds": [len(schedule.of_night(night)) for night in range(1, config.nights + 1)],
            "max_items_per_user": config.max_items_per_user,
        }

    def shown(self, report: Mapping[str, Any]) -> Iterator[Shown]:
        nights, rounds = report["nights"], report["rounds"]
        yield f"{len(nights)} nights, {nights[0]} to {nights[-1]}; {sum(rounds)} rounds: {', '.join(map(str, rounds))}"
        yield (
            f"all nights together: epsilon {report['epsilon']:g}, delta {report['delta']:g}; "
            f"D0 {report['max_items_per_user']}"
        )

    def shares_budget(self, parameters: Mapping[str, Any]) -> str:
        series = f"a series of {parameters.get('nights')} nights, all under this one budget"
        if "night" in parameters:
            return f"Night {parameters['night']} of {series}."
        return f"The window of {series}. Each night has a ledger of its own; items of this one were known before."
