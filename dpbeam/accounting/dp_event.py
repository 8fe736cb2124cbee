"""A ledger as an event of the library dp_accounting, whose accountants compose it with other releases.

Their events lack some of what ledgers hold; each substitute costs at least as much:

- A delta outside of the factor exp(epsilon), of thresholds most of all, is in no event: it is stated beside the event,
  and is added to what an accountant finds.
- An epsilon-DP mechanism is discrete Laplace noise at sensitivity 1. Its loss is epsilon or -epsilon, with the
  probabilities of randomized response, and nothing that is epsilon-DP loses more in any composition (Kairouz, Oh and
  Viswanath 2015, "The composition theorem for differential privacy", Theorem 3.3).
- Choices of bounded range are their zCDP, which the accountant of Renyi divergences alone takes; pure parts beside
  them are epsilon^2/2-zCDP.
- A composition by Renyi curves, or up to the first hit, is any mechanism of its epsilon and delta.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dpbeam.accounting.accountant import Guarantee, account
from dpbeam.accounting.events import ComposedEvent, Event, describe, is_event, leaves
from dpbeam.accounting.ledger import Ledger
from dpbeam.errors import SetupError

PLD, RDP = "PLDAccountant", "RdpAccountant"
_MODULE = "dp_accounting.dp_event"
_FORMAT = "dpbeam dp_event"
#: Kinds whose parts have no event each; the whole has one.
_AS_A_WHOLE = ("first-hit", "renyi")


@dataclass(frozen=True)
class _Whole(Event):
    """Any mechanism of this cost, for a composition that has no event for each part."""

    cost: Guarantee

    def pure_epsilon(self) -> float:
        return self.cost.epsilon

    def outside_delta(self) -> float:
        return self.cost.delta


@dataclass(frozen=True)
class ExportedEvent:
    """What all of a ledger costs, in the words of dp_accounting.

    Attributes:
      event: plain values; every event is a dictionary of its fields with `module_name` and `class_name`, as
        `DpEvent.to_named_tuple` has them.
      delta: outside of the event: to be added to the delta that an accountant finds.
      accountant: PLD, or RDP where an event is stated as zCDP.
      neighbouring_relation, privacy_unit: of the ledger. Noise multipliers are for these neighbours; accountants
        take them under ADD_OR_REMOVE_ONE, whatever the relation is.
      epsilon, delta_declared: of the ledger.
      notes: what is stated otherwise than in the ledger, one line each.
    """

    event: dict[str, Any]
    delta: float
    accountant: str
    neighbouring_relation: str
    privacy_unit: str
    epsilon: float
    delta_declared: float
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "format": _FORMAT,
            "format_version": 1,
            "event": self.event,
            "delta": self.delta,
            "accountant": self.accountant,
            "neighbouring_relation": self.neighbouring_relation,
            "privacy_unit": self.privacy_unit,
            "declared": {"epsilon": self.epsilon, "delta": self.delta_declared},
            "notes": list(self.notes),
        }

    def build(self) -> Any:
        """The event as an object of dp_accounting.

        Raises:
          InputError: the library is not installed.
        """
        try:
            from dp_accounting import dp_event
        except ImportError as error:
            raise SetupError(f"needs the package dp-accounting: {error}") from None
        return _built(self.event, dp_event)


def export_event(ledger: Ledger) -> ExportedEvent:
    """A ledger's events for dp_accounting.

    Guarantee: with an accountant of the kind that is named, for every epsilon the delta that it finds for `event` plus
    `delta` bounds the delta of the run for the ledger's neighbours, and `event` may stand in any adaptive composition,
    the deltas adding up. Off the novel items that pass, a run is a function of what `event` describes
    (docs/explanation/privacy.md).

    Raises: see `Ledger.verify`, which comes first.
    """
    ledger.verify()
    notes: list[str] = []
    if not ledger.private:
        event, delta, accountant = _event("NonPrivateDpEvent"), 0.0, PLD
        notes.append("the run had a fixed key: nothing is protected")
    else:
        parts = list(_parts(ledger.events, ledger.epsilon, notes))
        mechanisms = [part for part in parts if not part.is_threshold]
        delta = min(1.0, math.fsum(part.outside_delta() for part in parts))
        zcdp = any(map(_only_zcdp, mechanisms))
        accountant = RDP if zcdp else PLD
        event = _composed([_event_of(part, zcdp=zcdp) for part in mechanisms])
        if zcdp:
            names = dict.fromkeys(
                type(p).__name__ for p in mechanisms if is_event(p) and p.gaussian_sigma() is None
            )
            notes.append(
                f"stated as zCDP, which only {RDP} takes and which is dearer than the ledger's own composition: "
                + ", ".join(names)
            )
        if delta:
            notes.append(f"delta {delta!r} is in no event: add it to the delta that the accountant finds")
    return ExportedEvent(
        event,
        delta,
        accountant,
        ledger.neighbouring_relation,
        ledger.privacy_unit,
        ledger.epsilon,
        ledger.delta,
        tuple(notes),
    )


def _parts(composed: ComposedEvent, epsilon: float, notes: list[str]) -> Iterator[Event]:
    """The simple events of a tree; of a composition that has no event for each part, what all of it costs."""
    at = epsilon if composed.epsilon is None else composed.epsilon
    if composed.kind in _AS_A_WHOLE:
        cost = account(composed, at)
        notes.append(
            f"{describe(composed)} is stated as any mechanism of epsilon {cost.epsilon!r} and delta {cost.delta!r}: "
            + ", ".join(dict.fromkeys(type(leaf).__name__ for leaf in leaves(composed)))
        )
        yield _Whole(cost)
        return
    for part in composed.parts:
        if type(part) is ComposedEvent:
            yield from _parts(part, at, notes)
        else:
            yield part


def _only_zcdp(part: Event) -> bool:
    """Whether zCDP is the best that an accountant can be told of it."""
    return part.gaussian_sigma() is None and (part.choices() is not None or part.pure_epsilon() is None)


def _event_of(part: Event, *, zcdp: bool) -> dict[str, Any]:
    """A mechanism for the accountant of Renyi divergences, or for that of privacy loss distributions."""
    if part.gaussian_sigma() is not None:
        return _event("GaussianDpEvent", noise_multiplier=part.gaussian_sigma())
    if zcdp:
        return _event("ZCDpEvent", rho=part.zcdp_rho(), xi=0.0)
    return _event("DiscreteLaplaceDpEvent", noise_parameter=part.pure_epsilon(), sensitivity=1)


def _event(name: str, **fields: Any) -> dict[str, Any]:
    return {"module_name": _MODULE, "class_name": name, **fields}


def _composed(events: list[dict[str, Any]]) -> dict[str, Any]:
    """One event; equal neighbours become one that is repeated."""
    runs = [(event, len(list(same))) for event, same in itertools.groupby(events)]
    parts = [e if n == 1 else _event("SelfComposedDpEvent", event=e, count=n) for e, n in runs]
    return parts[0] if len(parts) == 1 else _event("ComposedDpEvent", events=parts)


def _built(value: Any, module: Any) -> Any:
    """Values as events, from the leaves up."""
    if isinstance(value, list):
        return [_built(one, module) for one in value]
    if not isinstance(value, dict):
        return value
    fields = {name: _built(one, module) for name, one in value.items()}
    del fields["module_name"]
    return getattr(module, fields.pop("class_name"))(**fields)
