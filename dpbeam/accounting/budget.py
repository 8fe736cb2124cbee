"""The privacy budget of a job, and its division among stages or rounds.

Design. A budget is validated once, where it enters, with messages for the person who typed it. Parts
are rounded down so that their exact sum, in rational arithmetic, never exceeds the whole.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ParamSpec, TypeVar

from dpbeam.accounting.arguments import number, numbers
from dpbeam.errors import InputError, SettingError, constant, param

P = ParamSpec("P")
ResultT = TypeVar("ResultT")
_SHARE_TOLERANCE = 1e-9
#: Above it one run in ten may tell everything of somebody; below it what exact draws leave out, 2^-130 each
#: (docs/explanation/noise.md), would no longer be far less.
MAX_DELTA, MIN_DELTA = 0.1, 1e-30
#: Above it a single user can make an item 22,000 times as likely; no guarantee that anybody would call one.
LARGE_EPSILON = 10.0
#: Large for a thousand users: a tenth of all runs might tell the whole data of one of them.
LARGE_DELTA = 1e-4
#: Of a budget that is split; less is a slip, and below it parts leave the range of floating point.
SMALLEST_SHARE = 1e-9


def _checked_shares(shares: Sequence[float]) -> list[float]:
    """Shares as floats, scaled back to a sum of 1 where rounding took them above it."""
    shares = [float(share) for share in numbers("budget_split", shares, constant)]
    if not shares or not all(math.isfinite(share) and share > 0 for share in shares):
        raise SettingError(f"{constant('budget_split')} needs positive shares such as 0.1,0.9, got {shares}")
    total = math.fsum(shares)
    if abs(total - 1) > _SHARE_TOLERANCE:
        raise SettingError(
            f"{constant('budget_split')} shares must sum to 1, got {shares} with sum {total:.12g}"
        )
    return [share / total for share in shares] if total > 1 else shares


def split_amount(amount: float, shares: Sequence[float]) -> list[float]:
    """amount * share for every share, rounded down; the exact sum of the parts is <= amount.

    Raises: InputError naming budget_split if a share is not positive, the shares do not sum to 1
    within 1e-9, or a part would underflow to 0.
    """
    parts = [amount * share for share in _checked_shares(shares)]
    while sum(map(Fraction, parts), Fraction(0)) > Fraction(amount):
        largest = max(range(len(parts)), key=parts.__getitem__)
        parts[largest] = math.nextafter(parts[largest], 0.0)
    if min(parts) <= 0:
        raise SettingError(
            f"{constant('budget_split')} leaves nothing for one of its parts: give it a larger share"
        )
    return parts


def two_parts(epsilon: float, delta: float, share: float) -> tuple[tuple[float, float], tuple[float, float]]:
    """(epsilon, delta) beside a share of both, and of the share; the parts add up to no more than the whole."""
    epsilons, deltas = (split_amount(amount, [1 - share, share]) for amount in (epsilon, delta))
    return (epsilons[0], deltas[0]), (epsilons[1], deltas[1])


def check_share(name: str, share: float, named: Callable[[str], str] = param) -> None:
    """Refuse what is no share of a budget, or leaves next to nothing for one of two parts.

    Args:
      named: `param`, or `constant` for a constant of a method.

    Raises:
      InputError: naming the flag.
    """
    share = number(name, share, named)
    if not 0 < share < 1:
        raise SettingError(f"{named(name)} must lie strictly between 0 and 1, got {share}")
    if not SMALLEST_SHARE <= share <= 1 - SMALLEST_SHARE:
        raise SettingError(f"{named(name)} leaves next to nothing for one of the parts, got {share}")


def doubts(epsilon: float, delta: float, users: int | None = None) -> list[str]:
    """What a budget is worth where it is legal and worth little, a line each that begins with the name of a setting.

    Args:
      users: how many users there publicly are.
    """
    lines = []
    if epsilon > LARGE_EPSILON:
        lines.append(
            f"epsilon={epsilon:g} protects nobody: one user may change the probability of an output by a factor "
            f"of e^{epsilon:g}; values from 0.1 to {LARGE_EPSILON:g} are usual"
        )
    if users is None and delta > LARGE_DELTA:
        lines.append(
            f"delta={delta:g} is large for more than {int(0.1 / delta)} users: a run may tell the whole data of one of "
            "them; take at most 0.1 / the number of users"
        )
    if users is not None and delta > 1 / users:
        lines.append(
            f"delta={delta:g} is above 1/{users}: releasing the whole data of one user at random would satisfy it; "
            f"take at most {0.1 / users:.1g}"
        )
    return lines


@contextlib.contextmanager
def computable(epsilon: float, delta: float) -> Iterator[None]:
    """Calibration may leave the range of floating point at budgets that mean nothing, as epsilon 1e-300.

    Raises:
      InputError: it has.
    """
    try:
        yield
    except InputError:
        raise
    except (ArithmeticError, ValueError) as error:
        if not isinstance(error, ArithmeticError) and str(error) not in _OUT_OF_RANGE:
            raise
        budget = f"{param('epsilon')}={epsilon:g} and {param('delta')}={delta:g}"
        raise SettingError(
            f"{budget} cannot be calibrated: no noise of that size can be computed with"
        ) from None


_OUT_OF_RANGE = ("math domain error", "math range error")


def calibrates(plan: Callable[P, ResultT]) -> Callable[P, ResultT]:
    """A function whose first argument is a config with a budget, within `computable`."""

    @functools.wraps(plan)
    def guarded(*arguments: P.args, **more: P.kwargs) -> ResultT:
        config: Any = arguments[0]
        with computable(config.epsilon, config.delta):
            return plan(*arguments, **more)

    return guarded


@dataclass(frozen=True)
class Budget:
    """(epsilon, delta) of a whole job.

    Raises: InputError unless epsilon is finite and positive and MIN_DELTA <= delta <= MAX_DELTA (NaN is refused).
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        epsilon = number("epsilon", self.epsilon)
        delta = number("delta", self.delta)
        if not (math.isfinite(epsilon) and epsilon > 0):
            raise SettingError(f"{param('epsilon')} must be a finite number above 0, got {epsilon}")
        if not 0 < delta < 1:
            raise SettingError(f"{param('delta')} must lie strictly between 0 and 1, got {delta}")
        if not MIN_DELTA <= delta <= MAX_DELTA:
            why = ": a run may fail to protect with this probability" if delta > MAX_DELTA else ""
            raise SettingError(
                f"{param('delta')} must lie between {MIN_DELTA:g} and {MAX_DELTA:g}, got {delta}{why}"
            )
        object.__setattr__(self, "epsilon", epsilon)
        object.__setattr__(self, "delta", delta)
