"""The one check of every plan: what its program does against the events that its ledger will state, and their cost.

Nothing is believed that can be checked. A plan is held against its program where it is made, hence in `dpbeam plan`, in
a dry run and in a run, and a program against its plan where it is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from dpbeam.accounting.accountant import check_cost
from dpbeam.accounting.events import ComposedEvent, Event, check_stated, describe
from dpbeam.accounting.noise import NoiseMismatchError, StatedNoise, check_same_noise
from dpbeam.accounting.threshold import ReleaseTest
from dpbeam.engine.program import Program, Touches, check_trips
from dpbeam.errors import SettingError, param
from dpbeam.kernels.grid import UNITS

# Noise is drawn in 64-bit grid units, and sums of 2^32 users are added to it.
LARGEST_DRAW = 2.0**62 / UNITS


def check_plan(
    program: Program,
    event: ComposedEvent,
    epsilon: float,
    delta: float,
    what: str,
    *,
    beside: Sequence[Event] = (),
    drawn: Sequence[StatedNoise] = (),
    stated: Iterable[Event] = (),
    by_rank: Sequence[Event] = (),
) -> None:
    """Hold a program against the events that pay for it: trips, noise, norms, touches, tests, cost.

    Args:
      event: what the ledger records; epsilon, delta: the budget.
      what: is planned, for messages.
      beside: what is drawn otherwise than as stated noise, such as choices of the hub.
      drawn: noise that is drawn beside the program.
      stated: what else must stand among the events.
      by_rank: events that bound what each of a user's items gets by its rank, which the caller holds against them.

    Raises:
      ValueError: the program does not say all that is asked of one.
      NoiseMismatchError: the events state other noise than the program draws, noise that does not protect its norm,
        other tests than it makes, or are calibrated for fewer items of a user than it touches.
      InputError: noise beyond the range of the fixed point.
      OverspentError: the events cost more than the budget.
    """
    check_trips(program)
    check_stated(event, [*beside, *stated])
    own = check_stated(event, beside)
    noises = [*program.noises(), *drawn]
    check_same_noise([noise for leaf in own for noise in leaf.noises()], noises)
    for spec in noises:
        if not spec.filtered and spec.largest > LARGEST_DRAW:
            raise SettingError(
                f"{param('epsilon')} ({epsilon:g}) and {param('delta')} ({delta:g}) need noise of standard deviation "
                f"{spec.deviation:.3g}, more than the fixed-point weights hold; raise one of them"
            )
    tests = {round: test for leaf in own for round, test in leaf.release_tests().items()}
    bounding = [leaf for leaf in own if leaf not in by_rank]
    by_round = {noise.round: noise for noise in noises}
    admitted: dict[int, Touches] = {}
    for trip in range(program.trips):
        if (noise := program.noise(trip)) is None:
            continue
        if noise.filtered:
            raise NoiseMismatchError(f"shards cannot draw {noise}: its range is not known before")
        if noise.norm != program.norm_on(trip):
            raise NoiseMismatchError(
                f"{noise} protects sums of bounded {noise.norm} norm, the program bounds {program.norm_on(trip)}"
            )
        _check_touches(program.touches(trip), noise.round, bounding, by_round, admitted)
        paid, test = tests.pop(noise.round, None), program.release_test(trip)
        if not _covers(paid, test):
            raise NoiseMismatchError(
                f"in round {noise.round} the events state {paid}, the program tests {test}"
            )
    if tests:
        raise NoiseMismatchError(
            f"the events state a test after round {min(tests)}, where the program has no noise"
        )
    check_cost(event, epsilon, delta, what)


def _check_touches(
    touches: Touches,
    round: int,
    events: Sequence[Event],
    noises: Mapping[int, StatedNoise],
    admitted: dict[int, Touches],
) -> None:
    """Hold what a program lets a user give to items in a round against the noise and thresholds that pay for it.

    Args:
      admitted: by the place of an event, what it admitted last; most events are those of several rounds, in which a
        user gives the same.
    """
    items, weight = touches
    for place, leaf in enumerate(events):
        if round not in leaf.noisy_rounds or all(map(np.array_equal, touches, admitted.get(place, ((), ())))):
            continue
        if not np.all(admits := leaf.admits(items, weight, noises)):
            at = int(np.argmin(admits))
            raise NoiseMismatchError(
                f"in round {round} the program lets a user add up to {weight[at]:.9g} to each of {items[at]} items, "
                f"which {describe(leaf)} does not count"
            )
        admitted[place] = touches


def _covers(paid: ReleaseTest | None, own: ReleaseTest | None) -> bool:
    """Whether an event pays for a test: the same number is tested, and the threshold is as high at least."""
    if paid is None or own is None:
        return paid is own
    if paid.threshold is None or own.threshold is None:
        return own.threshold is None and paid.coefficient == own.coefficient
    return paid.coefficient == own.coefficient and own.threshold >= paid.threshold
