"""The kind of release `frequency`: noisy shares of users that hold the items of a public list."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpbeam.accounting.budget import Budget, check_share
from dpbeam.families.base import OutputColumn, Release, Shown, Table
from dpbeam.selectors.base import setting

if TYPE_CHECKING:
    from frequency.plan import FrequencyPlan

SHARE, DEVIATION = "share", "share_sd"


@dataclass(frozen=True)
class FrequencyConfig(Release):
    """Noisy shares of all users that hold the items of a public list.

    Attributes:
      epsilon, delta: the budget of all shares together.
      clip: a user of more items of the list than these counts less for each.
      users_share: part of the budget that the number of all users gets.

    Raises:
      InputError: a setting is out of range.
    """

    name = writes = "frequency"
    summary = "noisy shares of users that hold the items of a public list"
    added = (OutputColumn(SHARE, float), OutputColumn(DEVIATION, float))
    command = "frequency.command"
    listed_alone = False  # users without an item of the list are among all users

    clip: int = setting(
        4, "a user of more items of the list counts less for each (default 4)", low=1, high=1_000, metavar="N"
    )
    users_share: float = setting(
        0.1, "share of the budget for the number of all users (default 0.1)", metavar="X"
    )

    def __post_init__(self) -> None:
        Budget(self.epsilon, self.delta)
        super().__post_init__()
        check_share("users_share", self.users_share)

    def plan(self, *public: Any) -> FrequencyPlan:
        from frequency.plan import plan_frequency

        return plan_frequency(self)

    def stated(self) -> dict[str, Any]:
        return {**super().stated(), "public_domain": True}

    @classmethod
    def follows(cls, plan: FrequencyPlan) -> dict[str, Any]:
        return {"users_sd": plan.users_sigma, "sum_sd": plan.sums_sigma}

    @classmethod
    def shown(cls, report: Mapping[str, Any]) -> Iterator[Shown]:
        yield f"frequency  epsilon {report['epsilon']:g}  delta {report['delta']:g}"
        of_count = report["sum_sd"] * report["clip"] ** 0.5
        rows = (("all users", f"{report['users_sd']:.2f}"), ("users of an item", f"{of_count:.2f}"))
        yield Table(("number of", "standard deviation"), rows, "Noise")
