"""Every method with every combination of options, calibrated for small data.

At these budgets thresholds lie between 1 and 9, so that a hundred users release, keep, bias and reroute.
"""

from __future__ import annotations

from collections.abc import Iterable

from dpbeam.engine.program import Program
from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.plan import make_plan
from dpbeam.selectors.registry import variants
from tests.selectors.case import SelectorCase, cases

VARIANTS: dict[str, dict] = {
    name: {"method": method, **settings}
    for method, case in cases().items()
    for name, settings in case.small.items()
}

#: Variants of the registry that run the code of another one with other numbers.
NUMBERS_ALONE = {"gsu2", "gsu4", "gsu16", *(n for n in variants() if n.endswith(("published", "accounting")))}


def of_own_code(names: Iterable[str]) -> list[str]:
    """Those that do not end with one of NUMBERS_ALONE."""
    return [name for name in names if name.split(", ")[-1] not in NUMBERS_ALONE]


def case_of(name: str) -> SelectorCase:
    """The case that a variant belongs to."""
    return cases()[VARIANTS[name]["method"]]


def config(
    name: str, epsilon: float | None = None, delta: float = 0.02, max_items: int = 8
) -> SelectionConfig:
    """Settings of a variant."""
    epsilon = epsilon or case_of(name).epsilon
    settings = {"max_items_per_user": max_items, **VARIANTS[name]}
    if "round_items" in settings:  # they say how many items of a user count
        del settings["max_items_per_user"]
    return SelectionConfig(epsilon, delta, **settings)


def program(name: str, epsilon: float | None = None, delta: float = 0.02, max_items: int = 8) -> Program:
    return make_plan(config(name, epsilon, delta, max_items)).program
