"""The ledger of a run: what was promised, what was done, and the proof by recomputation.

Design. A ledger holds public values only. Each is a function of the settings and never of the data, but for the section
`release`, which is added when the output is committed and says what that was (`release.py`); so two neighbouring
inputs that release the same write the same bytes, times apart. Before it is written (and after it is read) `verify`
recomputes the guarantee from the events and refuses one that exceeds what was declared (fail closed).
The JSON is deterministic: sorted keys, shortest exact numbers, no time and no place outside of `release`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from dpbeam.accounting.accountant import Guarantee, check_cost
from dpbeam.accounting.events import ComposedEvent, UnknownEventError, event_from_dict, event_to_dict
from dpbeam.accounting.gaussian import check_positive
from dpbeam.accounting.release import Release
from dpbeam.accounting.versions import code_revision, versions

ADD_REMOVE_ONE_USER = "add/remove one user"
REPLACE_ONE_AGENT = "replace the row of one agent"
NEIGHBOURING_RELATIONS = (ADD_REMOVE_ONE_USER, REPLACE_ONE_AGENT)
KEY_FROM_OS = "operating system"
KEY_FIXED_TEST = "NOT PRIVATE: fixed test key"
COMPUTATIONAL_NOTE = (
    "Noise and sampling come from a keyed pseudo-random function, so the guarantee is computational: it "
    "holds against anyone who cannot break the function and does not know the key of the run."
)
_FORMAT = "dpbeam ledger"
_FORMAT_VERSION = 1


def key_source(*, fixed: bool) -> str:
    """Where a run's key came from; `fixed`: it is a fixed one of tests, which voids the guarantee."""
    return KEY_FIXED_TEST if fixed else KEY_FROM_OS


def guarantee_note(unreviewed: Sequence[str]) -> str:
    """What a guarantee rests on, in words; `unreviewed`: names of what has a proof that is not peer-reviewed."""
    return " ".join(
        [COMPUTATIONAL_NOTE, *(f"The proof of {name} is not peer-reviewed." for name in unreviewed)]
    )


def _plain(value: Any, where: str) -> Any:
    """The value with tuples as lists, if JSON can hold it exactly; ValueError otherwise."""
    if value is None or type(value) in (str, bool, int):
        return value
    if type(value) is float:
        if not math.isfinite(value):
            raise ValueError(f"{where} must be finite, got {value}")
        return value
    if type(value) in (list, tuple):
        return [_plain(item, f"{where}[{index}]") for index, item in enumerate(value)]
    if type(value) is dict:
        if not all(type(key) is str for key in value):
            raise ValueError(f"{where} must have strings as keys")
        return {key: _plain(item, f"{where}.{key}") for key, item in value.items()}
    raise ValueError(f"{where} is of type {type(value).__name__}, which JSON cannot hold")


