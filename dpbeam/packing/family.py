"""The kind of release `pack`: scarce resources for many agents, each of which sees its own share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpbeam.accounting.budget import Budget
from dpbeam.families.base import OutputColumn, Release, Shown, Table
from dpbeam.selectors.base import setting

if TYPE_CHECKING:
    from dpbeam.accounting.ledger import Ledger
    from dpbeam.packing.config import Market, PackingPlan

#: Column of the output: the share of its bundle that an agent gets.
ALLOCATION = "allocation"
JOINT_NOTE = (
    "Joint differential privacy: the prices are (epsilon, delta)-differentially private, and an agent's allocation "
    "is a function of the prices and of its own row, so it may be shown to that agent and to nobody else."
)
ROW_NOTE = "NOT FOR PUBLICATION: a row may be shown to its own agent alone (joint differential privacy)"


@dataclass(frozen=True)
class PackingConfig(Release):
    """Settings of one job.

    Attributes:
      epsilon, delta: the budget of the job; joint differential privacy.
      alpha: accuracy and step: rounds grow with 1/alpha^2, and the supply must be 1/alpha times the noise's margin.
      failure_probability: beta, of using more of any resource than there is.
      integral: every agent gets its whole bundle or nothing.
      start_rounds, start_share: rounds of larger steps towards the right prices, and their share of the filter.
      settle_share: share of the rest that is spent before allocations are averaged.
      max_rounds: of the rounds after the start; a round takes at least this part of the filter.
      margin: prices aim at the supply less the margin of the noise, instead of being scaled down to it at the end.
      max_resources_per_agent: no agent demands more resources than this; None: any number.
      allow_small_supply: go on where the supply is below what alpha needs.

    Raises: InputError on a setting out of range.
    """

    name, writes = "pack", "packing"
    summary = "allocate scarce resources among agents, each seeing its own share"
    added = (OutputColumn(ALLOCATION, float),)

    alpha: float = setting(
        0.1, "accuracy and step (default 0.1)", low=0.005, high=1, metavar="X", common=True
    )
    failure_probability: float = setting(
        1e-3,
        "of using more than there is of any resource (default 0.001)",
        low=1e-12,
        high=0.5,
        metavar="X",
    )
    integral: bool = setting(False, "every agent gets its whole bundle or nothing", common=True)
    start_rounds: int = setting(
        30, "rounds of larger steps at the start (default 30)", low=0, high=1_000, metavar="N"
    )
    start_share: float = setting(
        0.1, "their share of the budget (default 0.1)", low=0.001, high=0.9, metavar="X"
    )
    settle_share: float = setting(
        0.1,
        "share of the rest before allocations are averaged (default 0.1)",
        low=0.001,
        high=0.9,
        metavar="X",
    )
    max_rounds: int = setting(1_000, "rounds after the start (default 1000)", low=2, high=10_000, metavar="N")
    margin: bool = setting(True, "aim at the supply less the noise's margin (default)")
    max_resources_per_agent: int | None = setting(
        None,
        "no agent demands more resources: less noise; more is an error",
        kind=int,
        low=1,
        high=1_000_000,
        metavar="K",
    )
    allow_small_supply: bool = setting(
        False, "go on where the supply is below what --alpha needs", stated=False
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        Budget(self.epsilon, self.delta)

    def plan(self, *public: Any) -> PackingPlan:
        """As of `Release`; `public`: the market."""
        from dpbeam.packing.config import make_plan

        (market,) = public
        return make_plan(self, market)

    @classmethod
    def follows(cls, plan: PackingPlan) -> dict[str, Any]:
        return plan.public_parameters()

    @classmethod
    def ledger(cls, plan: PackingPlan, **run: Any) -> Ledger:
        """As of `Release`, verified; agents stand in the column that `input_parameters` names."""
        from dpbeam.accounting.ledger import COMPUTATIONAL_NOTE, REPLACE_ONE_AGENT

        column = run["input_parameters"].get("agent_column")
        where = "the rows of the input" if column is None else f"the column {column!r}"
        ledger = super().ledger(
            plan,
            privacy_unit=f"one agent: its value and its demands; agents stand in {where}",
            neighbouring_relation=REPLACE_ONE_AGENT,
            guarantee_note=f"{JOINT_NOTE} {COMPUTATIONAL_NOTE}",
            **run,
        )
        ledger.verify()
        return ledger

    @classmethod
    def planned_again(cls, ledger: Ledger) -> PackingPlan:
        return cls.of_ledger(ledger).plan(_market(ledger))

    @classmethod
    def sensitivity_needed(cls, ledger: Ledger) -> float:
        from dpbeam.packing.market import sensitivity_of

        # The settings refuse what is no bound.
        return sensitivity_of(_market(ledger).limits, cls.of_ledger(ledger).max_resources_per_agent)

    @classmethod
    def report(cls, plan: PackingPlan) -> dict[str, Any]:
        supply = float(plan.market.supply)
        return {
            **super().report(plan),
            "suffices": supply >= plan.supply_needed,
            "margin_share": plan.overuse_margin / supply,
            "noise_deviation": plan.deviation,
        }

    @classmethod
    def shown(cls, report: Mapping[str, Any]) -> Iterator[Shown]:
        yield f"packing  epsilon {report['epsilon']:g}  delta {report['delta']:g}  alpha {report['alpha']:g}"
        yield f"{report['num_agents']} agents, {len(report['resources'])} resources"
        margin = f"{report['overuse_margin']:.4g}  ({100 * report['margin_share']:.2f} % of the supply)"
        supply = f"{report['supply']:.6g}  {'suffices' if report['suffices'] else 'TOO SMALL'}"
        rows = (
            ("supply of the scarcest resource, over its largest demand", supply),
            ("supply that alpha needs", f"{report['supply_needed']:.6g}"),
            ("l2-sensitivity of the total demand", f"{report['sensitivity']:.4f}"),
            ("deviation of the noise in the averaged demand", f"{report['noise_deviation']:.4g}"),
            (f"margin for overuse with probability {report['failure_probability']:g}", margin),
            ("rounds, typically; at most", f"{report['typical_rounds']}; {report['rounds_limit']}"),
        )
        yield Table(("what", "value"), rows)


def _market(ledger: Ledger) -> Market:
    from dpbeam.packing.config import Market, Resource

    values = ledger.parameters
    resources = tuple(Resource(**resource) for resource in values["resources"])
    return Market(resources, values["num_agents"], values["max_value"])
