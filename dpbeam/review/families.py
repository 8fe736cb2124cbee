"""From a ledger back to the plan that it came from, where its family is known.

What comes out is held against the events of the ledger: a plan that differs says nothing about the release, and is not
shown.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from dpbeam.accounting.events import GaussianFilterEvent, event_to_dict, leaves
from dpbeam.accounting.ledger import Ledger
from dpbeam.errors import InputError
from dpbeam.families.registry import family_of
from dpbeam.selection.plan import SelectionPlan

_NO_SETTINGS = (InputError, ValueError, TypeError, KeyError, AttributeError, ArithmeticError)
# Other versions of numpy and scipy round otherwise.
_TOLERANCE = 1e-9


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
    family = family_of(ledger.method)
    if family is None:
        return None
    try:
        plan = family.recalibrated(ledger)
    except _NO_SETTINGS:
        return Calibrated(False, None)
    same = _alike(event_to_dict(plan.event), event_to_dict(ledger.events))
    known = {name: value for name, value in ledger.parameters.items() if name in plan.stated}
    return Calibrated(same and _alike(dict(plan.stated), known), plan.selection)


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
    stated = [leaf.sensitivity for leaf in leaves(ledger.events) if type(leaf) is GaussianFilterEvent]
    if not stated:
        return None
    family = family_of(ledger.method)
    try:
        needed = None if family is None else family.sensitivity_needed(ledger)
    except _NO_SETTINGS:
        needed = None
    if needed is None:
        raise ValueError("the ledger does not say what one agent can demand")
    return Sensitivity(min(stated), needed)


def _alike(one: Any, other: Any) -> bool:
    """Equal, numbers but for rounding."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=_TOLERANCE)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_alike(one[name], other[name]) for name in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(_alike, one, other))
    return bool(one == other)
