"""What an algorithm of partition selection is: one class, one folder, one line of the registry.

Design. A `Selector` says everything that differs between algorithms: its settings, how it is calibrated to a budget,
the program that runs, and what a user gives to an item. Flags, help, plans, the domain stage of top-k, benchmarks, the
audit and the tests walk the registry (`dpbeam.selectors.registry`) and know no algorithm by name. This module and every
selector's own are cheap to import: whatever computes is imported when it is planned.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from dpbeam.accounting.arguments import integer, number, numbers, text, truth
from dpbeam.errors import SettingError, constant, param

if TYPE_CHECKING:
    from dpbeam.accounting.events import ComposedEvent
    from dpbeam.accounting.noise import StatedNoise
    from dpbeam.engine.program import Program

_META = "dpbeam"
ValueT = TypeVar("ValueT")
#: Values of --max_items_per_user that are worth a try where users hold up to thousands of items.
D0_TRIED = (10, 20, 50, 100, 200, 400)
# Up to so many items per user on average one vote each wins, above it weights bounded in l2
# (docs/explanation/vote.md, Figures).
FEW_ITEMS = 3.0
#: The same of rare items, held by fewer than about a hundred users: how many a user has, who has one, on average over
#: all such pairs, sum r^2 / sum r over users with r rare items.
FEW_RARE_ITEMS = 3.3
#: So many items a user are more than scores can tell apart: what shows the released items alone is ahead.
MANY_ITEMS = 100.0
_SURE_RARE_ITEMS = (2.6, 6.9)
_MIXED_ITEMS = 15.0  # short texts


@dataclass(frozen=True)
class Setting:
    """One setting: of a kind of release, with a flag of its own, or a constant of a selector, `--set NAME=VALUE`.

    Attributes:
      kind: float, int, bool, str, or tuple for comma-separated numbers.
      help: one line; the default is added to it where it does not depend on other settings.
      low, high: bounds of a number, included.
      choices: allowed strings.
      metavar: what the value is called in help.
      common: whether the flag is shown by `--help` of a command that has many.
      stated: whether a ledger states the value under this name.
      alone: whether it is of a selection that is a release of its own, and not of one that finds a domain.
    """

    kind: type
    help: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    metavar: str | None = None
    common: bool = False
    stated: bool = True
    alone: bool = False

    def check(self, name: str, value: Any, named: Callable[[str], str]) -> None:
        """Refuse a value of the wrong type or out of range.

        Raises:
          InputError: naming the flag.
        """
        if self.choices and value not in self.choices:
            raise SettingError(f"{named(name)} must be {' or '.join(self.choices)}, got {value!r}")
        if self.kind is bool and not isinstance(value, bool):
            raise SettingError(f"{named(name)} must be true or false, got {value!r}")
        if self.low is not None and self.high is not None:
            check_range(name, value, self.low, self.high, integer=self.kind is int, named=named)


def setting(default: Any, help: str, *, kind: type | None = None, **options: Any) -> Any:
    """A field of a settings dataclass; a default of None is filled in where a plan is made.

    Args:
      default: `dataclasses.MISSING` where there is none.
      kind: type of the value where the default is None or missing.
      options: as in `Setting`.
    """
    return field(default=default, metadata={_META: Setting(kind or type(default), help, **options)})


_OF_KIND = {float: number, int: integer, bool: truth, str: text, tuple: numbers}


@dataclass(frozen=True)
class Settings:
    """Settings of one selector, or of a kind of release; subclasses add fields made by `setting`.

    Constants of a paper or a preset are settings too, also where no measurement recommends another value: a ledger
    states them, and `verify` calibrates from what it states.

    Raises:
      InputError: a value is of another type.
    """

    def __post_init__(self) -> None:
        for name, value in self.set_values().items():
            object.__setattr__(self, name, _OF_KIND[self.described()[name].kind](name, value, self.named))

    @staticmethod
    def named(name: str) -> str:
        """A setting in the message of an error."""
        return constant(name)

    @classmethod
    def described(cls) -> dict[str, Setting]:
        """Setting by field name."""
        return {item.name: item.metadata[_META] for item in dataclasses.fields(cls) if _META in item.metadata}

    def set_values(self) -> dict[str, Any]:
        """The values that are not None."""
        values = {name: getattr(self, name) for name in self.described()}
        return {name: value for name, value in values.items() if value is not None}

    def check(self) -> None:
        """Refuse values out of range.

        Raises:
          InputError: naming the flag.
        """
        described = self.described()
        for name, value in self.set_values().items():
            described[name].check(name, value, self.named)


@dataclass(frozen=True)
class Request:
    """What a selector is asked for.

    Attributes:
      epsilon, delta: its budget.
      max_items: D0, items of a user that count; None: the selector's default.
      settings: of the selector's own type.
      min_users: an item of fewer users is never released; 1: no such floor.
    """

    epsilon: float
    delta: float
    max_items: int | None
    settings: Any
    min_users: int = 1


@dataclass(frozen=True)
class RoundPlan:
    """Public numbers of one round.

    Attributes:
      noise: what the round adds to its weights.
      threshold: release threshold of what is compared with it (inf: nothing is tested).
      statistic: law of the noise in what is compared with the threshold: the round's own, or that of a sum of rounds.
      weight_factor: what a constant weight of 1 in every round adds to what is compared.
      delta_threshold: probability allowed for a novel item to pass here; None where rounds share it.
      floor: what the floor on users takes off an item's weight before noise; nothing is released that has no more.
    """

    noise: StatedNoise
    threshold: float
    statistic: StatedNoise
    weight_factor: float = 1.0
    delta_threshold: float | None = None
    floor: float = 0.0

    @property
    def number(self) -> int:
        """Of the round, from 1."""
        return self.noise.round

    @property
    def sigma(self) -> float:
        """Standard deviation of the round's noise."""
        return self.noise.deviation

    @property
    def statistic_sigma(self) -> float:
        """Standard deviation of the noise in what is compared with the threshold."""
        return self.statistic.deviation

    def release_probability(self, weight: float) -> float:
        """Probability that what is compared reaches the threshold if users add `weight` in every round."""
        if self.floor and weight <= self.floor:
            return 0.0
        return float(self.statistic.tail(self.threshold - (weight - self.floor) * self.weight_factor))


