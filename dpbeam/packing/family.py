"""The family `pack`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dpbeam.families.base import Family, Recalibrated, Shown, Table

if TYPE_CHECKING:
    from dpbeam.accounting.ledger import Ledger
    from dpbeam.packing.config import Market, PackingPlan


class Pack(Family):
    """Allocates scarce resources among agents."""

    name, method = "pack", "packing"
    summary = "allocate scarce resources among agents, each seeing its own share"

    def ledger(self, plan: PackingPlan, **run: Any) -> Ledger:
        from dpbeam.packing.report import packing_ledger

        return packing_ledger(plan, **run)

    def recalibrated(self, ledger: Ledger) -> Recalibrated:
        from dpbeam.packing.config import PackingConfig, make_plan

        defaults = PackingConfig(ledger.epsilon, ledger.delta).public_parameters()
        settings = {name: ledger.parameters[name] for name in defaults}
        plan = make_plan(PackingConfig(ledger.epsilon, ledger.delta, **settings), _market(ledger))
        return Recalibrated(plan.event, stated=plan.public_parameters())

    def sensitivity_needed(self, ledger: Ledger) -> float:
        from dpbeam.packing.config import PackingConfig
        from dpbeam.packing.market import sensitivity_of

        most = ledger.parameters["max_resources_per_agent"]
        # The settings refuse what is no bound.
        config = PackingConfig(ledger.epsilon, ledger.delta, max_resources_per_agent=most)
        return sensitivity_of(_market(ledger).limits, config.max_resources_per_agent)

    def report(self, plan: PackingPlan) -> dict[str, Any]:
        from dpbeam.packing.report import packing_report

        return packing_report(plan)

    def shown(self, report: Mapping[str, Any]) -> Iterator[Shown]:
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
