"""Settings of a series, and its plan: everything public about the window, fixed before the first night."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import date, timedelta
from fractions import Fraction
from typing import Any

from dpbeam.accounting.accountant import sigma_beside
from dpbeam.accounting.arguments import check_fields, instance
from dpbeam.accounting.budget import Budget, calibrates, check_share, two_parts
from dpbeam.accounting.events import ComposedEvent, SavedNormEvent
from dpbeam.accounting.ledger import Ledger, guarantee_note, key_source
from dpbeam.accounting.noise import NoiseMismatchError
from dpbeam.accounting.versions import code_revision, versions
from dpbeam.counts.selection import DEVIATION
from dpbeam.engine.planned import check_plan
from dpbeam.errors import InputError, param
from dpbeam.selection.config import far_from_default
from dpbeam.selection.ledger import one_value_of
from dpbeam.selectors.base import check_range, filled_in
from dpbeam.selectors.gsu.presets import MAX_ROUNDS, ScoreConstants
from dpbeam.series.calibration import SeriesCalibration, calibrate_series
from dpbeam.series.counts import SeriesCounts
from dpbeam.series.program import SeriesProgram
from dpbeam.series.saved import FULL, LARGEST_NORM
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

METHOD = "series"
MAX_ITEMS_PER_USER = 10_000  # the ledger lists a cap for each rank
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


@dataclass(frozen=True)
class SeriesConfig:
    """What a series is asked to do; fixed when it is opened.

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
      noisy_count_share: share of epsilon and delta for noisy counts of released items; None for none.

    Raises:
      InputError: a value is out of range.
    """

    epsilon: float
    delta: float
    nights: int
    preset: str | None = DEFAULT_PRESET
    max_items_per_user: int = 300
    first_night: str | None = None
    schedule: Schedule | None = None
    cap: float = 0.15
    delta_share: float = 0.7
    rise: float | None = None
    rank_power: float = 0.3
    score: ScoreConstants = SCORE
    aims: Aims | None = None
    growth: float = GROWTH
    saved_norm: float | None = None
    noisy_count_share: float | None = None

    def doubts(self) -> list[str]:
        """What is legal and perhaps a slip, a line each that begins with the name of a setting."""
        return far_from_default(self.max_items_per_user, type(self).max_items_per_user, "a series")

    def __post_init__(self) -> None:
        check_fields(self)
        instance("schedule", self.schedule, Schedule, optional=True)
        Budget(self.epsilon, self.delta)
        check_range("nights", self.nights, 1, MAX_ROUNDS, integer=True)
        check_range("max_items_per_user", self.max_items_per_user, 1, MAX_ITEMS_PER_USER, integer=True)
        if (self.preset is None) == (self.schedule is None):
            raise InputError(f"{param('preset')}: give a preset or a schedule, not both and not neither")
        if self.schedule is not None and self.schedule.last_night != self.nights:
            raise InputError(
                f"{param('nights')} ({self.nights}) and the nights of the schedule ({self.schedule.last_night}) differ"
            )
        self._take_of_preset()
        largest = 1.0 if self.saved_norm is None else LARGEST_NORM
        if not 0 < self.cap <= largest:
            raise InputError(f"cap must be above 0 and at most {largest:g}")
        if not (0 < self.delta_share < 1 and 0 <= self.rank_power <= 1):
            raise InputError("delta_share and rank_power must lie between 0 and 1")
        if not all(0 <= value <= 10 for value in (self.rise or 0.0, self.growth, self.saved_norm or 0.0)):
            raise InputError("rise, growth and saved_norm must lie between 0 and 10")
        aimed = all((f is None or f >= 1) and s >= 0 and 0 < w <= 1 for f, s, w in self.aims or ())
        if not self.aims or not aimed:
            raise InputError("aims must look forward, with weights above 0 and at most 1")
        if self.first_night is not None and _day(self.first_night, "first_night").year > 9000:
            raise InputError(
                f"{param('first_night')} must lie before the year 9000, got '{self.first_night}'"
            )
        if self.preset is not None:
            preset_schedule(self.preset, self.nights)
        if self.noisy_count_share is not None:
            check_share("noisy_count_share", self.noisy_count_share)

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
            raise InputError(f"{param('night')} must be a number from {first} to {last}, got '{name}'")
        if not 1 <= number <= self.nights:
            raise InputError(f"{param('night')}: the window has the nights {first} to {last}, got '{name}'")
        return number

    def public_parameters(self) -> dict[str, Any]:
        """All settings as JSON values; budget apart."""
        values = asdict(self)
        del values["epsilon"], values["delta"]
        if self.saved_norm is None:
            del values["saved_norm"]
        if self.noisy_count_share is None:
            del values["noisy_count_share"]
        else:
            values["noisy_counts"] = True
        return dict(_plain(values))

    @classmethod
    def of_parameters(cls, epsilon: float, delta: float, values: Mapping[str, Any]) -> SeriesConfig:
        """Inverse of `public_parameters`; other values of a ledger are left out.

        Raises: KeyError, TypeError or another ValueError than InputError if one is missing or of another form.
        """
        later = {"saved_norm", "noisy_count_share"}
        known = {item.name for item in fields(cls)} - {"epsilon", "delta"}
        chosen: dict[str, Any] = {name: values.get(name) if name in later else values[name] for name in known}
        chosen["score"] = ScoreConstants(**{n: v + 0.0 for n, v in chosen["score"].items()})
        chosen["aims"] = tuple(map(tuple, chosen["aims"]))
        if chosen["schedule"] is not None:
            chosen["schedule"] = Schedule(**{n: tuple(v) for n, v in chosen["schedule"].items()})
        config = cls(epsilon, delta, **chosen)
        stated = config.public_parameters()
        if any(values.get(name) != stated.get(name) for name in ("rise", "aims", "saved_norm")):
            raise ValueError("what the preset says is not stated")
        return config


@dataclass(frozen=True)
class SeriesPlan:
    """A calibrated series; `counts` is what makes noisy counts, None without.

    Raises:
      NoiseMismatchError: the caps of ranks are none that the tests pay for; and as `check_plan`.
    """

    config: SeriesConfig
    calibration: SeriesCalibration
    counts: SeriesCounts | None = None

    def __post_init__(self) -> None:
        config, tests = self.config, self.calibration.event().parts[-1]
        drawn = [] if self.counts is None else [self.counts.noise]
        budget = config.epsilon, config.delta
        check_plan(self.program, self.event, *budget, "a series", drawn=drawn, by_rank=[tests])
        self._check_weights()

    def _check_weights(self) -> None:
        """Hold what the program lets a user give against what noise and thresholds pay for."""
        tests, program = self.calibration.event().parts[-1], self.program
        if tests.caps != tuple(program.caps[1:]):
            raise NoiseMismatchError("the ledger states other caps than the program has")
        saved = [part for part in self.calibration.event().parts if type(part) is SavedNormEvent]
        if [part.largest for part in saved] != ([] if program.saving is None else [LARGEST_NORM]):
            raise NoiseMismatchError(
                "the ledger states another bound on a user's norm than the program holds"
            )
        for part in saved:
            paid = zip(part.shares, program.saving.shares if program.saving else (), strict=True)
            if any(share * FULL > taken for share, taken in ((Fraction(s), t) for s, t in paid)):
                raise NoiseMismatchError(
                    "in a round the program takes less of a user's norm than the ledger states"
                )
        if self.counts is not None and self.counts.items != self.config.max_items_per_user:
            raise NoiseMismatchError("noisy counts are calibrated for another number of items per user")

    def stated_parameters(self) -> dict[str, Any]:
        """What a ledger's parameters state besides the settings, from which it follows."""
        return {} if self.counts is None else {DEVIATION: self.counts.deviation}

    @functools.cached_property
    def event(self) -> ComposedEvent:
        """What the ledger records of the whole window."""
        selection = self.calibration.event()
        if self.counts is None:
            return selection
        parts = (selection, self.counts.event)
        return ComposedEvent("gaussian", parts, label=METHOD, epsilon=self.config.epsilon)

    @functools.cached_property
    def program(self) -> SeriesProgram:
        """What runs."""
        config = self.config
        return SeriesProgram(
            self.calibration,
            config.resolved_schedule,
            config.score,
            filled_in(config.aims),
            config.growth,
            config.saved_norm,
        )


