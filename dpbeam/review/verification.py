"""What a ledger proves, statement by statement, and what nobody can tell from it.

The guarantee is recomputed from the events by the accountant, as `Ledger.verify` does before a ledger is written; here
each part of it is told apart, for the person who reads. Nothing is looked at but the ledger.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dpbeam.accounting.accountant import OverspentError
from dpbeam.accounting.events import (
    ComposedEvent,
    InconsistentEventError,
    UnknownEventError,
    leaves,
)
from dpbeam.accounting.ledger import Ledger
from dpbeam.accounting.versions import MODIFIED, code_revision, versions
from dpbeam.review.families import Calibrated, calibrated_anew, sensitivity, stated_alone
from dpbeam.selection.known import known_cost
from dpbeam.selection.ledger import OTHERS_DEVIATION


@dataclass(frozen=True)
class Statement:
    """One thing that was looked at.

    Attributes:
      name: one word.
      holds: None if it was not or cannot be checked.
      text: what was found.
      stated: nothing that is recomputed depends on it.
    """

    name: str
    holds: bool | None
    text: str
    stated: bool = False

    @property
    def verdict(self) -> str:
        """`holds` in words."""
        if self.stated:
            return "stated"
        return {True: "holds", False: "does not hold", None: "not checked"}[self.holds]


def check_ledger(text: str) -> tuple[Ledger | None, list[Statement]]:
    """A ledger, and every statement that follows from it alone; no ledger where what it states cannot be.

    Raises: ValueError if the text is not a ledger that this version knows.
    """
    try:
        ledger = Ledger.parse(text)
    except InconsistentEventError as error:
        return None, [Statement("thresholds", False, str(error))]
    again = calibrated_anew(ledger)
    stated = stated_alone(ledger) if again is not None and again.same else ()
    return ledger, [
        *_guarantee(ledger),
        *_sensitivity(ledger),
        *_floor(ledger, again, stated),
        *_known(ledger),
        *_others(ledger),
        *_input(ledger),
        _key(ledger),
        *_settings(ledger, again, stated),
    ]


def _guarantee(ledger: Ledger) -> list[Statement]:
    """Guarantee, thresholds and noise, of which the accountant names the one that fails."""
    declared = f"epsilon {ledger.epsilon:.9g} and delta {ledger.delta:.9g}"
    unknown = Statement("guarantee", None, f"{declared} are declared; the events cannot be added up")
    try:
        spent = ledger.verify()
    except OverspentError as error:
        return [Statement("guarantee", False, str(error)), *_noise(ledger.events)]
    except InconsistentEventError as error:
        return [unknown, Statement("thresholds", False, str(error))]
    except UnknownEventError as error:
        return [unknown, Statement("composition", False, str(error))]
    except (ValueError, ArithmeticError) as error:
        return [unknown, Statement("noise", False, str(error))]
    costs = f"the events cost epsilon {spent.epsilon:.9g} and delta {spent.delta:.9g}, recomputed"
    return [
        Statement("guarantee", True, f"{costs}; {declared} are declared"),
        *_thresholds(ledger.events),
        *_noise(ledger.events),
    ]


def _thresholds(event: ComposedEvent) -> list[Statement]:
    thresholds = [leaf for leaf in leaves(event) if leaf.is_threshold]
    if not thresholds:
        return []
    text = (
        f"of {len(thresholds)} stated, each is at least what its noise and its delta require"
        if len(thresholds) > 1
        else "as high as noise and delta require, recomputed"
    )
    return [Statement("thresholds", True, text)]


def _noise(event: ComposedEvent) -> list[Statement]:
    drawn = event.noises()
    if not drawn:
        return []
    rounds = f"{len(drawn)} rounds" if len(drawn) > 1 else "one round"
    kinds = ", ".join(dict.fromkeys(noise.kind for noise in drawn))
    return [Statement("noise", True, f"{kinds}, {rounds}; its cost is part of the guarantee")]


def _sensitivity(ledger: Ledger) -> list[Statement]:
    """The accountant believes a sensitivity that an event states; where it follows from public bounds, it need not."""
    try:
        norm = sensitivity(ledger)
    except ValueError as error:
        return [Statement("sensitivity", None, str(error))]
    if norm is None:
        return []
    unit = ledger.privacy_unit.partition(":")[0]
    text = f"{norm.stated:.9g} is stated, the supplies and bounds of the ledger let {unit} change {norm.needed:.9g}"
    return [Statement("sensitivity", norm.covered, text)]


def _floor(ledger: Ledger, again: Calibrated | None, stated: Sequence[str]) -> list[Statement]:
    """What is taken off for a floor on users, from the settings; the events are those without one."""
    name, users = _min_users(ledger)
    if users is None:
        return []
    text = f"no item of fewer than {users} users is released, but public ones"
    if again is None or not again.same or again.selection is None:
        return [Statement("floor", None, f"{text}: stated, and not recomputed without the plan", stated=True)]
    weight = max(row.floor for row in again.selection.rounds)
    how = f"{weight:.9g}, the most that {users - 1} give, is taken off every weight before noise"
    if name in stated:
        return [
            Statement("floor", None, f"{text}: stated, as no event depends on it; then {how}", stated=True)
        ]
    return [Statement("floor", True, f"{text}: {how}, recomputed")]


def _known(ledger: Ledger) -> list[Statement]:
    """Releases whose items took no part: this ledger speaks of its own run alone."""
    try:
        cost = known_cost(ledger)
    except ValueError as error:
        return [Statement("known releases", False, str(error))]
    if cost is None:
        return []
    text = f"items of earlier releases took no part; these state {cost}, which comes on top and is not checked here"
    return [Statement("known releases", None, text)]


def _others(ledger: Ledger) -> list[Statement]:
    """The released number of users without an item of the output; `settings` holds the deviation against the events."""
    others = None if ledger.release is None else ledger.release.others
    if others is None:
        return []
    text = f"{others.users} users hold none of the items, standard deviation {others.sd:.9g}"
    stated = others.sd == ledger.parameters.get(OTHERS_DEVIATION)
    return [Statement("others", stated, text if stated else f"{text}, which the settings do not state")]


def _min_users(ledger: Ledger) -> tuple[str, Any]:
    """K of a selection, or of that of a domain, with its path among the settings; None where none is stated."""
    selection = ledger.parameters.get("selection")
    if isinstance(selection, dict):
        return "selection.min_users", selection.get("min_users")
    return "min_users", ledger.parameters.get("min_users")


def _input(ledger: Ledger) -> list[Statement]:
    """A digest of the input, which version 1.0 wrote on request."""
    if ledger.release is None or ledger.release.input_digest is None:
        return []
    return [Statement("input", None, "a keyed digest is stated, which dpbeam 1.0 compares with the input")]


def _key(ledger: Ledger) -> Statement:
    text = (
        "fresh from the operating system" if ledger.private else f"{ledger.key_source}; nothing is protected"
    )
    return Statement("key", ledger.private, text)


def _settings(ledger: Ledger, again: Calibrated | None, stated: Sequence[str]) -> list[Statement]:
    if again is None:
        return [Statement("settings", None, "no calibration is known for this kind of ledger")]
    if again.same:
        text = "calibrated anew, they give the noise and thresholds of the ledger"
        if not stated:
            return [Statement("settings", True, text)]
        rest = f"stated, and not recomputed: {', '.join(stated)}; the ledger would hold with others too"
        return [
            Statement("settings", True, f"{text}, but for those that are stated"),
            Statement("other settings", None, rest, stated=True),
        ]
    if _is_ours(ledger):
        text = "they do not give the noise and thresholds of the ledger, at the very version that it names"
        return [Statement("settings", False, text)]
    text = "this version of dpbeam calibrates them otherwise; what is proved rests on the events alone"
    return [Statement("settings", None, text)]


def _is_ours(ledger: Ledger) -> bool:
    """Whether the ledger names the version and revision that verify it, and the libraries that calibrate."""
    here, revision = versions(), code_revision()
    same = all(ledger.versions.get(name) == here[name] for name in ("dpbeam", "numpy", "scipy"))
    return same and ledger.code_revision == revision and not revision.endswith(MODIFIED)


def not_proved(ledger: Ledger, *, contents: bool) -> list[str]:
    """What remains to be trusted or checked elsewhere.

    Args:
      contents: whether the digests of the output were checked.
    """
    texts = [
        "that the run did what the ledger states: tests and audit of dpbeam speak for that",
        "that nobody has written the ledger by hand: it carries no signature",
        f"that the privacy unit is right for the people in the data: {ledger.privacy_unit}",
        "what other releases from the same data have spent",
    ]
    if not contents:
        texts.insert(2, "that the output is what the run wrote: --contents compares digests and rows")
    if ledger.public_items or ledger.parameters.get("public_domain"):
        texts.append("that what was declared public is public")
    return texts