@dataclass(frozen=True)
class Calibration:
    """A selector calibrated to a budget.

    Attributes:
      program: what runs, in process or on Beam.
      rounds: public numbers per round.
      event: what the ledger records, root of the event tree.
    """

    program: Program
    rounds: tuple[RoundPlan, ...]
    event: ComposedEvent


class Advice(NamedTuple):
    """That a selector releases most where users typically hold so many items.

    Attributes:
      settings: flags that go with it.
      why: one line.
    """

    settings: Mapping[str, Any]
    why: str


def holds_few(items_per_user: float, rare_items: float | None) -> bool:
    """Whether users hold so few items in doubt that each should give all it has to one of them."""
    return items_per_user <= FEW_ITEMS if rare_items is None else rare_items <= FEW_RARE_ITEMS


def sureness(items_per_user: float, rare_items: float | None) -> str:
    """What to add to a reason: empty where the datasets agree."""
    if rare_items is None and FEW_ITEMS < items_per_user <= _MIXED_ITEMS:
        return (
            f"; unsure up to {_MIXED_ITEMS:g}: vote may release more where everybody holds most of them, "
            "--rare_items_of_holder"
        )
    if rare_items is not None and _SURE_RARE_ITEMS[0] < rare_items < _SURE_RARE_ITEMS[1]:
        return "; unsure: vote and gsu are close there, dpbeam tune on public data like yours tells"
    return ""


