"""gauss-rank: the k largest counts by the best of three rankings, chosen by public and noisy numbers alone.

The domain has d items, which are public once a selection has released them; user u holds m_u of them. One budget
mu_2^2 of Gaussian DP pays for a noisy histogram of m_u (a share of 4 %) and for one of three rankings:

- *clip*: user u adds 1/sqrt(max(D2, m_u)) to each of its items: l2 norm at most 1, whatever k and d. With noise of
  standard deviation sigma that ranks counts of deviation sqrt(D2) sigma, at the price of weighing heavy users down.
- *centred*: user u adds 1/sqrt(d) to its items and -1/sqrt(d) to all others: l2 norm 1, no weighing down. Counts times
  2/sqrt(d), but for a number that is the same for every item; deviation sqrt(d) sigma/2 (after Lebeda 2024).
- *Gumbel*: CDP-Peel with the range epsilon_0 for which k choices are (1/sigma)-GDP; deviation 1.2825/epsilon_0.

Guarantee: privacy unit one user, add/remove one user; given the domain and all that was released before, the noisy
histogram is a Gaussian mechanism of sensitivity 1, and whichever ranking follows is (1/sigma)-GDP, so `events` account
for both exactly (docs/explanation/topk.md). Weights are integers of unit 2^-30, rounded down; noise is exact on that
grid.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dpbeam.accounting.events import GaussianEvent, RankEvent
from dpbeam.accounting.gaussian import check_positive, split_sigma
from dpbeam.accounting.noise import NoiseSpec
from dpbeam.accounting.peeling import check_rounds
from dpbeam.accounting.peeling_gdp import gdp_epsilon0
from dpbeam.counts.histogram import check_histogram, check_k, largest_positions
from dpbeam.counts.items_per_user import BIAS, HISTOGRAM_SHARE, clip_losses
from dpbeam.engine.program import Keys
from dpbeam.errors import DataError, param
from dpbeam.kernels.grid import NORM_UNITS
from dpbeam.randomness import RunKey
from dpbeam.topk.peeling import cdp_peel

_GUMBEL_DEVIATION = math.pi / math.sqrt(6)
CENTRED, GUMBEL = 0, -1  # in the place of a clip
_LARGEST_SUM = 1 << 62  # units; a plan leaves as much for the noise


@dataclass(frozen=True)
class GaussRank:
    """A calibrated ranking.

    Attributes:
      k: length of the answer.
      sigma: noise on sums to which a user adds a vector of norm at most 1.
      histogram_sigma: noise on the histogram of items per user.
      epsilon0: range of a choice in the Gumbel ranking.
      round: number of the histogram's noisy round; the ranking's is the next.
    """

    k: int
    sigma: float
    histogram_sigma: float
    epsilon0: float
    round: int = 1
    name: ClassVar[str] = "gauss-rank"
    pure: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", check_k(self.k))
        for name in ("sigma", "histogram_sigma", "epsilon0"):
            object.__setattr__(self, name, check_positive(name, getattr(self, name)))
        check_rounds(self.round, "round")

    @classmethod
    def calibrate(cls, k: int, sigma: float, round: int = 1) -> GaussRank:
        """The ranking that costs as much as Gaussian noise of this standard deviation at sensitivity 1."""
        rank, histogram = split_sigma(sigma, [1 - HISTOGRAM_SHARE, HISTOGRAM_SHARE])
        return cls(check_k(k), rank, histogram, gdp_epsilon0(1 / rank * (1 - 1e-12), k), round)

    @property
    def events(self) -> tuple[GaussianEvent, RankEvent]:
        """For the ledger: of the histogram of items per user, and of the ranking."""
        return (
            GaussianEvent(self.histogram_sigma, round=self.round, label="items per user"),
            RankEvent(self.sigma, self.epsilon0, self.k, round=self.round + 1, label=self.name),
        )

    @property
    def budget(self) -> float:
        """mu of the ranking."""
        return 1.0 / self.sigma

    @property
    def histogram_noise(self) -> NoiseSpec:
        """The noise of the histogram of items per user."""
        return NoiseSpec("gaussian", self.histogram_sigma, self.round)

    @property
    def noise(self) -> NoiseSpec:
        """The noise of the counts that are ranked, at sensitivity 1."""
        return NoiseSpec("gaussian", self.sigma, self.round + 1)

    def at_most(self, d: int) -> GaussRank:
        """The same for min(k, d) items; ValueError if d < 1."""
        return GaussRank(min(self.k, check_k(d)), self.sigma, self.histogram_sigma, self.epsilon0, self.round)

    def deviation(self, way: int, d: int) -> float:
        """Standard deviation, in users, of the counts that are ranked: by a clip, CENTRED or GUMBEL."""
        if way == GUMBEL:
            return _GUMBEL_DEVIATION / self.epsilon0
        return self.sigma * (math.sqrt(d) / 2 if way == CENTRED else math.sqrt(way))

    def choose_way(self, noisy: np.ndarray | None, d: int) -> int:
        """The way of the smallest error: a clip, CENTRED or GUMBEL.

        The error is the noise's standard deviation; of a clip, which weighs users down, that over what is left of the
        counts, and as bias BIAS times the share that is lost of the k-th largest count, taken to be what it is where
        counts fall as 1/rank.

        Args:
          noisy: (len(bucket_edges(d)),) noisy numbers of users; None: no histogram, hence no clip.
          d: items of the domain.
        """
        errors = {way: self.deviation(way, d) for way in (GUMBEL, CENTRED)}
        if noisy is not None:
            lost, entries = clip_losses(noisy, d, self.histogram_sigma)
            largest = entries / (min(self.k, d) * (math.log(d) + np.euler_gamma))
            for clip, loss in lost.items():
                errors[clip] = math.hypot(self.deviation(clip, d) / (1 - loss), BIAS * loss * largest)
        return min(errors, key=lambda way: errors[way])

    def rank(
        self,
        way: int,
        counts: np.ndarray,
        weights: np.ndarray,
        fp: np.ndarray,
        noisy: Callable[[np.ndarray], np.ndarray],
        key: RunKey,
        label: str = "top-k",
    ) -> np.ndarray:
        """(k,) positions in rank order.

        Args:
          way: from `choose_way`.
          counts: (d,) users per item; weights: (d,) clipped sums in units of 2^-30, where the way is a clip.
          fp: (d, 2) fingerprints; noisy: adds the stated noise to (d,) sums in units of 2^-30.
        """
        if way == GUMBEL:
            return cdp_peel(counts, fp, self.k, self.epsilon0, key, f"{label}/{self.name}")
        return largest_positions(noisy(self.sums(way, counts, weights)), fp, self.k)

    def sums(self, way: int, counts: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """(d,) what the noise of a clip, or of CENTRED, is added to, in units of 2^-30.

        For CENTRED one number is left out, the same for every item: half a unit of weight of every user.

        Raises:
          InputError: counts too large for sums of 64 bits with their noise.
        """
        if way > 0:
            return weights
        units = 2 * centred_units(len(counts))
        if counts.max(initial=0) > _LARGEST_SUM // units:
            raise DataError(
                f"{param('mechanism')}=gauss-rank takes counts up to {_LARGEST_SUM // units:,} where there are "
                f"{len(counts):,} items; take another one"
            )
        return units * counts

    def select(
        self, counts: ArrayLike, fingerprint: ArrayLike, key: RunKey, label: str = "top-k"
    ) -> np.ndarray:
        """(k,) positions in rank order where nothing is known but a histogram: centred or Gumbel."""
        counts, fingerprint = check_histogram(counts, fingerprint, self.k)
        way = self.choose_way(None, len(counts))
        noise = Keys(key).noise(self.noise, fingerprint, f"{label}/{self.name}")
        return self.rank(way, counts, counts, fingerprint, lambda sums: sums + noise, key, label)


def centred_units(d: int) -> int:
    """The largest integer x with d x^2 <= 2^60."""
    return math.isqrt(NORM_UNITS // d)