@calibrates
def plan_series(config: SeriesConfig) -> SeriesPlan:
    """Calibrates a series; needs no data.

    Noisy counts get what the rounds and tests leave of the whole, which compose with them as Gaussian mechanisms.
    """
    epsilon, delta = config.epsilon, config.delta
    if config.noisy_count_share is not None:
        epsilon, delta = two_parts(epsilon, delta, config.noisy_count_share)[0]
    calibration = calibrate_series(
        epsilon,
        delta,
        config.resolved_schedule,
        delta_gauss_share=config.delta_share,
        max_items=config.max_items_per_user,
        c0=config.cap,
        rise=filled_in(config.rise),
        rank_power=config.rank_power,
        saves_norm=config.saved_norm is not None,
    )
    if config.noisy_count_share is None:
        return SeriesPlan(config, calibration)
    sigma = sigma_beside((calibration.event(),), config.epsilon, config.delta)
    if sigma is None:
        raise InputError(f"{param('noisy_count_share')} leaves nothing for the counts: raise it")
    rounds = config.resolved_schedule.rounds
    return SeriesPlan(config, calibration, SeriesCounts(sigma, config.max_items_per_user, rounds + 1))


def series_ledger(
    plan: SeriesPlan,
    *,
    series_id: str,
    fixed_key: bool,
    user_column: str | None = None,
    night: int | None = None,
    known_items: bool = False,
) -> Ledger:
    """The ledger of the window, or of one of its nights.

    Both state what the whole window costs, once: a night's says that it is part of the series `series_id` and which
    rounds it has made, and costs nothing besides.

    Args:
      fixed_key: whether the key is a fixed one of tests.
      user_column: whose values are users, where it has a name that is known for all nights.
      known_items: whether the series was opened with items that are known already.
    """
    config = plan.config
    parameters = {**config.public_parameters(), **plan.stated_parameters(), "series": series_id}
    if night is not None:
        rounds = config.resolved_schedule.of_night(night)
        parameters |= {"night": config.name_of(night), "rounds": [rounds.start + 1, rounds.stop]}
    return Ledger(
        method=METHOD,
        epsilon=config.epsilon,
        delta=config.delta,
        accounting=plan.event.kind,
        events=plan.event,
        privacy_unit=one_value_of(user_column),
        guarantee_note=guarantee_note([METHOD]),
        parameters=parameters,
        key_source=key_source(fixed=fixed_key),
        versions=versions(),
        code_revision=code_revision(),
        public_items=known_items,
    )


def _day(text: str, name: str) -> date:
    try:
        if _DAY.fullmatch(text):
            return date.fromisoformat(text)
    except ValueError:
        pass
    raise InputError(f"{param(name)} must be a day such as 2026-11-03, got '{text}'")


def _plain(value: Any) -> Any:
    """Tuples as lists, as JSON has them."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value
