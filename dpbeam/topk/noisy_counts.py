"""Noisy counts of the chosen items, with a budget of their own.

One user may hold all k chosen items, so k counts move by 1: sensitivity sqrt(k) in l2 and k in l1, not 1. Two
noises qualify:

- Gaussian of standard deviation sqrt(k) sigma(epsilon, delta);
- Laplace of scale k/epsilon, pure epsilon-DP.

Both are drawn as exact integers on a fine grid (docs/noise.md) and rounded to whole counts after the noise:
counts are integers, so this equals count + rounded noise, and what is released has no low-order bits that could
carry anything (Mironov 2012).

`calibrate` takes the one with the smaller standard deviation: Laplace without delta and for the smallest k (k
<= 8 at epsilon = 1, delta = 1e-6), Gaussian otherwise. Both draw from the keyed function of the item's
fingerprint, so a retry releases the same number. Negative numbers are left as they are: clipping would bias
sums, and a reader can clip.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dpbeam.accounting.events import GaussianEvent, PureEvent
from dpbeam.accounting.gaussian import check_positive, gaussian_sigma
from dpbeam.accounting.noise import NoiseSpec
from dpbeam.randomness import LAWS, KeyedBits, RunKey
from dpbeam.topk.histogram import check_histogram, check_k

_UP = 1 + 1e-12
_FINE_BITS = 30
_LARGEST_BITS = 54  # of a scale on the fine grid; the laws take 2^56


def _fine_bits(scale: float) -> int:
    """How much finer than whole counts the noise is drawn: 30 bits, less where its scale is large."""
    return max(0, min(_FINE_BITS, _LARGEST_BITS - math.frexp(scale)[1]))


@dataclass(frozen=True)
class NoisyCounts:
    """A calibrated release of the counts of at most k items that were chosen before.

    Guarantee: given the choice, `event` under add/remove one user. (Replacing a user moves up to 2 k counts.)

    Attributes:
      noise: "gaussian" or "laplace".
      k: largest number of counts.
      scale: standard deviation of the Gaussian, or k/epsilon of the Laplace noise.
    """

    noise: str
    k: int
    scale: float

    def __post_init__(self) -> None:
        if self.noise not in ("gaussian", "laplace"):
            raise ValueError(f"noise must be 'gaussian' or 'laplace', got {self.noise!r}")
        check_k(self.k)
        check_positive("scale", self.scale)

    @classmethod
    def calibrate(cls, k: int, epsilon: float, delta: float, noise: str | None = None) -> NoisyCounts:
        """The (epsilon, delta)-DP release of k counts; `noise` None takes the one of smaller deviation.

        Raises: ValueError on an argument out of range; Gaussian noise needs delta > 0.
        """
        k = check_k(k)
        laplace = cls("laplace", k, k / check_positive("epsilon", epsilon) * _UP)
        if noise == "laplace" or (noise is None and delta == 0):
            return laplace
        normal = cls("gaussian", k, math.sqrt(k) * gaussian_sigma(epsilon, delta) * _UP)
        if noise is None and laplace.deviation < normal.deviation:
            return laplace
        return normal if noise is None else cls(noise, k, normal.scale)

    @property
    def deviation(self) -> float:
        """Standard deviation of one released count, without its rounding (at most 0.3)."""
        if self.noise == "gaussian":
            return self.scale
        return math.sqrt(2) * self.scale

    @property
    def event(self) -> GaussianEvent | PureEvent:
        """What the release costs, for the ledger."""
        if self.noise == "gaussian":
            return GaussianEvent(self.scale, math.sqrt(self.k), label="noisy counts")
        return PureEvent(self.k / self.scale, label="noisy counts")

    def release(
        self, counts: ArrayLike, fingerprint: ArrayLike, key: RunKey, label: str = "top-k"
    ) -> np.ndarray:
        """Noisy counts of the chosen items.

        Args:
          counts, fingerprint: of the chosen items alone, (q,) and (q, 2), q <= k.
          key, label: as in `cdp_peel`.

        Returns:
          (q,) int64, possibly negative.

        Raises: ValueError naming the argument; more than k counts are refused, their noise would be too
        small.
        """
        counts, fingerprint = check_histogram(counts, fingerprint)
        if len(counts) > self.k:
            raise ValueError(f"counts are {len(counts)}, but the noise was calibrated for k = {self.k}")
        spec = NoiseSpec(self.noise, self.scale)
        bits = _fine_bits(self.scale)
        law = LAWS[self.noise](spec.drawn_scale(1 << bits))
        drawn = law.draw(KeyedBits(key, f"{label}/noisy-counts", fingerprint), len(counts))
        return counts + ((drawn + ((1 << bits) >> 1)) >> bits)
