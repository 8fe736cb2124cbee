"""What the coins of a geometric selection cost."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import ClassVar

from dpbeam.accounting.coins import CoinCurve, CoinNoise
from dpbeam.accounting.events import Event, InconsistentEventError, event
from dpbeam.accounting.gaussian import check_positive


@functools.lru_cache(maxsize=64)
def curve(epsilon: float, delta: float) -> CoinCurve:
    """p_n of an item: a line from (delta, e^epsilon delta + delta) to where both bounds meet, then its mirror image."""
    a, b = epsilon, delta
    while True:
        factor = math.exp(a)
        middle = (1 - b) / (1 + factor)
        made = CoinCurve.through([(b, factor * b + b), (middle, factor * middle + b)])
        if made.single_delta(epsilon) <= delta:
            return made
        a, b = a * (1 - 1e-13), b * (1 - 1e-13)  # roundings of the lines above


@event
@dataclass(frozen=True)
class SplitCoinEvent(Event):
    """Coins that are (epsilon, delta)-DP each in a number of users; one user moves at most `max_items` by one."""

    CHECKED: ClassVar[tuple[str, ...]] = ("epsilon",)

    epsilon: float
    delta: float
    max_items: int
    round: int = 1
    label: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_positive("epsilon", self.epsilon))
        super().__post_init__()
        if self.noise.curve.single_delta(self.epsilon) > self.delta:
            raise InconsistentEventError("the coins exceed their delta")

    @property
    def noise(self) -> CoinNoise:
        """As the program draws it."""
        return CoinNoise(curve(self.epsilon, self.delta), self.round, ((self.max_items, 1),))

    def pure_epsilon(self) -> float:
        return self.max_items * self.epsilon

    def outside_delta(self) -> float:
        return self.max_items * self.delta
