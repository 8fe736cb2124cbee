"""The privacy budget of a job, and its division among stages or rounds.

Design. A budget is validated once, where it enters, with messages for the person who typed it. Parts
are rounded down so that their exact sum, in rational arithmetic, never exceeds the whole.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from dpbeam.errors import InputError

_SHARE_TOLERANCE = 1e-9


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InputError(f"{name} must be a number, got {type(value).__name__}")
    return float(value)


def _checked_shares(shares: Sequence[float]) -> list[float]:
    """Shares as floats, scaled back to a sum of 1 where rounding took them above it."""
    shares = [_number("--budget_split", share) for share in shares]
    if not shares or not all(math.isfinite(share) and share > 0 for share in shares):
        raise InputError(f"--budget_split needs positive shares such as 0.1,0.9, got {shares}")
    total = math.fsum(shares)
    if abs(total - 1) > _SHARE_TOLERANCE:
        raise InputError(f"--budget_split shares must sum to 1, got {shares} with sum {total:.12g}")
    return [share / total for share in shares] if total > 1 else shares


def split_amount(amount: float, shares: Sequence[float]) -> list[float]:
    """amount * share for every share, rounded down; the exact sum of the parts is <= amount.

    Raises: InputError naming --budget_split if a share is not positive, the shares do not sum to 1
    within 1e-9, or a part would underflow to 0.
    """
    parts = [amount * share for share in _checked_shares(shares)]
    while sum(map(Fraction, parts), Fraction(0)) > Fraction(amount):
        largest = max(range(len(parts)), key=parts.__getitem__)
        parts[largest] = math.nextafter(parts[largest], 0.0)
    if min(parts) <= 0:
        raise InputError("--budget_split leaves nothing for one of its parts: give it a larger share")
    return parts


@dataclass(frozen=True)
class Budget:
    """(epsilon, delta) of a whole job or of one part of it.

    Raises: InputError unless epsilon is finite and positive and 0 < delta < 1 (NaN is refused).
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        epsilon = _number("epsilon", self.epsilon)
        delta = _number("delta", self.delta)
        if not (math.isfinite(epsilon) and epsilon > 0):
            raise InputError(f"epsilon must be a finite number above 0, got {epsilon}")
        if not 0 < delta < 1:
            raise InputError(f"delta must lie strictly between 0 and 1, got {delta}")
        object.__setattr__(self, "epsilon", epsilon)
        object.__setattr__(self, "delta", delta)

    def split(
        self, shares_epsilon: Sequence[float], shares_delta: Sequence[float] | None = None
    ) -> list[Budget]:
        """Divides the budget for basic composition; the parts never add up to more than the whole.

        Args:
          shares_epsilon: positive shares that sum to 1 within 1e-9.
          shares_delta: the same for delta; `shares_epsilon` where it is None.

        Raises: InputError naming --budget_split on shares that do not qualify.
        """
        shares_delta = shares_epsilon if shares_delta is None else shares_delta
        if len(shares_epsilon) != len(shares_delta):
            raise InputError(
                f"--budget_split needs as many shares of epsilon as of delta, got {len(shares_epsilon)} "
                f"and {len(shares_delta)}"
            )
        epsilons = split_amount(self.epsilon, shares_epsilon)
        deltas = split_amount(self.delta, shares_delta)
        return [Budget(epsilon, delta) for epsilon, delta in zip(epsilons, deltas)]
