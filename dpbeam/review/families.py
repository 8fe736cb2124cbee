"""From a ledger back to the plan that it came from, where its kind is known.

What is found is held against the events of the ledger: a plan that differs says nothing about the release, and is not
shown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dpbeam.accounting.events import ComposedEvent, event_to_dict
from dpbeam.accounting.ledger import Ledger
from dpbeam.errors import InputError
from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.plan import SelectionPlan, make_plan

# Other versions of numpy and scipy round otherwise.
_TOLERANCE = 1e-9
_NOT_SETTINGS = ("account", "input", "output")


@dataclass(frozen=True)
class Calibrated:
    """The settings of a ledger, calibrated by this version.

    Attributes:
      same: whether that gives the events of the ledger.
      selection: the plan of the selection in it, None if there is none.
    """

    same: bool
    selection: SelectionPlan | None


def calibrated_anew(ledger: Ledger) -> Calibrated | None:
    """What the settings of a ledger give today; None where no calibration is known or the settings are refused."""
    calibrate = _FAMILIES.get(ledger.method, _selection)
    try:
        event, selection = calibrate(ledger)
    except (InputError, ValueError, TypeError, KeyError, ArithmeticError):
        return None
    return Calibrated(_alike(event_to_dict(event), event_to_dict(ledger.events)), selection)


def _selection(ledger: Ledger) -> tuple[ComposedEvent, SelectionPlan]:
    plan = make_plan(_config(ledger.epsilon, ledger.delta, ledger.method, ledger.parameters))
    return plan.event, plan


def _top_k(ledger: Ledger) -> tuple[ComposedEvent, SelectionPlan | None]:
    from dpbeam.topk.config import TopKConfig, plan_topk

    values = ledger.parameters
    selection = None
    if values["selection"] is not None:
        selection = _config(ledger.epsilon, ledger.delta or 0.5, values["selector"], values["selection"])
    plan = plan_topk(
        TopKConfig(
            ledger.epsilon,
            ledger.delta,
            values["k"],
            mechanism=values["mechanism"],
            selection=selection,
            selector_share=values["selector_share"],
            public_domain=values["public_domain"],
            noisy_counts=values["noisy_count_deviation"] is not None,
            noisy_count_share=values["noisy_count_share"],
            kbar=values["kbar"],
        )
    )
    return plan.event, plan.selection


def _hitting_set(ledger: Ledger) -> tuple[ComposedEvent, SelectionPlan | None]:
    from dpbeam.hitting.config import HittingSetConfig, plan_hitting_set

    values = ledger.parameters
    selection = None
    if values["selection"] is not None:
        selection = _config(ledger.epsilon, ledger.delta, values["selector"], values["selection"])
    plan = plan_hitting_set(
        HittingSetConfig(
            ledger.epsilon,
            ledger.delta,
            values["k"],
            selection=selection,
            selector_share=values["selector_share"],
            public_domain=values["public_domain"],
        )
    )
    return plan.event, plan.selection


#: Kinds of ledgers that are not named by a selector.
_FAMILIES: Mapping[str, Callable[[Ledger], tuple[ComposedEvent, SelectionPlan | None]]] = {
    "top-k": _top_k,
    "hitting-set": _hitting_set,
}


def _config(epsilon: float, delta: float, method: str, parameters: Mapping[str, Any]) -> SelectionConfig:
    values = {name: value for name, value in parameters.items() if name not in _NOT_SETTINGS}
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    return SelectionConfig(epsilon, delta, method, **values)


def _alike(one: Any, other: Any) -> bool:
    """Equal, numbers but for rounding."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=_TOLERANCE)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_alike(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_alike, one, other))
    return bool(one == other)
