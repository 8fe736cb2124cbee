"""Noisy counts of the chosen items, with a budget of their own.

One user may hold all k chosen items, so k counts move by 1: sensitivity sqrt(k) in l2 and k in l1, not 1. Three
noises qualify, mu = 1/sigma(epsilon, delta):

- correlated: Gaussian noise for every count, and one noise for all of them; standard deviation (1 + sqrt k)/(2 mu) in
  all (Lebeda 2024, "Better Gaussian Mechanism using Correlated Noise"). A user moves all counts that it moves the same
  way, so each by half of what it adds to the number of users, and 1/2 more or less (`CorrelatedGaussianEvent`);
- gaussian: independent, standard deviation sqrt(k)/mu. Up to twice as wide, but errors cancel in sums;
- laplace: independent, scale k/epsilon, pure epsilon-DP.

All are drawn as exact integers on a fine grid (docs/explanation/noise.md) and rounded to whole counts after the noise:
counts are integers, so this equals count + rounded noise, and what is released has no low-order bits that could
carry anything (Mironov 2012). Half a count is a multiple of the grid's step too, as the
proof for correlated noise needs.

`calibrate` takes the one with the smallest standard deviation: Laplace without delta and for the smallest k (k
<= 4 at epsilon = 1, delta = 1e-6), correlated otherwise. Noise is drawn from the keyed function of the item's
fingerprint, the shared one from a key of its own, so a retry releases the same number. Negative numbers are left as
they are: clipping would bias sums, and a reader can clip.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dpbeam.accounting.events import CorrelatedGaussianEvent, GaussianEvent, PureEvent
from dpbeam.accounting.gaussian import check_positive, gaussian_sigma
from dpbeam.accounting.noise import NoiseSpec
from dpbeam.counts.histogram import check_histogram, check_k
from dpbeam.randomness import LAWS, KeyedBits, RunKey

_UP = 1 + 1e-12
_FINE_BITS = 30
_LARGEST_BITS = 54  # of a scale on the fine grid; the laws take 2^56
_SHARED_BLOCK = np.zeros((1, 2), np.uint64)
CORRELATED, GAUSSIAN, LAPLACE = "correlated gaussian", "gaussian", "laplace"


def _fine_bits(scale: float) -> int:
    """How much finer than whole counts the noise is drawn: 30 bits, less where its scale is large."""
    return max(0, min(_FINE_BITS, _LARGEST_BITS - math.frexp(scale)[1]))


@dataclass(frozen=True)
class NoisyCounts:
    """A calibrated release of the counts of at most k items that were chosen before.

    Guarantee: given the choice, `event` under add/remove one user. (Replacing a user moves up to 2 k counts.)

    Attributes:
      noise: "correlated gaussian", "gaussian" or "laplace".
      k: largest number of counts.
      scale: standard deviation of the Gaussian noise of one count, or k/epsilon of the Laplace noise.

    Raises: ValueError on another noise, or correlated noise too wide for a grid that has half counts.
    """

    noise: str
    k: int
    scale: float

    def __post_init__(self) -> None:
        if self.noise not in (CORRELATED, GAUSSIAN, LAPLACE):
            raise ValueError(f"noise must be {CORRELATED!r}, {GAUSSIAN!r} or {LAPLACE!r}, got {self.noise!r}")
        check_k(self.k)
        check_positive("scale", self.scale)
        if self.noise == CORRELATED and _fine_bits(self.scale) < 1:
            raise ValueError(f"scale is {self.scale:.3g}, too wide for correlated noise")

    @classmethod
    def calibrate(cls, k: int, epsilon: float, delta: float, noise: str | None = None) -> NoisyCounts:
        """The (epsilon, delta)-DP release of k counts; `noise` None takes the one of smallest deviation.

        Raises: ValueError on an argument out of range; Gaussian noise needs delta > 0.
        """
        k = check_k(k)
        laplace = cls(LAPLACE, k, k / check_positive("epsilon", epsilon) * _UP)
        if noise == LAPLACE or (noise is None and delta == 0):
            return laplace
        sigma = gaussian_sigma(epsilon, delta)
        wide = math.sqrt(k) * sigma * _UP
        narrow = (1 + math.sqrt(k)) / 2 * sigma * _UP
        if noise is None:
            better = CORRELATED if k > 1 and _fine_bits(narrow) >= 1 else GAUSSIAN
            normal = cls(better, k, narrow if better == CORRELATED else wide)
            return min(laplace, normal, key=lambda release: release.deviation)
        return cls(noise, k, narrow if noise == CORRELATED else wide)

    @property
    def deviation(self) -> float:
        """Standard deviation of one released count, without its rounding (at most 0.3)."""
        return math.sqrt(2) * self.scale if self.noise == LAPLACE else self.scale

    @property
    def parts(self) -> tuple[float, float]:
        """Standard deviations of a count's own noise and of that shared by all; variances are as sqrt(k) to 1."""
        if self.noise != CORRELATED:
            return self.deviation, 0.0
        root = math.sqrt(self.k)
        return self.scale * math.sqrt(root / (1 + root)) * _UP, self.scale / math.sqrt(1 + root) * _UP

    @property
    def event(self) -> CorrelatedGaussianEvent | GaussianEvent | PureEvent:
        """What the release costs, for the ledger."""
        if self.noise == CORRELATED:
            return CorrelatedGaussianEvent(*self.parts, self.k, label="noisy counts")
        if self.noise == GAUSSIAN:
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
        bits = _fine_bits(self.scale)
        drawn = self._draw(KeyedBits(key, f"{label}/noisy-counts", fingerprint), len(counts), bits)
        if self.noise == CORRELATED:
            shared = KeyedBits(key, f"{label}/noisy-counts/shared", _SHARED_BLOCK)
            drawn = drawn + self._draw(shared, 1, bits, part=1)
        return counts + ((drawn + ((1 << bits) >> 1)) >> bits)

    def _draw(self, words: KeyedBits, size: int, bits: int, part: int = 0) -> np.ndarray:
        """(size,) int64 exact noise in units of 2^-bits: a count's own (part 0), or the shared one (part 1)."""
        kind = LAPLACE if self.noise == LAPLACE else GAUSSIAN
        scale = self.parts[part] if self.noise == CORRELATED else self.scale
        return LAWS[kind](NoiseSpec(kind, scale).drawn_scale(1 << bits)).draw(words, size)
