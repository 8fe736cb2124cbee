"""From a ledger back to the plan that it came from, where its kind is known.

What is found is held against the events of the ledger: a plan that differs says nothing about the release, and is not
shown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpbeam.accounting.events import ComposedEvent, GaussianFilterEvent, event_to_dict, leaves
from dpbeam.accounting.ledger import Ledger
from dpbeam.errors import InputError
from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.ledger import COUNT_DEVIATION, count_parameters
from dpbeam.selection.plan import SelectionPlan, make_plan
from dpbeam.selectors.registry import selectors

if TYPE_CHECKING:
    from dpbeam.packing.config import Market

#: Events, the selection among them, and what the ledger's parameters state that follows from the settings.
_Plan = tuple[ComposedEvent, SelectionPlan | None, Mapping[str, Any]]
_NO_SETTINGS = (InputError, ValueError, TypeError, KeyError, AttributeError, ArithmeticError)
# Other versions of numpy and scipy round otherwise.
_TOLERANCE = 1e-9
_NOT_SETTINGS = ("account", "input", "output", COUNT_DEVIATION)


@dataclass(frozen=True)
class Calibrated:
    """The settings of a ledger, calibrated by this version.

    Attributes:
      same: whether that gives the events of the ledger, and what it states beside them; not where they are refused.
      selection: the plan of the selection in it, None if there is none.
    """

    same: bool
    selection: SelectionPlan | None


def calibrated_anew(ledger: Ledger) -> Calibrated | None:
    """What the settings of a ledger give today; None where no calibration is known for its kind."""
    if ledger.method not in _FAMILIES and ledger.method not in selectors():
        return None
    calibrate = _FAMILIES.get(ledger.method, _selection)
    try:
        event, selection, stated = calibrate(ledger)
    except _NO_SETTINGS:
        return Calibrated(False, None)
    same = _alike(event_to_dict(event), event_to_dict(ledger.events))
    known = {name: value for name, value in ledger.parameters.items() if name in stated}
    return Calibrated(same and _alike(dict(stated), known), selection)


@dataclass(frozen=True)
class Sensitivity:
    """The l2-sensitivity of what noise is added to.

    Attributes:
      stated: by the events; needed: what the ledger's public bounds make of it.
    """

    stated: float
    needed: float

    @property
    def covered(self) -> bool:
        """Whether no smaller sensitivity is stated than there is."""
        return self.stated >= self.needed * (1 - _TOLERANCE)


def sensitivity(ledger: Ledger) -> Sensitivity | None:
    """The sensitivity that follows from public bounds in the settings, where a ledger has such; None elsewhere.

    Raises: ValueError if the settings do not say what it follows from.
    """
    found = [leaf.sensitivity for leaf in leaves(ledger.events) if type(leaf) is GaussianFilterEvent]
    if not found:
        return None
    from dpbeam.packing.config import PackingConfig, sensitivity_of

    try:
        most = ledger.parameters["max_resources_per_agent"]
        config = PackingConfig(
            ledger.epsilon, ledger.delta, max_resources_per_agent=most
        )  # refuses what is none
        needed = sensitivity_of(_market(ledger), config.max_resources_per_agent)
    except _NO_SETTINGS:
        raise ValueError("the ledger does not say what one agent can demand") from None
    return Sensitivity(min(found), needed)


def _selection(ledger: Ledger) -> _Plan:
    plan = make_plan(_config(ledger.epsilon, ledger.delta, ledger.method, ledger.parameters))
    return plan.event, plan, count_parameters(plan)


def _top_k(ledger: Ledger) -> _Plan:
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
            max_items_per_user=values.get("max_items_per_user"),
        )
    )
    return plan.event, plan.selection, {}


def _hitting_set(ledger: Ledger) -> _Plan:
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
    return plan.event, plan.selection, {}


def _packing(ledger: Ledger) -> _Plan:
    from dpbeam.packing.config import PackingConfig, make_plan

    defaults = PackingConfig(ledger.epsilon, ledger.delta).public_parameters()
    settings = {name: ledger.parameters[name] for name in defaults}
    plan = make_plan(PackingConfig(ledger.epsilon, ledger.delta, **settings), _market(ledger))
    return plan.event, None, plan.public_parameters()


def _series(ledger: Ledger) -> _Plan:
    from dpbeam.series.config import SeriesConfig, plan_series

    plan = plan_series(SeriesConfig.of_parameters(ledger.epsilon, ledger.delta, ledger.parameters))
    return plan.event, None, plan.stated_parameters()


def _market(ledger: Ledger) -> Market:
    from dpbeam.packing.config import Market, Resource

    values = ledger.parameters
    resources = tuple(Resource(**resource) for resource in values["resources"])
    return Market(resources, values["num_agents"], values["max_value"])


#: Kinds of ledgers that are not named by a selector.
_FAMILIES: Mapping[str, Callable[[Ledger], _Plan]] = {
    "top-k": _top_k,
    "hitting-set": _hitting_set,
    "packing": _packing,
    "series": _series,
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
