"""What a planted fault is: a faulty build of a method, and an input that shows it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from dpbeam.engine.program import Program
from dpbeam.selection.plan import SelectionPlan
from dpbeam.selectors.base import Calibration
from dpbeam_lab.audit.neighbours import Neighbours

_P = TypeVar("_P", bound=Program)


@dataclass(frozen=True)
class PlantedFault:
    """A faulty build of a method, for the audit of the audit.

    Attributes:
      name: what is wrong.
      settings: of the method whose claim the build makes, `max_items_per_user` and `epsilon` included.
      build: from the honest calibration and a hard case to the faulty program.
      case: a neighbouring input that shows the fault.
      trials: how many show it.
    """

    name: str
    settings: Mapping[str, Any]
    build: Callable[[Calibration, Neighbours], Program]
    case: Neighbours
    trials: int = 4_000


def _no_cases(plan: SelectionPlan) -> Sequence[Neighbours]:
    return ()


@dataclass(frozen=True)
class Study:
    """What the audit knows of one method, besides what fits every method.

    Attributes:
      faults: builds that it must refute.
      hard_cases: neighbouring inputs that are hard for a plan of the method.
    """

    faults: Sequence[PlantedFault]
    hard_cases: Callable[[SelectionPlan], Sequence[Neighbours]] = _no_cases


def recast(program: Program, kind: type[_P]) -> _P:
    """A copy of `program` whose class is `kind`."""
    other: Any = copy.copy(program)
    other.__class__ = kind
    return cast("_P", other)
