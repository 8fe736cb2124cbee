"""Partition selection by the optimal release of each item, after Desfontaines, Voss, Gipson and Mandayam (PETS 2022).

An item of n users is released with probability p_n: p_0 = 0, p_(n+1) = min(1, e^a p_n + b, 1 - e^-a (1 - p_n - b)) with
a = epsilon / D0 and b = delta / D0. A user moves at most D0 numbers of users by one: D0 mechanisms that are
(a, b)-DP each compose to (epsilon, delta). It is what libraries call truncated geometric partition selection.
"""

from __future__ import annotations

import math

from dpbeam.selectors.base import Calibration, Request, RoundPlan, Selector


class Geometric(Selector):
    """Exact numbers of users, and a coin for each item."""

    name = "geometric"
    summary = "the optimal release of each item, the budget split over D0 items"
    variants = {"geometric": {}}  # noqa: RUF012
    default_max_items = 1
    shows_weights = False
    peer_reviewed = True

    def plan(self, request: Request) -> Calibration:
        from dpbeam.accounting.events import ComposedEvent
        from dpbeam.selectors.bits.program import BitsProgram

        from .event import SplitCoinEvent

        most = request.max_items
        epsilon, delta = (math.nextafter(total / most, 0.0) for total in (request.epsilon, request.delta))
        event = SplitCoinEvent(epsilon, delta, most, label=self.name)
        coin = event.noise
        program = BitsProgram(coins=[coin], moves=[((most, 1),)])
        row = RoundPlan(coin, coin.threshold, coin, 1.0, event.outside_delta())
        return Calibration(program, (row,), ComposedEvent("pure", (event,), label=self.name))

    def weight(self, calibration: Calibration, degree: int) -> float:
        return 1.0

    def keep_probability(self, calibration: Calibration, users: int, degree: int) -> float:
        (event,) = calibration.event.parts
        counted = users * min(event.max_items, degree) // degree
        return float(event.noise.law.release_probability(counted))