class Selector(ABC):
    """One algorithm of partition selection.

    Guarantee that `plan` must give, with its proof in the docs: (epsilon, delta)-DP for the released items and their
    noisy weights, privacy unit one user, neighbours differ by adding or removing one user. The event accounts for it;
    the program's norm, noise and thresholds are held against the event before anything runs (`dpbeam.selection.plan`).

    Attributes:
      name: of `--method`; aliases: other names for the same.
      summary: one line for help and README.
      settings_type: a subclass of `Settings`.
      presets: name -> settings; "published" takes those of the paper.
      variants: name -> settings that benchmarks compare, and that the audit and the tests run; the default first.
      tunable: keyword of a `SelectionConfig` -> the values that `dpbeam tune` tries, in every combination; one that
        the selector refuses is left out.
      default_max_items: D0 where none is asked for, unless `default_items` says otherwise.
      shows_weights: whether its guarantee holds for the noisy weights of released items too.
      peer_reviewed: whether its guarantee was published with peer review; a ledger says where not.
      takes_min_users: whether a floor on users keeps its guarantee; why, and what its program owes to it, says
        `dpbeam.selectors.floor`.
    """

    name: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()
    summary: ClassVar[str]
    settings_type: ClassVar[type[Settings]] = Settings
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    variants: ClassVar[Mapping[str, Mapping[str, Any]]]
    tunable: ClassVar[Mapping[str, tuple[Any, ...]]] = {"max_items_per_user": D0_TRIED}
    default_max_items: ClassVar[int] = 100
    shows_weights: ClassVar[bool] = True
    peer_reviewed: ClassVar[bool] = False
    takes_min_users: ClassVar[bool] = False

    def resolve(self, request: Request) -> Request:
        """The request with every setting filled in and checked.

        Raises:
          InputError: a value is out of range, or a precondition is violated.
        """
        request.settings.check()
        return replace(request, max_items=value_or(request.max_items, self.default_items(request.settings)))

    def default_items(self, settings: Any) -> int:
        """D0 where none is asked for, with these settings; by default `default_max_items`."""
        return self.default_max_items

    @abstractmethod
    def plan(self, request: Request) -> Calibration:
        """Calibrate a resolved request; needs no data.

        Raises:
          InputError: the budget cannot be met with these settings.
        """

    @abstractmethod
    def weight(self, calibration: Calibration, degree: int) -> float:
        """What a user with this many items gives to each of them in a round when all count alike."""

    def count_units(self, max_items: int) -> int | None:
        """Weight, in units of the grid, that a user of `max_items` items gives to each where that is all that is known.

        None: weights follow from what users hold, so counts of users are no input for it.
        """
        return None

    def keep_probability(self, calibration: Calibration, users: int, degree: int) -> float:
        """Probability that an item is released whose `users` users all hold `degree` items.

        Here rounds with noise of their own count independently. What adapts to other items comes on top.
        """
        weight = users * self.weight(calibration, degree)
        return 1.0 - math.prod(1.0 - row.release_probability(weight) for row in calibration.rounds)

    def advice(self, items_per_user: float, rare_items: float | None = None) -> Advice | None:
        """Whether this selector is the one for users that hold about so many items on average; None: another is.

        A rule from public datasets (docs/how-to/choose.md). Whoever measures an average on private data pays for it
        elsewhere.

        Args:
          rare_items: how many items that fewer than about a hundred users hold a user has who has one; None: unknown.
        """
        return None


def filled_in(value: ValueT | None) -> ValueT:
    """A setting that `Selector.resolve` has filled in.

    Raises:
      ValueError: it has not.
    """
    if value is None:
        raise ValueError("the request is not resolved: a setting has no value")
    return value


def value_or(value: Any, default: Any) -> Any:
    """A setting, or its default where none is given."""
    return default if value is None else value


def check_range(
    name: str,
    value: Any,
    low: float,
    high: float,
    *,
    integer: bool = False,
    named: Callable[[str], str] = param,
) -> None:
    """Refuse what is not a number, or an integer, from low to high.

    Args:
      named: `param`, or `constant` for a constant of a method.

    Raises:
      InputError: naming the flag.
    """
    held = number(name, value, named)
    if not math.isfinite(held) or (integer and int(held) != held) or not low <= held <= high:
        kind = "an integer" if integer else "a number"
        raise SettingError(f"{named(name)} must be {kind} from {low:g} to {high:g}, got {value}")
