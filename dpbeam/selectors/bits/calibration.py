"""Which sequences the coins of bits follow: the fastest that a budget allows.

For one Renyi order the divergences of a round's steps are all equal to its share of the budget, and of the orders and
splits of delta that are tried the one counts whose last round releases an item of the fewest users with probability
1/2. All of it is public; what the sequences cost is not believed but recomputed by the accountant.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpbeam.accounting.accountant import account
from dpbeam.accounting.budget import split_amount
from dpbeam.accounting.coins import CoinCurve, pure_curve, renyi_curve
from dpbeam.accounting.events import BernoulliEvent, ComposedEvent
from dpbeam.accounting.limits import half_limit_users
from dpbeam.accounting.renyi import ORDERS, likely_order, lowest, renyi_budget
from dpbeam.accounting.tables import MAX_STEPS, NoTableError
from dpbeam.errors import InputError, param

_NOVEL_SHARES = (0.3, 0.4, 0.5)  # of delta, for items of a single user
_GRIDS = (16, 8, 4)  # steps of a table in a weight of 1, the first that keeps tables short
_LONGEST = 30_000
_SAFE = 1.0 - 1e-9  # of the budget, for rounding


@dataclass(frozen=True)
class CoinRound:
    """One round.

    Attributes:
      curve: of its coins.
      moves: (n, s) pairs, n increasing: a user of at most n items gives each s steps of the curve's table.
    """

    curve: CoinCurve
    moves: tuple[tuple[int, int], ...]

    @property
    def items(self) -> int:
        """D0."""
        return self.moves[-1][0]

    def event(self, number: int, label: str = "") -> BernoulliEvent:
        moves = self.moves if self.curve.grid > 1 else ()
        return BernoulliEvent(self.curve.corners, self.items, number, label, self.curve.start, moves)


def calibrate_bits(
    epsilon: float, delta: float, shares: Sequence[float], items: Sequence[int], full: int
) -> tuple[CoinRound, ...]:
    """The rounds, for (epsilon, delta) in total.

    Args:
      shares: of the rounds, in the budget; sum 1.
      items: D0 of each round.
      full: users of at most so many items give each a weight of 1.

    Raises: InputError where no sequence fits a table.
    """
    return _calibrate(epsilon, delta, tuple(shares), tuple(items), full)


@functools.lru_cache(maxsize=64)
def _calibrate(
    epsilon: float, delta: float, shares: tuple[float, ...], items: tuple[int, ...], full: int
) -> tuple[CoinRound, ...]:
    text = f"{param('epsilon')} ({epsilon:g}) and {param('delta')} ({delta:g}) need"
    counts = 2 * half_limit_users(epsilon, delta)  # of the fastest release there is, about
    if counts > MAX_STEPS:
        raise InputError(
            f"{text} noise over {counts:.3g} counts, more than the {MAX_STEPS} of a table; raise one of them"
        )
    if items == (1,):  # the best there is
        return _checked((CoinRound(pure_curve(epsilon * _SAFE, delta * _SAFE), ((1, 1),)),), epsilon, delta)
    slowest = _Slowest(epsilon, delta, shares[-1], items[-1], min(full, items[-1]))
    start = int(np.argmin(np.abs(ORDERS - 1 - likely_order(epsilon, delta))))
    order = lowest(lambda at: slowest.users(at, _NOVEL_SHARES[1]), start, len(ORDERS))
    share, order = min(
        ((share, at) for share in _NOVEL_SHARES for at in (order - 1, order, order + 1)),
        key=lambda pair: slowest.users(pair[1], pair[0]),
    )
    budget, novel = slowest.amounts(order, share)
    if budget <= 0 or slowest.users(order, share) == math.inf:
        raise InputError(f"{text} {slowest.refused or 'finer coins than there are'}; raise one of them")
    parts = zip(split_amount(budget, shares), split_amount(novel, shares), items)
    alpha = float(ORDERS[order])
    long = 4 * slowest.users(order, share)
    grid = next(grid for grid in _GRIDS if grid * long <= _LONGEST or grid == _GRIDS[-1])
    rounds = tuple(_round(alpha, part, first, most, full, grid) for part, first, most in parts)
    return _checked(rounds, epsilon, delta)


def _round(alpha: float, budget: float, novel: float, items: int, full: int, grid: int) -> CoinRound:
    """A round whose divergence of order alpha is at most `budget` for users of any number of items up to `items`."""
    full = min(full, items)
    while full < items:
        fine = renyi_curve(alpha, budget / full, novel / items).refined(grid)
        moves: dict[int, int] = {}  # the most items for each number of steps
        for steps in range(grid, 0, -1):
            most = full if steps == grid else min(items, int(budget / fine.divergence(alpha, steps)))
            if most > max(moves.values(), default=0):
                moves[steps] = most
        reached = max(moves.values())
        if reached == items:
            return CoinRound(fine, tuple((most, steps) for steps, most in moves.items()))
        full = min(
            items, math.ceil(1.02 * full * items / reached)
        )  # too few steps for users of so many items
    return CoinRound(renyi_curve(alpha, budget / items, novel / items), ((items, 1),))


class _Slowest:
    """Users that the last round needs for an even chance, by order and share of delta for novel items."""

    def __init__(self, epsilon: float, delta: float, share: float, items: int, full: int):
        self._epsilon, self._delta, self._share = epsilon, delta, share
        self._items, self._full = items, full
        self._users_needed: dict[tuple[int, float], float] = {}
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
        if place not in self._users_needed:
            self._users_needed[place] = self._users(order, novel_share)
        return self._users_needed[place]

    def _users(self, order: int, novel_share: float) -> float:
        budget, novel = (amount * self._share for amount in self.amounts(order, novel_share))
        if budget <= 0:
            return math.inf
        try:
            return renyi_curve(float(ORDERS[order]), budget / self._full, novel / self._items).law.threshold
        except NoTableError as error:
            self.refused = str(error)
            return math.inf


def _checked(rounds: tuple[CoinRound, ...], epsilon: float, delta: float) -> tuple[CoinRound, ...]:
    """The rounds, if the accountant agrees.

    Raises: ArithmeticError where it does not.
    """
    events = tuple(row.event(number) for number, row in enumerate(rounds, start=1))
    if account(ComposedEvent("renyi", events, epsilon=epsilon)).delta > delta:
        raise ArithmeticError("the coins exceed their delta")
    return rounds
