"""What several runs cost together, from the events of their ledgers.

`account` does the mathematics: the runs become parts of one zCDP composition, of which it takes the best bound that
applies (exact for Gaussian noise alone, pure, or zCDP). Thresholds are recomputed once for each run, and their deltas
added outside, as within a run; what is composed then is noise alone. Safe side: epsilon is rounded up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dpbeam.accounting.accountant import Guarantee, account
from dpbeam.accounting.events import ComposedEvent, UnknownEventError, describe, leaves

_MARGIN = 1e-12  # relative; far above the rounding of sums of deltas


@dataclass(frozen=True)
class Noise:
    """The noise of some runs, and the deltas of their thresholds.

    Attributes:
      event: a zCDP composition of the mechanisms.
      thresholds: sum of the deltas of all thresholds.
    """

    event: ComposedEvent
    thresholds: float

    def delta(self, epsilon: float) -> float:
        """Delta of all runs at an epsilon, rounded up."""
        return min(1.0, (account(self.event, epsilon).delta + self.thresholds) * (1 + _MARGIN))


def noise_of(runs: Iterable[tuple[ComposedEvent, float]]) -> Noise:
    """All runs as one composition.

    Args:
      runs: root of each ledger's events, and the epsilon that the ledger declares.

    Raises: see `account` for each run; UnknownEventError where a run's noise has no zCDP.
    """
    parts: list[ComposedEvent] = []
    thresholds: list[float] = []
    for root, epsilon in runs:
        account(root, epsilon)  # thresholds are believed after this only
        events = leaves(root)
        parts.append(ComposedEvent("zcdp", tuple(leaf for leaf in events if not leaf.is_threshold)))
        thresholds += [leaf.outside_delta() for leaf in events if leaf.is_threshold]
    event = ComposedEvent("zcdp", tuple(parts))
    account(event, 1.0)
    return Noise(event, math.fsum(thresholds))


def zcdp_cost(root: ComposedEvent, epsilon: float) -> tuple[float, float]:
    """(rho, delta) such that a run is delta-approximate rho-zCDP, both rounded up.

    Raises: see `noise_of`.
    """
    noise = noise_of([(root, epsilon)])
    mechanisms = leaves(noise.event)
    rhos = []
    for leaf in mechanisms:
        rho = leaf.zcdp_rho()
        if rho is None:
            raise UnknownEventError(f"{describe(leaf)} has no zCDP")
        rhos.append(rho)
    outside = math.fsum([noise.thresholds, *(leaf.outside_delta() for leaf in mechanisms)])
    return _up(math.fsum(rhos)), _up(outside)


def _up(value: float) -> float:
    return math.nextafter(value, math.inf) if value else 0.0


def tightest(runs: Sequence[tuple[ComposedEvent, float]], delta: float) -> Guarantee | None:
    """The least epsilon at which the accountant shows that all runs together have this delta, rounded up.

    For runs whose settings were fixed beforehand, or depend on public things alone.

    Returns:
      None where no epsilon up to the sum of the runs' own does.

    Raises: see `noise_of`.
    """
    noise = noise_of(runs)
    high = math.fsum(epsilon for _, epsilon in runs)
    if noise.delta(high) > delta:
        return None
    low = 0.0
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        if noise.delta(middle) <= delta:
            high = middle
        else:
            low = middle
    return Guarantee(high, delta)
