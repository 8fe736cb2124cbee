"""From a ledger back to the plan that it came from, where its family is known.

What comes out is held against the events of the ledger: a plan that differs says nothing about the release, and is not
shown.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from dpbeam.accounting.events import GaussianFilterEvent, event_to_dict, leaves
from dpbeam.accounting.ledger import Ledger
from dpbeam.errors import InputError
from dpbeam.families.registry import family_of
from dpbeam.selection.plan import SelectionPlan
from dpbeam.selectors.registry import all_settings

_NO_SETTINGS = (InputError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError)
# Other versions of numpy and scipy round otherwise.
_TOLERANCE = 1e-9
_NO_SECTION = 1  # where settings are looked for, this is an error


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
        plan = family.planned_again(ledger)
        follows = family.follows(plan)
    except _NO_SETTINGS:
        return Calibrated(False, None)
    same = _alike(event_to_dict(plan.event), event_to_dict(ledger.events))
    known = {name: value for name, value in ledger.parameters.items() if name in follows}
    return Calibrated(same and _alike(follows, known), family.selection_of(plan))


def stated_alone(ledger: Ledger) -> tuple[str, ...]:
    """The settings that nobody can tell from what is recomputed: the ledger would look as good with others.

    Each that is set is changed, and the ledger calibrated anew. Only for a ledger whose own settings give its events.

    Returns:
      Their names, those within others by their path; the name of a section that nothing reads stands for all in it.
    """
    return tuple(_unnoticed(ledger, ()))


def _unnoticed(ledger: Ledger, within: tuple[str, ...]) -> Iterator[str]:
    section = ledger.parameters
    for name in within:
        section = section[name]
    for name, value in section.items():
        if value is None:
            continue
        path = (*within, name)
        others = [_NO_SECTION] if isinstance(value, dict) else _others(name, value)
        if any(_as_good(replace(ledger, parameters=_with(ledger.parameters, path, o))) for o in others):
            yield ".".join(path)
        elif isinstance(value, dict):
            yield from _unnoticed(ledger, path)


def _as_good(ledger: Ledger) -> bool:
    again = calibrated_anew(ledger)
    return again is not None and again.same


def _with(parameters: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """The same parameters with another value at a path."""
    name, *rest = path
    return {**parameters, name: _with(parameters[name], tuple(rest), value) if rest else value}


def _others(name: str, value: Any) -> Iterator[Any]:
    """Other values of a setting: near numbers, other choices (None: it is unset), lists that differ in one of these."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int | float):
        step = 1 if isinstance(value, int) else abs(value) / 100 or 0.01
        yield from (value + step, value - step)
    elif isinstance(value, str):
        choices = {choice for one in all_settings().get(name, {}).values() for choice in one.choices}
        yield from sorted(choices - {value}) or (f"{value}?", None)
    elif isinstance(value, list):
        yield _NO_SECTION
        yield from (other for other in (value[::-1], value[:-1]) if other != value)  # shares add up to 1
        for place in {0, len(value) - 1} if value else ():
            for other in _others(name, value[place]):
                yield [*value[:place], other, *value[place + 1 :]]
    elif isinstance(value, dict):
        for inner, part in value.items():
            yield from ({**value, inner: other} for other in _others(inner, part))


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
