"""The ledger of a plan, and what it means before any data."""

from __future__ import annotations

from typing import Any

from dpbeam.accounting.ledger import COMPUTATIONAL_NOTE, REPLACE_ONE_AGENT, Ledger, run_ledger
from dpbeam.packing.config import PackingPlan

JOINT_NOTE = (
    "Joint differential privacy: the prices are (epsilon, delta)-differentially private, and an agent's allocation "
    "is a function of the prices and of its own row, so it may be shown to that agent and to nobody else."
)
ROW_NOTE = "NOT FOR PUBLICATION: a row may be shown to its own agent alone (joint differential privacy)"


def packing_ledger(plan: PackingPlan, *, fixed_key: bool, input_parameters: dict[str, Any]) -> Ledger:
    """What was promised and done."""
    ledger = run_ledger(
        "packing",
        plan,
        "gaussian",
        plan.public_parameters(),
        input_parameters=input_parameters,
        fixed_key=fixed_key,
        privacy_unit=f"one agent: its value and its demands; agents stand in {_where(input_parameters)}",
        neighbouring_relation=REPLACE_ONE_AGENT,
        guarantee_note=f"{JOINT_NOTE} {COMPUTATIONAL_NOTE}",
    )
    ledger.verify()
    return ledger


def _where(input_parameters: dict[str, Any]) -> str:
    column = input_parameters.get("agent_column")
    return "the rows of the input" if column is None else f"the column {column!r}"


def packing_report(plan: PackingPlan) -> dict[str, Any]:
    """What settings and market mean, as plain data."""
    supply = float(plan.market.supply)
    return {
        "epsilon": plan.config.epsilon,
        "delta": plan.config.delta,
        **plan.public_parameters(),
        "suffices": supply >= plan.supply_needed,
        "margin_share": plan.overuse_margin / supply,
        "noise_deviation": plan.deviation,
    }
