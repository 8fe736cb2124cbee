"""What a run really adds to its sums, held against the law that the program states.

A program inside `Watched` runs as always, on any data and under any keys; its wrapper sees what it gets. Every draw is
turned into a number that is uniform on (0, 1) if the draw has the stated law: of noise on sums from noisy - exact, of
coins from what is shown of a sum, of a hub from what its `Draw` gives. All draws of a round can then be pooled, over
items, keys and data, and two tests hold them against the uniform law: their largest distance from it, and how far into
the tails they reach, which sees a wrong scale with a few hundred draws.

Nothing here calls what draws: a sampler, a label or an engine that errs cannot err on both sides.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from dpbeam.accounting.noise import NoiseSpec
from dpbeam.engine.forwarding import Forwarding
from dpbeam.engine.program import Draw, Program
from dpbeam.kernels.columns import Columns
from dpbeam.kernels.grid import UNITS
from dpbeam.kernels.shards import Shard

ITEMS, HUB = "items", "hub"
Place = tuple[str, int]
_SURE = 0.02


class Drawn:
    """Draws of runs as uniform numbers, by place (`ITEMS` or `HUB`) and number of the round."""

    def __init__(self) -> None:
        # Fills the steps of discrete laws, and has nothing to do with a run's key.
        self._rng = np.random.default_rng(0)
        self._uniform: dict[Place, list[np.ndarray]] = {}

    @property
    def samples(self) -> dict[Place, np.ndarray]:
        """All draws so far, (draws,) float64 each."""
        return {place: np.concatenate(parts) for place, parts in self._uniform.items()}

    def add_items(self, spec: Any, exact: np.ndarray, noisy: np.ndarray) -> None:
        """Noise of a round's items.

        Args:
          spec: what the program states.
          exact, noisy: (items,) int64 units; noisy is 0 or not where bits alone are shown.
        """
        if spec.bits:
            # What is the less likely of shown and not shown gets the small numbers: a wrong scale moves all one way.
            p = np.asarray(spec.tail(spec.threshold - exact / UNITS), np.float64)
            rare, unlikely = np.minimum(p, 1.0 - p), (noisy > 0) == (p <= 0.5)
            # Coins that are nearly sure tell nothing of the scale; what cannot be, much.
            telling = (rare > _SURE) | (unlikely & (rare == 0.0))
            low, high = np.where(unlikely, 0.0, rare), np.where(unlikely, rare, 1.0)
            self._add((ITEMS, spec.round), low[telling], high[telling])
            return
        self.add_noise((ITEMS, spec.round), spec, noisy - exact)

    def add_noise(self, place: Place, spec: Any, noise: np.ndarray) -> None:
        """Noise, (n,) int64 units, of the law that `spec` states."""
        low, high = (np.asarray(spec.tail(steps / UNITS), np.float64) for steps in (noise + 1, noise))
        self._add(place, low, high)

    def _add(self, place: Place, low: np.ndarray, high: np.ndarray) -> None:
        values = low + (high - low) * self._rng.random(len(low))
        self._uniform.setdefault(place, []).append(values)

    def p_values(self) -> dict[Place, float]:
        """How likely draws are as far from the stated law, at most; by place."""
        return {place: uniform_p(values) for place, values in self.samples.items()}

    def fault(self, level: float, stated: Sequence[Any] = ()) -> str:
        """What about the draws is not as stated; empty if nothing is.

        Args:
          level: probability that sound draws are called a fault.
          stated: noise that must have been drawn; a round that nobody saw is a fault.
        """
        p_values = self.p_values()
        for place, p in sorted(p_values.items()):
            if p < level / len(p_values):
                return f"noise of {place[0]} in round {place[1]} is not as stated"
        seen = {number for _, number in p_values}
        missing = sorted(spec.round for spec in stated if spec.round not in seen)
        return f"noise of round {missing[0]} is never drawn" if missing else ""


def uniform_p(values: np.ndarray) -> float:
    """p-value of (n,) independent uniform numbers; at most 1, and below x with probability at most x.

    Twice the smaller of two: the largest distance of the empirical distribution (Dvoretzky, Kiefer and Wolfowitz, with
    Massart's constant), and the sum of -ln(2 min(u, 1 - u)), which has a gamma law.
    """
    n = len(values)
    if not n:
        return 1.0
    ordered = np.sort(values)
    rank = np.arange(n)
    distance = max(float((ordered - rank / n).max()), float(((rank + 1) / n - ordered).max()))
    shape = 2.0 * math.exp(-2.0 * n * distance * distance)
    side = np.minimum(values, 1.0 - values)
    reach = float(-np.log(2.0 * np.maximum(side, 1e-300)).sum())
    scale = 2.0 * min(stats.gamma.cdf(reach, n), stats.gamma.sf(reach, n))
    return float(min(1.0, 2.0 * min(shape, scale)))


class Watched(Forwarding):
    """`inner`, whose draws are written down.

    Args:
      drawn: where to.
    """

    def __init__(self, inner: Program, drawn: Drawn):
        super().__init__(inner)
        self.drawn = drawn

    def observe(self, trip: int, shard: Shard, noisy: np.ndarray, present: np.ndarray) -> Shard:
        self.drawn.add_items(self.noise(trip), self.exact(trip, shard).units, noisy)
        return super().observe(trip, shard, noisy, present)

    def decide(
        self, trip: int, state: Columns, summaries: Sequence[Columns], draw: Draw
    ) -> tuple[Columns, Columns]:
        return super().decide(trip, state, summaries, _WatchedDraw(draw, self.hub_noise(trip), self.drawn))


class _WatchedDraw(Draw):
    """`inner`, whose noise is written down."""

    def __init__(self, inner: Draw, spec: Any, drawn: Drawn):
        vars(self).update(vars(inner))
        self._inner, self._stated, self._drawn = inner, spec, drawn

    @property
    def spent(self) -> tuple[float, ...]:
        return self._inner.spent

    def noisy(self, exact: np.ndarray, fp: np.ndarray) -> np.ndarray:
        noisy = self._inner.noisy(exact, fp)
        self._drawn.add_noise((HUB, self._stated.round), self._stated, noisy - exact)
        return noisy

    def noisy_within(self, share: float, exact: np.ndarray, fp: np.ndarray) -> np.ndarray:
        """The deviation is that of the share that is taken from the filter, whatever was asked for."""
        noisy = self._inner.noisy_within(share, exact, fp)
        deviation = self._stated.sigma * self._stated.sensitivity / math.sqrt(self.spent[-1])
        self._drawn.add_noise((HUB, self._stated.round), NoiseSpec("gaussian", deviation), noisy - exact)
        return noisy


def smallest_seen(seen: Mapping[float, bool]) -> float | None:
    """The smallest factor from which on every larger one is seen; None where the largest is not."""
    best = None
    for factor in sorted(seen, reverse=True):
        if not seen[factor]:
            break
        best = factor
    return best
