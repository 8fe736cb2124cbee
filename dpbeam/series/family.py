"""The kind of release `series`: nights that release items one by one from growing data, for one budget."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

from dpbeam.accounting.arguments import instance
from dpbeam.accounting.budget import Budget, check_share
from dpbeam.counts import DEVIATION, NOISY_COUNT
from dpbeam.errors import SettingError, param
from dpbeam.families.base import OutputColumn, Release, Shown
from dpbeam.selection.config import far_from_default
from dpbeam.selectors.base import setting, value_or
from dpbeam.selectors.gsu.presets import MAX_ROUNDS, ScoreConstants
from dpbeam.series.schedule import (
    AIMS,
    DEFAULT_PRESET,
    GROWTH,
    RISE,
    SCORE,
    Aims,
    Schedule,
    preset_named,
    preset_schedule,
)

if TYPE_CHECKING:
    from dpbeam.accounting.ledger import Ledger
    from dpbeam.series.config import SeriesPlan

MAX_ITEMS_PER_USER = 10_000  # the ledger lists a cap for each rank
_DEFAULT_COUNT_SHARE = 0.2
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


@dataclass(frozen=True)
class SeriesConfig(Release):
    """Nights that release items one by one from growing data; fixed when the series is opened.

    Attributes:
      epsilon, delta: of all nights together.
      nights: T, how many nights the window has.
      preset: how rounds and budget lie over the nights, a name of `schedule.PRESETS`; None where `schedule` says it.
      max_items_per_user: D0, items of a user that count over the whole window.
      first_night: nights are days from this one on, as 2026-11-01; without it they are numbers from 1.
      schedule: rounds, fractions and spending, where no preset is taken.
      cap, delta_share, rank_power: c0, delta_G / delta, fall of the allowances.
      score, growth: constants of the score (`SeriesProgram`).
      rise, aims: growth of the coefficients, and aims of the score, where a factor of None aims at the last night;
        None: those of the preset.
      saved_norm: norm that a user does not use is saved for its later rounds, and who has come just now may spend up to
        1 + saved_norm times what would last evenly; None: as the preset has it, and without one nothing is saved.
      noisy_counts: released items have noisy counts, at `noisy_count_share` of epsilon and delta.

    Raises:
      InputError: a value is out of range.
    """

    name = writes = "series"
    summary = "release items night by night from growing data, for one budget"
    added = (OutputColumn(NOISY_COUNT, int, "noisy_counts"), OutputColumn(DEVIATION, float, "noisy_counts"))

    nights: int = setting(
        MISSING,
        "how many nights the window has; required",
        kind=int,
        low=1,
        high=MAX_ROUNDS,
        metavar="T",
        common=True,
    )
    preset: str | None = setting(
        DEFAULT_PRESET,
        "steady, balanced (default), toward-end or last-night: when most is spent",
        metavar="NAME",
        common=True,
    )
    max_items_per_user: int = setting(
        300,
        "items of a user that count over all nights",
        low=1,
        high=MAX_ITEMS_PER_USER,
        metavar="D0",
        common=True,
    )
    first_night: str | None = setting(
        None,
        "nights are days from this one on (default: numbers from 1)",
        kind=str,
        metavar="DAY",
        common=True,
    )
    schedule: Schedule | None = None
    cap: float = 0.15
    delta_share: float = 0.7
    rise: float | None = None
    rank_power: float = 0.3
    score: ScoreConstants = SCORE
    aims: Aims | None = None
    growth: float = GROWTH
    saved_norm: float | None = None
    noisy_counts: bool = setting(
        False, "with every released item a noisy number of the users that held it then"
    )
    noisy_count_share: float | None = setting(
        None, "share of the budget for --noisy_counts (default 0.2)", kind=float, metavar="SHARE"
    )

    def doubts(self) -> list[str]:
        """What is legal and perhaps a slip, a line each that begins with the name of a setting."""
        return far_from_default(self.max_items_per_user, type(self).max_items_per_user, "a series")

    def __post_init__(self) -> None:
        super().__post_init__()
        instance("schedule", self.schedule, Schedule, optional=True)
        Budget(self.epsilon, self.delta)
        if (self.preset is None) == (self.schedule is None):
            raise SettingError(f"{param('preset')}: give a preset or a schedule, not both and not neither")
        if self.schedule is not None and self.schedule.last_night != self.nights:
            raise SettingError(
                f"{param('nights')} ({self.nights}) and the nights of the schedule ({self.schedule.last_night}) differ"
            )
        from dpbeam.series.saved import LARGEST_NORM

        self._take_of_preset()
        largest = 1.0 if self.saved_norm is None else LARGEST_NORM
        if not 0 < self.cap <= largest:
            raise SettingError(f"cap must be above 0 and at most {largest:g}")
        if not (0 < self.delta_share < 1 and 0 <= self.rank_power <= 1):
            raise SettingError("delta_share and rank_power must lie between 0 and 1")
        if not all(0 <= value <= 10 for value in (self.rise or 0.0, self.growth, self.saved_norm or 0.0)):
            raise SettingError("rise, growth and saved_norm must lie between 0 and 10")
        aimed = all((f is None or f >= 1) and s >= 0 and 0 < w <= 1 for f, s, w in self.aims or ())
        if not self.aims or not aimed:
            raise SettingError("aims must look forward, with weights above 0 and at most 1")
        if self.first_night is not None and _day(self.first_night, "first_night").year > 9000:
            raise SettingError(
                f"{param('first_night')} must lie before the year 9000, got '{self.first_night}'"
            )
        if self.preset is not None:
            preset_schedule(self.preset, self.nights)
        if self.noisy_counts:
            share = value_or(self.noisy_count_share, _DEFAULT_COUNT_SHARE)
            check_share("noisy_count_share", share)
            object.__setattr__(self, "noisy_count_share", share)
        elif self.noisy_count_share is not None:
            raise SettingError(f"{param('noisy_count_share')} needs {param('noisy_counts')}")

    def _take_of_preset(self) -> None:
        """Fill in what the preset says, so that a ledger states it."""
        preset = None if self.preset is None else preset_named(self.preset)
        rise, aims, saved = (
            (RISE, AIMS, None) if preset is None else (preset.rise, preset.aims, preset.saved_norm)
        )
        for name, value in (("rise", rise), ("aims", aims), ("saved_norm", saved)):
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)

    @property
    def resolved_schedule(self) -> Schedule:
        """Rounds, fractions and spending."""
        return self.schedule or preset_schedule(str(self.preset), self.nights)

    def name_of(self, night: int) -> str:
        """What a night is called, from its number."""
        if self.first_night is None:
            return str(night)
        return (_day(self.first_night, "first_night") + timedelta(days=night - 1)).isoformat()

    def number_of(self, name: str) -> int:
        """The number of a night, from what it is called.

        Raises:
          InputError: the window has no such night.
        """
        first, last = self.name_of(1), self.name_of(self.nights)
        if self.first_night is not None:
            number = (_day(name, "night") - _day(self.first_night, "first_night")).days + 1
        elif name.isascii() and name.isdigit():
            number = int(name)
        else:
            raise SettingError(f"{param('night')} must be a number from {first} to {last}, got '{name}'")
        if not 1 <= number <= self.nights:
            raise SettingError(f"{param('night')}: the window has the nights {first} to {last}, got '{name}'")
        return number

    def plan(self, *public: Any) -> SeriesPlan:
        from dpbeam.series.config import plan_series

        return plan_series(self)

    @classmethod
    def ledger(cls, plan: SeriesPlan, **run: Any) -> Ledger:
        """As of `dpbeam.series.config.series_ledger`."""
        from dpbeam.series.config import series_ledger

        return series_ledger(plan, **run)

    @classmethod
    def follows(cls, plan: SeriesPlan) -> dict[str, Any]:
        return {} if plan.counts is None else {DEVIATION: plan.counts.deviation}

    @classmethod
    def of_ledger(cls, ledger: Ledger) -> SeriesConfig:
        return cls.of_parameters(ledger.epsilon, ledger.delta, ledger.parameters)

    @classmethod
    def report(cls, plan: SeriesPlan) -> dict[str, Any]:
        config, schedule = plan.config, plan.config.resolved_schedule
        return {
            **super().report(plan),
            "nights": [config.name_of(night) for night in range(1, config.nights + 1)],
            "rounds": [len(schedule.of_night(night)) for night in range(1, config.nights + 1)],
        }

    @classmethod
    def shown(cls, report: Mapping[str, Any]) -> Iterator[Shown]:
        nights, rounds = report["nights"], report["rounds"]
        yield f"{len(nights)} nights, {nights[0]} to {nights[-1]}; {sum(rounds)} rounds: {', '.join(map(str, rounds))}"
        yield (
            f"all nights together: epsilon {report['epsilon']:g}, delta {report['delta']:g}; "
            f"D0 {report['max_items_per_user']}"
        )

    @classmethod
    def shares_budget(cls, parameters: Mapping[str, Any]) -> str:
        series = f"a series of {parameters.get('nights')} nights, all under this one budget"
        if "night" in parameters:
            return f"Night {parameters['night']} of {series}."
        return f"The window of {series}. Each night has a ledger of its own; items of this one were known before."

    def stated(self) -> dict[str, Any]:
        """All settings as JSON values; budget apart."""
        values = asdict(self)
        del values["epsilon"], values["delta"]
        if self.saved_norm is None:
            del values["saved_norm"]
        if not self.noisy_counts:
            del values["noisy_counts"], values["noisy_count_share"]
        return dict(_plain(values))

    @classmethod
    def of_parameters(cls, epsilon: float, delta: float, values: Mapping[str, Any]) -> SeriesConfig:
        """Inverse of `stated`; other values of a ledger are left out.

        Raises: KeyError, TypeError or another ValueError than InputError if one is missing or of another form.
        """
        later = {"saved_norm": None, "noisy_counts": False, "noisy_count_share": None}
        known = {item.name for item in fields(cls)} - {"epsilon", "delta"}
        chosen: dict[str, Any] = {name: {**later, **values}[name] for name in known}
        chosen["score"] = ScoreConstants(**{n: v + 0.0 for n, v in chosen["score"].items()})
        chosen["aims"] = tuple(map(tuple, chosen["aims"]))
        if chosen["schedule"] is not None:
            chosen["schedule"] = Schedule(**{n: tuple(v) for n, v in chosen["schedule"].items()})
        config = cls(epsilon, delta, **chosen)
        stated = config.stated()
        if any(values.get(name) != stated.get(name) for name in ("rise", "aims", "saved_norm")):
            raise ValueError("what the preset says is not stated")
        return config


def _day(text: str, name: str) -> date:
    try:
        if _DAY.fullmatch(text):
            return date.fromisoformat(text)
    except ValueError:
        pass
    raise SettingError(f"{param(name)} must be a day such as 2026-11-03, got '{text}'")


def _plain(value: Any) -> Any:
    """Tuples as lists, as JSON has them."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value
