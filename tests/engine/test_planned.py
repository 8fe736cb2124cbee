"""One check of every plan: each kind of release with each fault that can be planted, in memory and behind `plan`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import dpbeam.counting.config
import dpbeam.hitting.program
import dpbeam.packing.program
import dpbeam.selection.plan
import dpbeam.series.config
import dpbeam.topk.program
from dpbeam.accounting import accountant
from dpbeam.accounting.accountant import OverspentError
from dpbeam.accounting.events import ComposedEvent, leaves
from dpbeam.accounting.noise import FilteredNoise, NoiseMismatchError
from dpbeam.accounting.threshold import ReleaseTest
from dpbeam.cli import main
from dpbeam.counting.config import plan_count
from dpbeam.counting.family import CountConfig
from dpbeam.engine import planned
from dpbeam.engine.forwarding import Forwarding
from dpbeam.engine.program import Touches
from dpbeam.errors import InputError
from dpbeam.families.registry import families
from dpbeam.hitting.config import plan_hitting_set
from dpbeam.hitting.family import HittingSetConfig
from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.plan import make_plan
from dpbeam.selectors.registry import selectors
from dpbeam.series.config import plan_series
from dpbeam.series.family import SeriesConfig
from dpbeam.testing.kinds import BUDGET, as_flags
from dpbeam.topk.config import plan_topk
from dpbeam.topk.family import TopKConfig
from dpbeam.topk.mechanisms import MECHANISMS
from tests.families.contracts import CONTRACTS
from tests.support.markets import market
from tests.support.markets import plan as packing_plan

_CHECKED_IN = (
    *(dpbeam.counting.config, dpbeam.hitting.program, dpbeam.packing.program, dpbeam.selection.plan),
    *(dpbeam.series.config, dpbeam.topk.program),
)
_BUDGET = (1.0, 1e-6)
_MADE: dict[str, Callable[[], Any]] = {
    # Of few items a user: more take seconds of bits, and no other noise or event.
    **{
        name: functools.partial(make_plan, SelectionConfig(*_BUDGET, name, max_items_per_user=10))
        for name in selectors()
    },
    "counted": lambda: make_plan(SelectionConfig(*_BUDGET, noisy_counts=True)),
    "laplace, counted": lambda: make_plan(SelectionConfig(*_BUDGET, "laplace", noisy_counts=True)),
    "floor": lambda: make_plan(SelectionConfig(*_BUDGET, min_users=5)),
    **{
        f"top-k by {name}": functools.partial(plan_topk, TopKConfig(*_BUDGET, 10, name, noisy_counts=True))
        for name in MECHANISMS
    },
    "top-k of a list": lambda: plan_topk(TopKConfig(*_BUDGET, 10, public_domain=True)),
    "hitting set": lambda: plan_hitting_set(HittingSetConfig(*_BUDGET, 10)),
    "hitting set of a list": lambda: plan_hitting_set(HittingSetConfig(*_BUDGET, 10, public_domain=True)),
    "count": lambda: plan_count(CountConfig(*_BUDGET)),
    "packing": lambda: packing_plan(market([100.0, 80.0], 50)),
    "series": lambda: plan_series(SeriesConfig(*_BUDGET, 3)),
    "series, counted": lambda: plan_series(
        SeriesConfig(*_BUDGET, 3, noisy_counts=True, noisy_count_share=0.2)
    ),
}


@dataclass(frozen=True)
class Checked:
    """What a plan gave to the check."""

    program: Any
    event: ComposedEvent
    epsilon: float
    delta: float
    what: str
    more: dict[str, Any]

    def again(self) -> None:
        planned.check_plan(self.program, self.event, self.epsilon, self.delta, self.what, **self.more)


@pytest.fixture(scope="module", params=_MADE)
def checked(request) -> Checked:
    """Of the last check that making a plan has asked for."""
    asked: list[Checked] = []

    def spy(program, event, epsilon, delta, what, **more):
        asked.append(Checked(program, event, epsilon, delta, what, more))

    with pytest.MonkeyPatch.context() as patch:
        for module in _CHECKED_IN:
            patch.setattr(module, "check_plan", spy)
        _MADE[request.param]()
    asked[-1].again()
    return asked[-1]


class _Faulty(Forwarding):
    """A program that says something else of itself."""

    def __init__(self, inner, **said):
        super().__init__(inner)
        vars(self).update(said)


def _without(event: ComposedEvent, forgotten) -> ComposedEvent:
    parts = [
        _without(part, forgotten) if type(part) is ComposedEvent else part
        for part in event.parts
        if part is not forgotten
    ]
    return replace(
        event, parts=tuple(part for part in parts if type(part) is not ComposedEvent or part.parts)
    )


def _noisy(checked: Checked) -> Iterator[int]:
    return (trip for trip in range(checked.program.trips) if checked.program.noise(trip) is not None)


def test_an_event_that_is_forgotten(checked):
    """But for the choices of a hitting set, which have a check of their own: tests/test_trusted_base.py."""
    for leaf in leaves(checked.event):
        if checked.what == "a hitting set" and hasattr(leaf, "epsilon0"):
            continue
        with pytest.raises(ValueError):
            replace(checked, event=_without(checked.event, leaf)).again()


def test_less_noise_than_the_events_state(checked):
    for noise in checked.program.noises():
        drawn = [other for other in checked.program.noises() if other != noise]
        with pytest.raises(NoiseMismatchError, match="noisy rounds"):
            replace(checked, program=_Faulty(checked.program, noises=lambda drawn=drawn: drawn)).again()


def test_noise_for_another_norm(checked):
    for trip in _noisy(checked):
        norms = {trip: "another"}
        program = _Faulty(checked.program, norm_on=lambda t, n=norms: n.get(t, checked.program.norm_on(t)))
        with pytest.raises(NoiseMismatchError, match="the program bounds another"):
            replace(checked, program=program).again()


def test_a_user_that_gives_more_than_events_count(checked):
    for trip in _noisy(checked):
        more = {trip: Touches.of((checked.program.cap, 150.0))}
        program = _Faulty(
            checked.program, touches=lambda t, more=more: more.get(t) or checked.program.touches(t)
        )
        with pytest.raises(NoiseMismatchError, match="the program lets a user add up to 150"):
            replace(checked, program=program).again()


def test_a_lower_threshold(checked):
    tested = {trip: checked.program.release_test(trip) for trip in _noisy(checked)}
    for trip, test in tested.items():
        if test is None or test.threshold is None:
            continue
        lower = {**tested, trip: ReleaseTest(test.threshold * (1 - 1e-9), test.coefficient)}
        with pytest.raises(NoiseMismatchError, match="the program tests ReleaseTest"):
            replace(checked, program=_Faulty(checked.program, release_test=lower.get)).again()


def test_a_cost_above_the_budget(checked):
    with pytest.raises(OverspentError, match=rf"^{checked.what} costs delta \S+, the budget is "):
        replace(checked, delta=checked.delta / 10).again()


def test_a_program_that_is_none(checked):
    with pytest.raises(ValueError, match="does not say its trips"):
        replace(checked, program=_Faulty(checked.program, trips=None)).again()


def test_noise_beyond_the_fixed_point(checked, monkeypatch):
    if all(isinstance(noise, FilteredNoise) for noise in checked.program.noises()):
        return  # of packing, whose plan asks what the smallest share of its filter draws
    monkeypatch.setattr(planned, "LARGEST_DRAW", 1e-3)
    with pytest.raises(InputError, match="more than the fixed-point weights hold; raise one of them"):
        checked.again()


def test_every_fault_was_planted():
    """Noise of items, tests and touches are there in every kind that has a selection."""
    made = make_plan(SelectionConfig(*_BUDGET))
    assert made.program.noise(0) is not None and made.program.release_test(0) is not None
    assert np.all(made.program.touches(0).weight <= 1.0)


@pytest.mark.parametrize("name", families())
def test_dpbeam_plan_shows_nothing_that_costs_more_than_its_budget(name, tmp_path, capsys, monkeypatch):
    contract = next(one for one in CONTRACTS.values() if one.kind.name == name)
    argv = ["plan", f"--family={name}", *as_flags({**BUDGET, **contract.settings()[0]})]
    if name == "pack":
        argv += [*contract.command_line(str(tmp_path))[1:], "--num_agents=100"]
    assert main(argv) == 0
    capsys.readouterr()
    monkeypatch.setattr(accountant, "_COST_TOLERANCE", -0.5)
    assert main(argv) == 1
    said = capsys.readouterr()
    assert said.out == "" and "the budget is" in said.err and said.err.count("\n") == 1
