"""Sums of budgets without rounding.

The rule. An amount is the decimal number that was typed: of a double, the shortest decimal that reads back as it, so
ten runs of 0.1 cost 1 and fit a limit of 1, where the ten doubles exceed it by 6e-17. Amounts are added and compared as
fractions, without tolerance. A double and its shortest decimal differ by less than 2^-53 of it, which is below the
tolerance of 1e-12 that every ledger verifies with. What is computed and not typed, as a rho, is moved by one unit in
the last place to the safe side before it becomes an amount: costs up, limits down.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction

Amounts = Mapping[str, Fraction]
"""Exact amounts by name: epsilon and delta, or rho and delta."""


def exact(value: float) -> Fraction:
    """The shortest decimal of a double, exactly."""
    return Fraction(repr(float(value)))


def cost(value: float) -> float:
    """A computed cost, moved up so that its shortest decimal is not below it."""
    return math.nextafter(value, math.inf)


def room(value: float) -> float:
    """A computed limit, moved down so that its shortest decimal is not above it."""
    return math.nextafter(value, 0.0)


def total(parts: Iterable[Amounts], names: Iterable[str]) -> dict[str, Fraction]:
    """Sums by name; a part that lacks a name adds nothing."""
    listed = list(parts)
    return {name: sum((part.get(name, Fraction(0)) for part in listed), Fraction(0)) for name in names}


def text(amount: Fraction) -> str:
    """For people: up to 12 digits."""
    return f"{float(amount):.12g}"


def spell(amounts: Amounts) -> str:
    """For people: 'epsilon 0.5, delta 1e-08'."""
    return ", ".join(f"{name} {text(amount)}" for name, amount in amounts.items())
