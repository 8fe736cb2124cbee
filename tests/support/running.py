"""Running a program in process on lists of pairs."""

from __future__ import annotations

import copy

from dpbeam.engine.in_process import Released, run_in_process
from dpbeam.engine.program import Keys, Program
from dpbeam.randomness import RunKey
from tests.selectors.case import cases
from tests.support.instances import Pair, batches
from tests.support.reference import Data, Trace
from tests.support.watch import Watched


def key(text: str | int = "tests") -> RunKey:
    return RunKey.insecure_fixed(str(text))


def recast(program: Program, kind: type) -> Program:
    """A copy of `program` whose class is `kind`."""
    other = copy.copy(program)
    other.__class__ = kind
    return other


def release(program: Program, pairs: list[Pair], run_key: RunKey, **sizes) -> Released:
    return run_in_process(program, batches(pairs), run_key, **sizes)


def names(released: Released) -> set[str]:
    return {item.decode() for item in released.items.to_pylist()}


def watch(program: Program, pairs: list[Pair], run_key: RunKey, *, history=None, **sizes) -> Watched:
    watched = Watched(program, history)
    release(watched, pairs, run_key, **sizes)
    return watched


def reference_trace(method: str, program: Program, pairs: list[Pair], run_key: RunKey) -> Trace:
    """What the slow reference of `method` finds with the public numbers of `program`."""
    return cases()[method].reference(Data(pairs, Keys(run_key)), program)