@dataclass(frozen=True)
class Ledger:
    """Everything needed to check the guarantee of one run.

    Attributes:
      method: name of the algorithm.
      epsilon, delta: the declared total of the job; delta may be 0.
      accounting: how rounds and stages were composed, for readers ("gaussian", "basic", ...).
      events: the root ComposedEvent.
      privacy_unit: what one neighbouring step adds, removes or replaces.
      neighbouring_relation: one of NEIGHBOURING_RELATIONS.
      parameters: public settings, JSON values only.
      key_source: KEY_FROM_OS or KEY_FIXED_TEST.
      guarantee_note: why the guarantee is computational, and which of its proofs are not peer-reviewed.
      versions: names and versions of the software, as strings.
      code_revision: of dpbeam, empty if unknown.
      public_items: whether a list of public items was released without budget.
      release: what was committed, when, from which input; None before, and in ledgers of early versions.

    Raises: ValueError on a value that is not public JSON or is out of range.
    """

    method: str
    epsilon: float
    delta: float
    accounting: str
    events: ComposedEvent
    privacy_unit: str = "one user"
    neighbouring_relation: str = ADD_REMOVE_ONE_USER
    parameters: dict = field(default_factory=dict)
    key_source: str = KEY_FROM_OS
    guarantee_note: str = COMPUTATIONAL_NOTE
    versions: dict = field(default_factory=dict)
    code_revision: str = ""
    public_items: bool = False
    release: Release | None = None

    def __post_init__(self) -> None:
        if type(self.events) is not ComposedEvent:
            raise UnknownEventError(f"events must be a ComposedEvent, got {type(self.events).__name__}")
        object.__setattr__(self, "epsilon", check_positive("epsilon", self.epsilon))
        object.__setattr__(self, "delta", float(self.delta))
        if not 0 <= self.delta < 1:
            raise ValueError(f"delta must lie in [0, 1), got {self.delta}")
        for name in ("method", "accounting", "privacy_unit", "guarantee_note", "code_revision"):
            if type(getattr(self, name)) is not str:
                raise ValueError(f"{name} must be a string")
        if self.neighbouring_relation not in NEIGHBOURING_RELATIONS:
            raise ValueError(f"neighbouring_relation must be one of {NEIGHBOURING_RELATIONS}")
        if self.key_source not in (KEY_FROM_OS, KEY_FIXED_TEST):
            raise ValueError(f"key_source must be {KEY_FROM_OS!r} or {KEY_FIXED_TEST!r}")
        if type(self.public_items) is not bool:
            raise ValueError("public_items must be True or False")
        if self.release is not None and type(self.release) is not Release:
            raise ValueError("release must be a Release or None")
        for name in ("parameters", "versions"):
            if type(getattr(self, name)) is not dict:
                raise ValueError(f"{name} must be a dictionary")
            object.__setattr__(self, name, _plain(getattr(self, name), name))

    def stating(self, **parameters: Any) -> Ledger:
        """The same ledger with these parameters too."""
        return replace(self, parameters={**self.parameters, **parameters})

    @property
    def private(self) -> bool:
        """False if the run used a fixed key, which voids the guarantee."""
        return self.key_source == KEY_FROM_OS

    def verify(self) -> Guarantee:
        """Recomputes the guarantee from the events and returns it.

        Raises: OverspentError if epsilon or delta exceeds the declared one (relative tolerance
        1e-12); UnknownEventError, InconsistentEventError as `account` does.
        """
        return check_cost(self.events, self.epsilon, self.delta, f"method {self.method}")

    def to_json(self) -> str:
        """Deterministic JSON text, ending in a newline. Verifies first, and raises as `verify` does."""
        self.verify()
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        values["events"] = event_to_dict(self.events)
        if self.release is None:
            del values["release"]
        else:
            values["release"] = self.release.to_dict()
        values["format"] = _FORMAT
        values["format_version"] = _FORMAT_VERSION
        return json.dumps(values, sort_keys=True, indent=2, allow_nan=False, ensure_ascii=False) + "\n"

    @classmethod
    def parse(cls, text: str) -> Ledger:
        """Reads a ledger without verifying it, for who looks at what is wrong with it.

        Raises: ValueError if the text is not a ledger with exactly the known fields, or states what cannot be.
        """
        try:
            return cls.of_values(json.loads(text))
        except json.JSONDecodeError:
            raise ValueError("not a ledger of dpbeam: no JSON") from None
        except RecursionError as error:
            raise ValueError(f"not a ledger of dpbeam: {type(error).__name__}") from None

    @classmethod
    def of_values(cls, values: Any) -> Ledger:
        """As `parse`, of what is in the JSON."""
        try:
            return cls._of(values)
        except (TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            raise ValueError(f"not a ledger of dpbeam: {type(error).__name__}") from None

    @classmethod
    def _of(cls, values: Any) -> Ledger:
        known = {item.name for item in fields(cls)} | {"format", "format_version"}
        if not isinstance(values, dict) or not known - {"release"} <= set(values) <= known:
            raise ValueError("not a ledger of dpbeam: its fields are not exactly the known ones")
        stated = (values.pop("format"), values.pop("format_version"))
        if stated != (_FORMAT, _FORMAT_VERSION):
            raise ValueError(f"not a ledger of a known version: {stated}")
        values["events"] = event_from_dict(values["events"])
        if "release" in values:
            values["release"] = Release.from_dict(values["release"])
        return cls(**values)

    @classmethod
    def from_json(cls, text: str) -> Ledger:
        """Reads and verifies a ledger.

        Raises: ValueError if the text is not a ledger with exactly the known fields; as `verify` does.
        """
        ledger = cls.parse(text)
        ledger.verify()
        return ledger


def run_ledger(
    method: str,
    plan: Any,
    accounting: str,
    parameters: dict[str, Any],
    *,
    input_parameters: dict[str, Any] | None,
    fixed_key: bool,
    privacy_unit: str,
    unreviewed: Sequence[str] = (),
    **more: Any,
) -> Ledger:
    """What a run of a plan costs and how: the frame of every family's ledgers.

    Args:
      plan: has `event`, and `config` with epsilon and delta.
      parameters: of the family, public; JSON values.
      input_parameters: public settings of the input, JSON values.
      fixed_key: whether the key of the run is a fixed one of tests, which voids the guarantee.
      privacy_unit: what one user is.
      unreviewed: what the guarantee rests on whose proof is not peer-reviewed.
      more: further fields of `Ledger`.
    """
    return Ledger(
        method=method,
        epsilon=plan.config.epsilon,
        delta=plan.config.delta,
        accounting=accounting,
        events=plan.event,
        privacy_unit=privacy_unit,
        parameters={**parameters, "input": input_parameters},
        key_source=key_source(fixed=fixed_key),
        versions=versions(),
        code_revision=code_revision(),
        **{"guarantee_note": guarantee_note(unreviewed), **more},
    )
