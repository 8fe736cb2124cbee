"""What a selector declares for the tests: everything else it inherits from the files beside this one.

A selector of `dpbeam/selectors/<folder>` puts a `CASES` list into `tests/selectors/<folder>/case.py`, one
`SelectorCase` a method; `cases()` finds them through the registry, so a selector without one fails the tests.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dpbeam.engine.program import Program
from dpbeam.selectors.registry import selectors
from tests.support.reference import Data, Trace


@dataclass(frozen=True)
class SelectorCase:
    """How a method is tested.

    Attributes:
      method: name.
      reference: the slow reference: what it finds with the public numbers of a program.
      tolerance: largest difference between the reference's statistic and the program's, in weight.
      small: name -> settings at which a hundred users release, keep, bias and reroute, at D0 = 8 and the epsilon below.
      epsilon: for these.
      tight: variants of the registry on which the audit's statistic reaches 0.7 of the claim.
      statistic: state that the reference describes: "noisy" (in units) or "z" (in weight).
      grid_sigma: standard deviation near 1024 of the public grid's steps; None: of the largest noise of a round.
    """

    method: str
    reference: Callable[[Data, Program], Trace]
    tolerance: float
    small: Mapping[str, Mapping[str, Any]]
    tight: tuple[str, ...]
    epsilon: float = 4.0
    statistic: str = "noisy"
    grid_sigma: Callable[[Program], float] | None = field(default=None)


@functools.cache
def cases() -> dict[str, SelectorCase]:
    """The case of every method of the registry."""
    by_method = {}
    for method, selector in selectors().items():
        folder = type(selector).__module__.split(".")[2]
        module = importlib.import_module(f"tests.selectors.{folder}.case")
        by_method[method] = next(case for case in module.CASES if case.method == method)
    return by_method
