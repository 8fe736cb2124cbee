"""From settings to a calibrated program and its events: noise and thresholds of every round, before any data.

Nothing is believed that can be checked: a plan holds the events that its ledger will state against the noise that its
program will draw, the program's norm against what that noise protects, and the cost of the events against the budget.
A selector that contradicts itself cannot be run.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dpbeam.accounting.accountant import check_cost
from dpbeam.accounting.budget import calibrates
from dpbeam.accounting.events import ComposedEvent, describe, leaves
from dpbeam.accounting.noise import NoiseMismatchError, check_same_noise
from dpbeam.accounting.threshold import ReleaseTest
from dpbeam.counts.counted import CountedProgram
from dpbeam.counts.listed import ListedCounts
from dpbeam.counts.selection import CountingSelection, CountNoises, count_noises
from dpbeam.engine.program import Program, check_trips
from dpbeam.errors import InputError, param
from dpbeam.kernels.columns import Columns
from dpbeam.kernels.grid import UNITS
from dpbeam.selectors.floor import Floored

if TYPE_CHECKING:
    from dpbeam.selection.config import SelectionConfig
    from dpbeam.selectors.base import Calibration, RoundPlan, Selector

# Noise is drawn in 64-bit grid units, and sums of 2^32 users are added to it.
LARGEST_DRAW = 2.0**62 / UNITS


def overdrawn(epsilon: float, delta: float, needed: str) -> InputError:
    """For a budget whose noise is beyond `LARGEST_DRAW`; `needed`: "more noise", or what stands before "than"."""
    return InputError(
        f"{param('epsilon')} ({epsilon:g}) and {param('delta')} ({delta:g}) need {needed} than the fixed-point "
        "weights hold; raise one of them"
    )


def check_touches(program: Program, event: ComposedEvent) -> None:
    """Hold what a program lets a user give to items against the noise and the thresholds that pay for it.

    Raises:
      NoiseMismatchError: on a trip a user touches more items, or gives them more, than the events of its round count.
    """
    noises = {noise.round: noise for noise in event.noises()}
    for trip in range(program.trips):
        noise = program.noise(trip)
        if noise is None:
            continue
        items, weight = program.touches(trip)
        for leaf in leaves(event):
            if noise.round in leaf.noisy_rounds and not np.all(
                admitted := leaf.admits(items, weight, noises)
            ):
                at = int(np.argmin(admitted))
                raise NoiseMismatchError(
                    f"in round {noise.round} the program lets a user add up to {weight[at]:.9g} to each of "
                    f"{items[at]} items, which {describe(leaf)} does not count"
                )


def check_tests(program: Program, event: ComposedEvent) -> None:
    """Hold the numbers that a program compares with thresholds, and the thresholds, against the events that pay for it.

    Raises:
      NoiseMismatchError: on a trip no event pays for the test, or for one with a higher threshold.
    """
    stated = {round: test for leaf in leaves(event) for round, test in leaf.release_tests().items()}
    for trip in range(program.trips):
        noise = program.noise(trip)
        if noise is None:
            continue
        paid, own = stated.pop(noise.round, None), program.release_test(trip)
        if not _covers(paid, own):
            raise NoiseMismatchError(
                f"in round {noise.round} the events state {paid}, the program tests {own}"
            )
    if stated:
        raise NoiseMismatchError(
            f"the events state a test after round {min(stated)}, where the program has no noise"
        )


def _covers(paid: ReleaseTest | None, own: ReleaseTest | None) -> bool:
    """Whether an event pays for a test: the same number is tested, and the threshold is as high at least."""
    if paid is None or own is None:
        return paid is own
    if paid.threshold is None or own.threshold is None:
        return own.threshold is None and paid.coefficient == own.coefficient
    return paid.coefficient == own.coefficient and own.threshold >= paid.threshold


@dataclass(frozen=True)
class SelectionPlan:
    """A calibrated job.

    Attributes:
      config: resolved settings.
      calibration: of the selection: what runs, its public numbers, and what the ledger records.
      counts: the noise of the counts, and the event of selection and counts; None where none are asked for.

    Raises:
      NoiseMismatchError: the events state other noise than the program draws, noise that does not protect the
        program's norm, other tests than the program makes, or are calibrated for fewer items of a user than the
        program touches.
      OverspentPlanError: the events cost more than the budget.
      InputError: noise beyond the range of the fixed point.
      ValueError: the program does not say all that is asked of one.
    """

    config: SelectionConfig
    calibration: Calibration
    counts: tuple[CountNoises, ComposedEvent] | None = None

    def __post_init__(self) -> None:
        check_trips(self.program)
        check_same_noise(self.event.noises(), self.program.noises())
        for row, noise in zip(self.rounds, self.calibration.program.noises(), strict=True):
            if row.noise != noise:
                raise NoiseMismatchError(f"the plan states {row.noise}, the program draws {noise}")
            norm = self.calibration.program.norm
            if noise.norm != norm:
                raise NoiseMismatchError(
                    f"{noise} protects sums of bounded {noise.norm} norm, the program bounds {norm}"
                )
        for noise in self.program.noises():
            if noise.filtered:
                raise NoiseMismatchError(f"a selection cannot draw {noise}: its range is not known before")
            if noise.largest > LARGEST_DRAW:
                needed = f"noise of standard deviation {noise.deviation:.3g}, more"
                raise overdrawn(self.config.epsilon, self.config.delta, needed)
        check_touches(self.program, self.event)
        check_tests(self.calibration.program, self.event)
        check_cost(self.event, self.config.epsilon, self.config.delta, f"method {self.config.method}")

    @property
    def selector(self) -> Selector:
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
        check_same_noise(self.event.noises(), program.noises())
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
