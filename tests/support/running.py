"""Running a program in process on lists of pairs."""

from __future__ import annotations

import copy

from dpbeam.engine.in_process import Released
from dpbeam.engine.program import Keys, Program
from dpbeam.randomness import RunKey
from dpbeam.testing.replay import Pair, key, release, watch
from tests.selectors.case import cases
from tests.support.reference import Data, Trace

__all__ = ["key", "names", "recast", "reference_trace", "release", "watch"]


def recast(program: Program, kind: type) -> Program:
    """A copy of `program` whose class is `kind`."""
    other = copy.copy(program)
    other.__class__ = kind
    return other


def names(released: Released) -> set[str]:
    return {item.decode() for item in released.items.to_pylist()}


def reference_trace(method: str, program: Program, pairs: list[Pair], run_key: RunKey) -> Trace:
    """What the slow reference of `method` finds with the public numbers of `program`."""
    return cases()[method].reference(Data(pairs, Keys(run_key)), program)
