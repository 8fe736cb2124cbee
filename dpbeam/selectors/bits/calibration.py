"""Which sequences the coins of bits follow: the fastest that a budget allows.

For one Renyi order the divergences of a round's steps are all equal to its share of the budget, and of the orders and
splits of delta that are tried the one counts whose last round releases an item of the fewest users with probability
1/2. All of it is public; what the sequences cost is not believed but recomputed by the accountant.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np

from dpbeam.accounting.accountant import account
from dpbeam.accounting.budget import split_amount
from dpbeam.accounting.coins import CoinCurve, pure_curve, renyi_curve
from dpbeam.accounting.events import BernoulliEvent, ComposedEvent
from dpbeam.accounting.release import NoTableError
from dpbeam.accounting.renyi import ORDERS, renyi_budget
from dpbeam.errors import InputError

_NOVEL_SHARES = (0.3, 0.4, 0.5)  # of delta, for items of a single user
_SAFE = 1.0 - 1e-9  # of the budget, for rounding


def calibrate_bits(
    epsilon: float, delta: float, shares: Sequence[float], items: Sequence[int]
) -> tuple[CoinCurve, ...]:
    """The curve of each round, for (epsilon, delta) in total.

    Args:
      shares: of the rounds, in the budget; sum 1.
      items: D0 of each round.

    Raises: InputError where no sequence fits a table.
    """
    return _calibrate(epsilon, delta, tuple(shares), tuple(items))


@functools.lru_cache(maxsize=64)
def _calibrate(
    epsilon: float, delta: float, shares: tuple[float, ...], items: tuple[int, ...]
) -> tuple[CoinCurve, ...]:
    if items == (1,):  # the best there is
        return _checked((pure_curve(epsilon * _SAFE, delta * _SAFE),), items, epsilon, delta)
    slowest = _Slowest(epsilon, delta, shares[-1], items[-1])
    start = int(np.argmin(np.abs(ORDERS - 1 - 1.2 * math.log(1 / delta) / epsilon)))
    order = _lowest(lambda at: slowest.users(at, _NOVEL_SHARES[1]), start, len(ORDERS))
    share, order = min(
        ((share, at) for share in _NOVEL_SHARES for at in (order - 1, order, order + 1)),
        key=lambda pair: slowest.users(pair[1], pair[0]),
    )
    budget, novel = slowest.amounts(order, share)
    if budget <= 0 or slowest.users(order, share) == math.inf:
        text = f"--epsilon ({epsilon:g}) and --delta ({delta:g})"
        raise InputError(f"{text} need {slowest.refused or 'finer coins than there are'}; raise one of them")
    parts = zip(split_amount(budget, shares), split_amount(novel, shares), items)
    curves = tuple(
        renyi_curve(float(ORDERS[order]), part / count, first / count) for part, first, count in parts
    )
    return _checked(curves, items, epsilon, delta)


class _Slowest:
    """Users that the last round needs for an even chance, by order and share of delta for novel items."""

    def __init__(self, epsilon: float, delta: float, share: float, items: int):
        self._epsilon, self._delta, self._share, self._items = epsilon, delta, share, items
        self._found: dict[tuple[int, float], float] = {}
        self.refused = ""

    def amounts(self, order: int, novel_share: float) -> tuple[float, float]:
        """The divergence of all rounds, and the probability of novel items."""
        if not 0 <= order < len(ORDERS):
            return 0.0, 0.0
        rest = (1 - novel_share) * self._delta
        budget = renyi_budget(float(ORDERS[order]), self._epsilon, rest)
        return _SAFE * budget, _SAFE * novel_share * self._delta

    def users(self, order: int, novel_share: float) -> float:
        """inf where there is no such sequence."""
        place = order, novel_share
        if place not in self._found:
            self._found[place] = self._users(order, novel_share)
        return self._found[place]

    def _users(self, order: int, novel_share: float) -> float:
        budget, novel = (amount * self._share / self._items for amount in self.amounts(order, novel_share))
        if budget <= 0:
            return math.inf
        try:
            return renyi_curve(float(ORDERS[order]), budget, novel).law.threshold
        except NoTableError as error:
            self.refused = str(error)
            return math.inf


def _lowest(value: Callable[[int], float], start: int, count: int) -> int:
    """Where a function on 0..count - 1 that falls and then rises is lowest, by walking from `start`."""
    while start < count - 1 and value(start) == math.inf:  # orders too low for the budget
        start += 1
    for step in (1, -1):
        while 0 <= start + step < count and value(start + step) < value(start):
            start += step
    return start


def _checked(
    curves: tuple[CoinCurve, ...], items: tuple[int, ...], epsilon: float, delta: float
) -> tuple[CoinCurve, ...]:
    """The curves, if the accountant agrees.

    Raises: ArithmeticError where it does not.
    """
    events = tuple(
        BernoulliEvent(curve.corners, count, round=number)
        for number, (curve, count) in enumerate(zip(curves, items), start=1)
    )
    if account(ComposedEvent("renyi", events, epsilon=epsilon)).delta > delta:
        raise ArithmeticError("the coins exceed their delta")
    return curves
