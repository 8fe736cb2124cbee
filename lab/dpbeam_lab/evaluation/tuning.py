"""What every selector would release from a population, over the settings that it declares worth a try.

Every choice runs on the same keys, so choices are compared on the same samples. All run once; from then on those go
on whose mean so far, three standard deviations of a difference allowed for, may still be within the tolerance of the
best. Released items are sums of coins, so that their variance is at most about their number: no choice is dropped for
bad luck. The figures are NOT PRIVATE where the population is that of real users.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dpbeam.engine.in_process import run_blocks
from dpbeam.engine.program import Keys
from dpbeam.errors import InputError, SettingError
from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.plan import SelectionPlan, make_plan
from dpbeam.selectors.registry import as_flags, find, selectors
from dpbeam_lab.evaluation.data import PairData, Repetition
from dpbeam_lab.evaluation.population import Population

#: What may be aimed for -> what it says.
AIMS = {"items": "released items", "pairs": "share of the (user, item) pairs whose item is released"}
D0 = "max_items_per_user"
TOLERANCE = 0.02
REPETITIONS = 8
_DEVIATIONS = 3.0


@dataclass(frozen=True)
class Choice:
    """A method with its settings, planned.

    Attributes:
      method: name of a selector.
      settings: keywords of a `SelectionConfig`, flags of the command.
      plan: at the budget asked for.
    """

    method: str
    settings: Mapping[str, Any]
    plan: SelectionPlan

    @property
    def trips(self) -> int:
        """Messages from users to items, one after the other: what the time of a job grows with."""
        return self.plan.program.trips

    @property
    def max_items(self) -> int:
        """D0."""
        return int(self.plan.config.max_items_per_user or 0)

    @property
    def title(self) -> str:
        """Method and settings, D0 apart."""
        others = {name: value for name, value in self.settings.items() if name != D0}
        return " ".join([self.method, *(f"{name}={_text(value)}" for name, value in others.items())])

    def flags(self, epsilon: float, delta: float) -> dict[str, Any]:
        """Flags of `dpbeam select`, as its --config file holds them."""
        values = as_flags({n: list(v) if isinstance(v, tuple) else v for n, v in self.settings.items()})
        constants = {"settings": values.pop("set")} if "set" in values else {}
        return {"epsilon": epsilon, "delta": delta, "method": self.method, **values, **constants}


@dataclass(frozen=True)
class Figures:
    """What one run released: items, the share of pairs whose item is, and CPU seconds of the rounds."""

    items: int
    pairs: float
    seconds: float


Runs = Callable[[Population, Repetition, Sequence[Choice]], Iterator[tuple[int, Figures]]]
"""Runs choices on a population: (position, figures) of each, in any order. Choices come ordered by their samples."""


@dataclass
class Estimate:
    """What a choice released, one value for each repetition.

    Attributes:
      items: released items.
      pairs: share of the pairs whose item is released: 1 less the missing mass.
      seconds: CPU time of the rounds.
    """

    choice: Choice
    items: list[int] = field(default_factory=list)
    pairs: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    @property
    def repetitions(self) -> int:
        return len(self.items)

    def add(self, figures: Figures) -> None:
        """One more repetition."""
        self.items.append(figures.items)
        self.pairs.append(figures.pairs)
        self.seconds.append(figures.seconds)

    def mean(self, aim: str) -> float:
        return statistics.fmean(getattr(self, aim))

    def error(self, aim: str) -> float | None:
        """Standard error of the mean; None from one or two repetitions, which hardly say."""
        values = getattr(self, aim)
        return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 2 else None


@dataclass(frozen=True)
class Tuning:
    """The outcome.

    Attributes:
      estimates: of every choice that ran, in the order of the registry.
      best: has the largest mean.
      chosen: of those within the tolerance of the best the one with fewest trips; among these, with the largest mean.
      not_run: how many choices the time did not suffice for.
      methods_not_run: those of which not one choice ran.
      aim, tolerance: of the search.
    """

    estimates: Sequence[Estimate]
    best: Estimate
    chosen: Estimate
    not_run: int
    aim: str
    tolerance: float
    methods_not_run: Sequence[str] = ()

    def rivals(self, factor: float) -> dict[str, float]:
        """Other methods than the pick's with their largest means, where these are within this factor of the pick's."""
        largest: dict[str, float] = {}
        for estimate in self.estimates:
            name = estimate.choice.method
            largest[name] = max(largest.get(name, 0.0), estimate.mean(self.aim))
        largest.pop(self.chosen.choice.method)
        least = self.chosen.mean(self.aim) / factor
        near = {name: mean for name, mean in largest.items() if mean >= least}
        return dict(sorted(near.items(), key=lambda pair: -pair[1]))

    def report(self, epsilon: float, delta: float) -> dict[str, Any]:
        """Everything as JSON values; `flags` are those of `dpbeam select`."""
        ordered = sorted(self.estimates, key=lambda e: -e.mean(self.aim))
        return {
            "epsilon": epsilon,
            "delta": delta,
            "aim": self.aim,
            "tolerance": self.tolerance,
            "not_run": self.not_run,
            "methods_not_run": list(self.methods_not_run),
            "best": _facts(self.best, self.aim),
            "pick": _facts(self.chosen, self.aim),
            "flags": self.chosen.choice.flags(epsilon, delta),
            "choices": [_facts(estimate, self.aim) for estimate in ordered],
        }


def _facts(estimate: Estimate, aim: str) -> dict[str, Any]:
    choice = estimate.choice
    return {
        "choice": choice.title,
        "max_items_per_user": choice.max_items,
        "trips": choice.trips,
        "repetitions": estimate.repetitions,
        "mean": estimate.mean(aim),
        "error": estimate.error(aim),
        **{name: estimate.mean(name) for name in AIMS},
        "cpu_seconds": statistics.median(estimate.seconds),
    }


def _text(value: Any) -> str:
    return ",".join(map(_text, value)) if isinstance(value, tuple) else str(value)


def choices(
    epsilon: float,
    delta: float,
    methods: Sequence[str] | None = None,
    tried: Mapping[str, Sequence[Any]] | None = None,
) -> list[Choice]:
    """Every combination of what the methods declare as tunable, less those that they refuse.

    Args:
      methods: names; None for all of the registry.
      tried: values that replace the declared ones, of settings that a method declares.

    Raises:
      InputError: there is no such method, the budget is out of range, or a method refuses all combinations.
    """
    accepted = []
    for selector in selectors().values() if methods is None else map(find, methods):
        grid = {name: (tried or {}).get(name, values) for name, values in selector.tunable.items()}
        mine, refused = [], None
        for values in itertools.product(*grid.values()):
            settings = dict(zip(grid, values))
            try:
                plan = make_plan(SelectionConfig(epsilon, delta, selector.name, **settings))
            except InputError as error:
                refused = error
                continue
            mine.append(Choice(selector.name, settings, plan))
        if not mine and refused is not None and methods is not None:
            raise refused
        accepted += mine
    if not accepted:
        raise SettingError("no method accepts this budget with any of the settings")
    return accepted


def run_here(
    population: Population, repetition: Repetition, tried: Sequence[Choice]
) -> Iterator[tuple[int, Figures]]:
    """One choice after the other, in this process."""
    data = population.data()
    for place, choice in enumerate(tried):
        yield place, run_choice(choice, data, population.holders, repetition)


def tune(
    population: Callable[[int], Population],
    tried: Sequence[Choice],
    *,
    aim: str = "items",
    repetitions: int = REPETITIONS,
    tolerance: float = TOLERANCE,
    seed: int = 0,
    time_limit: float | None = None,
    runs: Runs = run_here,
    begin: Callable[[int, int], None] = lambda total, finished: None,
    advance: Callable[[str], None] = lambda done: None,
) -> Tuning:
    """Run the choices and pick the cheapest within the tolerance of the best.

    Args:
      population: by the number of the repetition, from 0; data give the same each time.
      aim: one of `AIMS`.
      repetitions: of the choices that are not dropped on the way.
      seed: the same arguments and seed give the same figures.
      time_limit: seconds; what is not done by then is left out, but for the first run.
      runs: runs the choices; figures do not depend on where or in which order it does.
      begin: called with how many runs there will be at most, and how many are done.
      advance: called after every run that is done.

    Raises:
      ValueError: an argument out of range.
    """
    if aim not in AIMS or repetitions < 1 or not 0 <= tolerance < 1:
        raise ValueError(f"aim {aim!r}, {repetitions} repetitions, tolerance {tolerance}")
    end = math.inf if time_limit is None else time.monotonic() + time_limit
    estimates = [Estimate(choice) for choice in tried]
    alive, done = estimates, 0
    for first, last in _rungs(repetitions):
        total = done + len(alive) * (repetitions - first)
        begin(total, done)
        for number in range(first, last):
            ordered = sorted(alive, key=lambda e: e.choice.plan.program.cap)
            wanted = [estimate.choice for estimate in ordered]
            for place, figures in runs(population(number), Repetition(seed, number), wanted):
                ordered[place].add(figures)
                done += 1
                advance(f"{wanted[place].title} {D0}={wanted[place].max_items}")
                if time.monotonic() > end:
                    return _outcome(estimates, aim, tolerance)
        alive = _surviving(alive, aim, tolerance)
    return _outcome(estimates, aim, tolerance)


def _rungs(repetitions: int) -> Iterator[tuple[int, int]]:
    """Ranges of repetitions, each as long as all before."""
    first = 0
    while first < repetitions:
        last = min(repetitions, max(1, 2 * first))
        yield first, last
        first = last


def _surviving(alive: Sequence[Estimate], aim: str, tolerance: float) -> list[Estimate]:
    best = max(alive, key=lambda e: e.mean(aim))
    variance = 2.0 / (max(best.mean("items"), 1.0) * best.repetitions)
    bar = (1.0 - tolerance - _DEVIATIONS * math.sqrt(variance)) * best.mean(aim)
    return [estimate for estimate in alive if estimate.mean(aim) >= bar]


def _outcome(estimates: Sequence[Estimate], aim: str, tolerance: float) -> Tuning:
    """The pick is among those with most repetitions: where time ran out, all that came as far as the last full one."""
    ran = [estimate for estimate in estimates if estimate.repetitions]
    counts = sorted({estimate.repetitions for estimate in ran}, reverse=True)
    # With some one repetition ahead of the others when time ran out, both are still in the race.
    least = counts[0] - 1 if len(counts) > 1 and counts[1] == counts[0] - 1 > 0 else counts[0]
    last = [estimate for estimate in ran if estimate.repetitions >= least]
    best = max(last, key=lambda e: e.mean(aim))
    near = [estimate for estimate in last if estimate.mean(aim) >= (1.0 - tolerance) * best.mean(aim)]
    chosen = min(near, key=lambda e: (e.choice.trips, -e.mean(aim)))
    methods = dict.fromkeys(estimate.choice.method for estimate in estimates)
    missing = [name for name in methods if all(estimate.choice.method != name for estimate in ran)]
    return Tuning(ran, best, chosen, len(estimates) - len(ran), aim, tolerance, missing)


def run_choice(choice: Choice, data: PairData, holders: np.ndarray, repetition: Repetition) -> Figures:
    """One run.

    Args:
      holders: (items,) of the data, which takes a pass over them.
    """
    program = choice.plan.program
    blocks = data.blocks(repetition, program.cap)
    start = time.process_time()
    released = run_blocks(program, blocks, Keys(repetition.key))
    seconds = time.process_time() - start
    return Figures(len(released), float(holders[data.positions(released.items)].sum()) / data.size, seconds)
