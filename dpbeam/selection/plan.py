"""From settings to a calibrated program and its events: noise and thresholds of every round, before any data.

A plan is checked where it is made (`check_plan`): a selector that contradicts itself cannot be run.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dpbeam.accounting.budget import calibrates
from dpbeam.accounting.events import ComposedEvent
from dpbeam.accounting.noise import NoiseMismatchError
from dpbeam.counts.counted import CountedProgram
from dpbeam.counts.listed import ListedCounts
from dpbeam.counts.selection import CountingSelection, CountNoises, count_noises
from dpbeam.engine.planned import check_plan
from dpbeam.engine.program import Program
from dpbeam.kernels.columns import Columns
from dpbeam.kernels.grid import UNITS
from dpbeam.selectors.floor import Floored

if TYPE_CHECKING:
    from dpbeam.selection.config import SelectionConfig
    from dpbeam.selectors.base import Calibration, RoundPlan, Selector


@dataclass(frozen=True)
class SelectionPlan:
    """A calibrated job.

    Attributes:
      config: resolved settings.
      calibration: of the selection: what runs, its public numbers, and what the ledger records.
      counts: the noise of the counts, and the event of selection and counts; None where none are asked for.

    Raises:
      NoiseMismatchError: the plan states other noise than the program draws; and as `check_plan`.
    """

    config: SelectionConfig
    calibration: Calibration
    counts: tuple[CountNoises, ComposedEvent] | None = None

    def __post_init__(self) -> None:
        self._check(self.program)
        for row, noise in zip(self.rounds, self.calibration.program.noises(), strict=True):
            if row.noise != noise:
                raise NoiseMismatchError(f"the plan states {row.noise}, the program draws {noise}")

    def _check(self, program: Program) -> None:
        what = f"method {self.config.method}"
        check_plan(program, self.event, self.config.epsilon, self.config.delta, what)

    @property
    def selector(self) -> Selector:
        """That of the config."""
        return self.config.selector

    @functools.cached_property
    def program(self) -> Program:
        """What runs, in process or on Beam."""
        return (
            self._selection
            if self.counts is None
            else CountingSelection(self._selection, self.counts[0], self.config.others)
        )

    @property
    def _selection(self) -> Program:
        """What releases, without counts."""
        selection = self.calibration.program
        return selection if self.config.min_users is None else Floored(selection, self.config.min_users)

    def program_beside(self, listed: Columns) -> Program:
        """What runs where items of a list, from `public_domain`, are counted beside those that are released.

        Raises:
          ValueError: nothing is counted.
        """
        if self.counts is None:
            raise ValueError("a selection without counts leaves the items of a list out of its input")
        inner = CountedProgram(self._selection, listed["items"])
        program = ListedCounts(inner, self.counts[0], listed, self.config.others)
        self._check(program)
        return program

    @property
    def others_deviation(self) -> float | None:
        """Of the number of users that hold nothing of the output; None where it is not asked for."""
        return self.counts[0].histogram_sigma if self.counts and self.config.others else None

    @property
    def rounds(self) -> tuple[RoundPlan, ...]:
        """Public numbers per round."""
        return self.calibration.rounds

    @property
    def event(self) -> ComposedEvent:
        """What the ledger records, root of the event tree."""
        return self.calibration.event if self.counts is None else self.counts[1]

    @property
    def accounting(self) -> str:
        """How rounds are composed, for the ledger's readers."""
        return self.event.kind

    def weight(self, degree: int) -> float:
        """What a user with this many items gives to each of them in a round when all count alike."""
        return self.selector.weight(self.calibration, degree)

    def keep_probability(self, users: int, degree: int) -> float:
        """Probability that an item is released whose `users` users all hold `degree` items."""
        return self.selector.keep_probability(self.calibration, users, degree)


@calibrates
def make_plan(config: SelectionConfig) -> SelectionPlan:
    """Calibrate a selection; needs no data.

    Raises:
      InputError: settings are out of range or violate a precondition of the method.
    """
    config = config.resolve()
    calibration = _calibrated(config)
    if config.noisy_count_share is None:
        return SelectionPlan(config, calibration)
    counts = count_noises(calibration.event, config.epsilon, config.delta, config.noisy_count_share)
    return SelectionPlan(config, calibration, counts)


def _calibrated(config: SelectionConfig) -> Calibration:
    """The selection of resolved settings, whose rounds know the floor on users that is laid under them."""
    calibration = config.selector.plan(config.request())
    if config.min_users is None:
        return calibration
    floored = Floored(calibration.program, config.min_users)
    noisy = [trip for trip in range(floored.trips) if floored.noise(trip) is not None]
    rounds = (
        replace(row, floor=floored.floor_units(trip) / UNITS)
        for row, trip in zip(calibration.rounds, noisy, strict=True)
    )
    return replace(calibration, rounds=tuple(rounds))
