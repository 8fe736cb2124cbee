"""Searches: the largest parameter that a budget allows, the smallest number of users that is enough."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

ResultT = TypeVar("ResultT")


def largest_fitting(
    fits: Callable[[float], ResultT | None],
    low: float,
    high: float,
    fitted: ResultT | None = None,
    steps: int = 50,
) -> tuple[float, ResultT | None]:
    """Bisects for the largest parameter in [low, high) that fits.

    Args:
      fits: what a parameter gives, None where it does not fit; what is above one that does not fit does not either.
      fitted: what `low` gives.
      steps: halvings of the interval.

    Returns:
      (parameter, what it gives): `low` and `fitted` where none above it fits.
    """
    for _ in range(steps):
        middle = (low + high) / 2
        got = fits(middle)
        if got is None:
            high = middle
        else:
            low, fitted = middle, got
    return low, fitted


def users_for(probability: float, chance: Callable[[int], float], most: float = 1 << 60) -> int | None:
    """Smallest number of users with chance(users) >= probability; None if none is found up to about `most`."""
    high = 1
    while chance(high) < probability:
        high *= 2
        if high > most:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if chance(middle) >= probability else (middle, high)
    return high
