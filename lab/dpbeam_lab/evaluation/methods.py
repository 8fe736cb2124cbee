"""What a method of an experiment on data in memory is. NOT PRIVATE: test keys, and results held against the truth.

A method is one class and one line of `dpbeam_lab.evaluation.registry`. It says what it is called, what kind of result
it gives, which settings it has and whether it could be run on a cluster at all; `prepare` checks the settings and
calibrates without data, so that a wrong experiment is refused before anything runs.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from dpbeam.engine.in_process import run_blocks
from dpbeam.engine.program import Keys
from dpbeam.errors import SettingError, naming_arguments
from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.plan import SelectionPlan, make_plan
from dpbeam.selectors.base import check_range
from dpbeam.selectors.registry import DEFAULT_METHOD, find, variants
from dpbeam_lab.evaluation.data import PAIRS, PairData, Repetition

#: What a method gives: released items, ranked items, items that hit users, shares of supplies.
SELECTION, TOP_K, HITTING_SET, PACKING = "selection", "top-k", "hitting-set", "packing"


@dataclass(frozen=True)
class Outcome:
    """What a run gave.

    Attributes:
      items: (n,) int64 positions of items of the data, in rank order where there is one.
      outside: items that the data do not hold.
      allocation: (agents,) shares, of packing.
      facts: other numbers of the run, by the name of the measure that reports them.
    """

    items: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    outside: int = 0
    allocation: np.ndarray | None = None
    facts: Mapping[str, float] = field(default_factory=dict)


Prepared = Callable[[Any, Repetition], Outcome]
"""A calibrated method: (data, repetition) -> outcome."""


class Method(ABC):
    """One method.

    Attributes:
      name: `run:` of an experiment file.
      kind: what it gives: "selection", "top-k", "hitting-set" or "packing".
      data: what it needs: "pairs", "histogram" (which pairs have too) or "market".
      parallel: whether it can be a job on a cluster; tables mark those that cannot.
      note: what tables say of it, empty for nothing.
    """

    name: ClassVar[str]
    kind: ClassVar[str]
    data: ClassVar[str] = PAIRS
    parallel: ClassVar[bool] = True
    note: ClassVar[str] = ""

    @abstractmethod
    def settings(self, settings: Mapping[str, Any]) -> Collection[str]:
        """Names of all settings that the method has, next to those that are set."""

    @abstractmethod
    def prepare(self, epsilon: float, delta: float, settings: Mapping[str, Any]) -> Prepared:
        """Check and calibrate.

        Raises:
          InputError: naming the setting.
        """

    def variants(self, settings: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]] | None:
        """Label -> settings, where they stand for several variants; None where they do not."""
        return None

    def label(self, settings: Mapping[str, Any]) -> str:
        """What tables call the method with these settings, unless they are named."""
        return self.name


class Select(Method):
    """Partition selection: what `dpbeam select` releases. `method: all` stands for every variant of every selector."""

    name = "select"
    kind = SELECTION
    _COMMON = ("method", "max_items_per_user", "min_users", "preset")

    def settings(self, settings: Mapping[str, Any]) -> Collection[str]:
        selector = find(settings.get("method", DEFAULT_METHOD))
        return (*self._COMMON, *selector.settings_type.described())

    def variants(self, settings: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]] | None:
        if settings.get("method") != "all":
            return None
        others = {name: value for name, value in settings.items() if name != "method"}
        return {label: {**of_variant, **others} for label, of_variant in variants().items()}

    def label(self, settings: Mapping[str, Any]) -> str:
        return str(settings.get("method", DEFAULT_METHOD))

    def prepare(self, epsilon: float, delta: float, settings: Mapping[str, Any]) -> Prepared:
        plan = selection_plan(epsilon, delta, settings)
        return functools.partial(_selected, plan)


def _selected(plan: SelectionPlan, data: PairData, repetition: Repetition) -> Outcome:
    blocks = data.blocks(repetition, plan.program.cap)
    released = run_blocks(plan.program, blocks, Keys(repetition.key))
    return released_items(data, data.positions(released.items))


def released_items(data: PairData, positions: np.ndarray) -> Outcome:
    """An outcome of positions, -1 for an item that nobody holds."""
    return Outcome(positions[positions >= 0], int((positions < 0).sum()))


def selection_plan(epsilon: float, delta: float, settings: Mapping[str, Any]) -> SelectionPlan:
    """The plan of a selection.

    Raises:
      InputError: naming the setting.
    """
    arguments: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()
    }
    with naming_arguments():
        return make_plan(SelectionConfig(epsilon, delta, **arguments))


def whole(settings: Mapping[str, Any], name: str, low: int, high: int) -> int:
    """A setting that must be given, a whole number.

    Raises:
      InputError: naming it.
    """
    if name not in settings:
        raise SettingError(f"{name} is missing")
    with naming_arguments():
        check_range(name, settings[name], low, high, integer=True)
    return int(settings[name])
