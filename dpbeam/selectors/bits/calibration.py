"""Which sequences the coins of bits follow: the fastest that a budget allows.

For one Renyi order a round's share of the budget is the divergence of a user's whole norm, and a weight costs the share
of its square. Of the orders and splits of delta that are tried the one counts whose last round releases an item of the
smallest weight with probability 1/2. All of it is public; what the sequences cost is not believed but recomputed by the
accountant.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from dpbeam.accounting.accountant import account
from dpbeam.accounting.budget import split_amount
from dpbeam.accounting.coins import CoinCurve, WeightCurve, pure_curve, weight_curve
from dpbeam.accounting.events import BernoulliEvent, ComposedEvent, WeightedBernoulliEvent
from dpbeam.accounting.limits import half_limit_users
from dpbeam.accounting.renyi import ORDERS, lowest, renyi_budget
from dpbeam.accounting.tables import MAX_STEPS, NoTableError
from dpbeam.errors import SettingError, param

_NOVEL_SHARES = (0.3, 0.4, 0.5)  # of delta, for what is set aside
_GRIDS = (32, 16, 8, 4)  # steps of a table in a weight of 1, the first that keeps tables short
_LONGEST = 30_000
_ATTEMPTS, _NEAR = 4, 1e-3  # at a curve of just the divergence that there is
_SAFE = 1.0 - 1e-9  # of the budget, for rounding


@dataclass(frozen=True)
class CoinRound:
    """One round.

    Attributes:
      curve: of its coins.
      moves: (n, s) pairs, n increasing: a user of at most n items gives each s steps of the curve's table.
    """

    curve: CoinCurve | WeightCurve
    moves: tuple[tuple[int, int], ...]

    @property
    def items(self) -> int:
        """D0."""
        return self.moves[-1][0]

    def event(self, number: int, label: str = "") -> BernoulliEvent | WeightedBernoulliEvent:
        """For the ledger: the coin of round `number`."""
        curve = self.curve
        if isinstance(curve, CoinCurve):
            return BernoulliEvent(curve.corners, self.items, number, label)
        return WeightedBernoulliEvent(curve.knots, curve.grid, curve.outside, self.moves, number, label)


@functools.lru_cache(maxsize=64)
def calibrate_bits(
    epsilon: float, delta: float, shares: tuple[float, ...], items: tuple[int, ...], full: int
) -> tuple[CoinRound, ...]:
    """The rounds, for (epsilon, delta) in total.

    Args:
      shares: of the rounds, in the budget; sum 1.
      items: D0 of each round.
      full: users of at most so many items give each a weight of 1.

    Raises: InputError where no sequence fits a table.
    """
    text = f"{param('epsilon')} ({epsilon:g}) and {param('delta')} ({delta:g}) need"
    counts = 2 * half_limit_users(epsilon, delta)  # of the fastest release there is, about
    if counts > MAX_STEPS:
        raise SettingError(
            f"{text} noise over {counts:.3g} counts, more than the {MAX_STEPS} of a table; raise one of them"
        )
    if items == (1,):  # the best there is
        return _checked((CoinRound(pure_curve(epsilon * _SAFE, delta * _SAFE), ((1, 1),)),), epsilon, delta)
    slowest = _Slowest(epsilon, delta, shares[-1], min(full, items[-1]))
    order = lowest(lambda at: slowest.users(at, _NOVEL_SHARES[1]), epsilon, delta)
    share, order = min(
        ((share, at) for share in _NOVEL_SHARES for at in (order - 1, order, order + 1)),
        key=lambda pair: slowest.users(pair[1], pair[0]),
    )
    budget, novel = slowest.amounts(order, share)
    if budget <= 0 or slowest.users(order, share) == math.inf:
        raise SettingError(f"{text} {slowest.refused or 'finer coins than there are'}; raise one of them")
    parts = zip(split_amount(budget, shares), split_amount(novel, shares), items)
    alpha = float(ORDERS[order])
    rounds = tuple(_round(alpha, part, first, most, full) for part, first, most in parts)
    return _checked(rounds, epsilon, delta)


def _round(alpha: float, budget: float, novel: float, items: int, full: int) -> CoinRound:
    """A round of which users of any number of items up to `items` cost (budget, novel) at most, at order alpha."""
    full = min(full, items)
    while full < items:
        long = len(weight_curve(alpha, budget / full, novel / full, 1).law.cumulative)
        grid = next(grid for grid in _GRIDS if grid * long <= _LONGEST or grid == _GRIDS[-1])
        curve = _fitting(alpha, budget / full, novel / full, grid)
        moves: dict[int, int] = {}  # the most items for each number of steps
        for steps in range(grid, 0, -1):
            most = min(int(budget / curve.divergence(alpha, steps)), int(novel / curve.missing(steps)), items)
            most = full if steps == grid else most
            if most > max(moves.values(), default=0):
                moves[steps] = most
        reached = max(moves.values())
        if reached == items:
            return CoinRound(curve, tuple((most, steps) for steps, most in moves.items()))
        full = min(
            items, math.ceil(1.02 * full * items / reached)
        )  # too few steps for users of so many items
    return CoinRound(_fitting(alpha, budget / items, novel / items, 1), ((items, 1),))


def _fitting(alpha: float, divergence: float, outside: float, grid: int) -> WeightCurve:
    """The fastest curve of a divergence, which knots and interpolation leave at most at `divergence`."""
    asked, attempts, best = divergence, 0, None
    while best is None or (attempts <= _ATTEMPTS and best[0] <= 1 - _NEAR):
        curve = weight_curve(alpha, asked, outside, grid)
        used = curve.divergence(alpha, grid) / divergence
        if used <= 1 and (best is None or used > best[0]):
            best = used, curve
        asked /= used * (1 + 0.1 * _NEAR)
        attempts += 1
    return best[1]


class _Slowest:
    """Users that the last round needs for an even chance, by order and share of delta for novel items."""

    def __init__(self, epsilon: float, delta: float, share: float, full: int):
        self._epsilon, self._delta, self._share, self._full = epsilon, delta, share, full
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
            curve = weight_curve(float(ORDERS[order]), budget / self._full, novel / self._full, 1)
            return curve.law.threshold
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
