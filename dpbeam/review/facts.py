"""A ledger as the facts of a report: what it says in words and tables, of any kind of ledger.

Events describe themselves: their name, fields and docstring make their row, so a new kind of event needs no change
here. Nothing is added that is not in the ledger or a function of it.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dpbeam.accounting.events import ComposedEvent, Event, leaves
from dpbeam.accounting.ledger import ADD_REMOVE_ONE_USER, REPLACE_ONE_AGENT, Ledger
from dpbeam.families.registry import family_of
from dpbeam.review.families import calibrated_anew
from dpbeam.selection.plan import SelectionPlan
from dpbeam.selection.report import PROBABILITIES, plan_report

_NEIGHBOURS = {
    ADD_REMOVE_ONE_USER: "Whether all data of {unit} are in the input or not, the probability of any output",
    # Joint differential privacy: the agent's own share follows from its own row.
    REPLACE_ONE_AGENT: "Whatever stands in the row of {unit}, the probability of what all others see together",
}
_COMPOSITIONS = {
    "basic": "epsilons and deltas of the parts add up",
    "gaussian": "Gaussian noises compose exactly; the deltas of thresholds add to that",
    "pure": "epsilons add up; the deltas of thresholds add to that",
    "zcdp": "zCDP costs add up and are converted; the deltas of thresholds add to that",
    "first-hit": "choices that a user is part of up to the first one that hits it compose exactly with the noises "
    "before them; the deltas of thresholds add to that",
    "renyi": "Renyi divergences add up, and the best order counts; the deltas of thresholds add to that",
}
_MOST_SHOWN = 60  # values of one list


@dataclass(frozen=True)
class Row:
    """An event: its round, what it is, its numbers, its cost."""

    round: str
    mechanism: str
    numbers: str
    cost: str


@dataclass(frozen=True)
class Stage:
    """A composition: how its parts add up, and those that are simple."""

    title: str
    composition: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Keeping:
    """Keep probabilities of a selection beside the limit of any algorithm.

    Attributes:
      head, rows: a table of the users needed for each probability.
      epsilon, delta: of the selection.
    """

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    epsilon: str
    delta: str


def guarantee(ledger: Ledger) -> str:
    """The guarantee as one sentence, for who does not know the symbols."""
    unit = ledger.privacy_unit.partition(":")[0]
    start = _NEIGHBOURS[ledger.neighbouring_relation].format(unit=unit)
    factor = f"e^{number(ledger.epsilon)}"
    if ledger.epsilon < 20:
        factor += f" = {2.718281828459045**ledger.epsilon:.3g}"
    rest = f", but for a probability of {number(ledger.delta)}" if ledger.delta else ""
    return f"{start} changes by a factor of at most {factor}{rest}."


def stages(event: ComposedEvent) -> tuple[Stage, ...]:
    """Every composition of the tree that has simple events of its own, from the root down."""
    return tuple(_stages(event))


def _stages(event: ComposedEvent) -> Iterator[Stage]:
    rows = tuple(_row(part, event.label) for part in event.parts if type(part) is not ComposedEvent)
    at = "" if event.epsilon is None else f", delta taken at epsilon {number(event.epsilon)}"
    yield Stage(event.label or "all", f"{_COMPOSITIONS.get(event.kind, event.kind)}{at}", rows)
    for part in event.parts:
        if type(part) is ComposedEvent:
            yield from _stages(part)


def _row(event: Event, stage: str) -> Row:
    values = {item.name: getattr(event, item.name) for item in dataclasses.fields(event)}
    round_ = str(values.pop("round", ""))
    label = values.pop("label", "")
    numbers = "; ".join(f"{name.replace('_', ' ')} {shown(value)}" for name, value in values.items())
    title = mechanism(event) + (f" ({label})" if label not in ("", stage) else "")
    return Row(round_, title, numbers, _cost(event))


def _cost(event: Event) -> str:
    costs = []
    if event.pure_epsilon() is not None:
        costs.append(f"epsilon {number(event.pure_epsilon())}")
    elif event.zcdp_rho() is not None:
        costs.append(f"rho {number(event.zcdp_rho())} (zCDP)")
    if event.outside_delta():
        costs.append(f"delta {number(event.outside_delta())}")
    return "; ".join(costs)


def mechanism(event: Event) -> str:
    """An event's class as words: "Cumulative threshold"."""
    name = type(event).__name__.removesuffix("Event")
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    words = words[:1] + words[1:].lower() if not words.isupper() and not words.endswith("CDP") else words
    return words + (" noise" if event.noises() else "")


def glossary(event: ComposedEvent) -> dict[str, str]:
    """What the mechanisms of a tree are, in the words of their classes."""
    meanings = {}
    for leaf in leaves(event):
        text = inspect.getdoc(type(leaf)) or ""
        meanings[mechanism(leaf)] = " ".join(text.split("\n\n")[0].split()).replace("`", "")
    return meanings


def shares_budget(ledger: Ledger) -> str:
    """Which other releases the budget covers; empty: none."""
    family = family_of(ledger.method)
    return "" if family is None else family.shares_budget(ledger.parameters)


def rounds(event: ComposedEvent) -> int:
    """Rounds that draw noise, 0 where none says its round."""
    return max((noise.round for noise in event.noises()), default=0)


def keeping(ledger: Ledger) -> Keeping | None:
    """Keep probabilities, if the settings give the events of the ledger and there is a selection."""
    anew = calibrated_anew(ledger)
    if anew is None or not anew.same or anew.selection is None:
        return None
    return _keeping(anew.selection)


def _keeping(plan: SelectionPlan) -> Keeping:
    report = plan_report(plan)
    limit = report["limit_of_any_algorithm"]
    columns = [f"users_{p:g}" for p in PROBABILITIES]
    needed = [
        ("limit of any algorithm", *(f"{limit[name]:,}" for name in columns)),
        *(
            (_of_items(row["items_per_user"]), *(_users(row[name]) for name in columns))
            for row in report["users_needed"]
        ),
    ]
    head = ("held by", *(f"{100 * p:g} %" for p in PROBABILITIES))
    return Keeping(head, tuple(needed), number(report["epsilon"]), number(report["delta"]))


def _of_items(count: int) -> str:
    return f"users of {count:,} item{'s' if count > 1 else ''}"


def _users(count: int | None) -> str:
    return "never" if count is None else f"{count:,}"


def settings(parameters: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Public settings, those within others by their path: (name, value)."""
    rows: list[tuple[str, str]] = []
    for name, value in sorted(parameters.items()):
        if isinstance(value, dict) and value:
            rows += [(f"{name}.{inner}", text) for inner, text in settings(value)]
        else:
            rows.append((name, shown(value)))
    return rows


def shown(value: Any) -> str:
    """A JSON value in a cell."""
    if isinstance(value, list | tuple):
        some = ", ".join(map(shown, value[:_MOST_SHOWN]))
        return some + (f", and {len(value) - _MOST_SHOWN:,} more" if len(value) > _MOST_SHOWN else "")
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "none"
    return number(value) if isinstance(value, int | float) else str(value)


def number(value: Any) -> str:
    """A number in six digits, whole ones in full."""
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"
