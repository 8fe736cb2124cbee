"""Noisy numbers of users for the released items of a selection, with a share of its budget.

After the selection a user adds 1/sqrt(max(D2, m)) to each of its m released items: l2 norm at most 1, whatever m. The
clip D2 follows from a noisy histogram of m (`dpbeam.counts.items_per_user`), and noise N(0, sigma^2) on the sums of all
released items makes counts of standard deviation sqrt(D2) sigma. Users with more than D2 released items count for
less than one; the mean loss, as the noisy histogram shows it, is corrected for, so what is left of the bias is how
items differ in it. D2 keeps it small beside the noise; D2 = d, the number of released items, has none.

Guarantee: privacy unit one user, add/remove one user; beside a Gaussian selection all parts compose exactly as Gaussian
DP, beside others the counts are (epsilon, delta)-DP on their own share (docs/explanation/counts.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpbeam.accounting.accountant import sigma_beside
from dpbeam.accounting.budget import two_parts
from dpbeam.accounting.events import ComposedEvent, GaussianEvent
from dpbeam.accounting.gaussian import check_positive, split_sigma
from dpbeam.accounting.noise import NoiseSpec
from dpbeam.accounting.peeling import check_rounds
from dpbeam.counts import DEVIATION, NOISY_COUNT
from dpbeam.counts.counted import CountedProgram
from dpbeam.counts.items_per_user import BIAS, HISTOGRAM_SHARE, clip_losses
from dpbeam.counts.user_rounds import INSIDE, WAY, WEIGHT, UserRounds
from dpbeam.engine.program import Exact, ItemNoise, Program, with_state
from dpbeam.errors import SettingError, param
from dpbeam.kernels.columns import Columns
from dpbeam.kernels.grid import UNITS
from dpbeam.kernels.shards import Shard

USERS_PER_WEIGHT = "users per weight"
#: In the parameters of a ledger: what a noisy count's deviation is a multiple of.
COUNT_DEVIATION = "noisy_count_sd_per_sqrt_item"


@dataclass(frozen=True)
class CountNoises:
    """Calibrated noise of the counts.

    Attributes:
      sigma: on sums to which one user adds a vector of norm at most 1.
      histogram_sigma: on the histogram of items per user.
      round: number of the histogram's noisy round; that of the sums is the next.
    """

    sigma: float
    histogram_sigma: float
    round: int

    def __post_init__(self) -> None:
        check_positive("sigma", self.sigma)
        check_positive("histogram_sigma", self.histogram_sigma)
        check_rounds(self.round, "round")

    @classmethod
    def calibrate(cls, sigma: float, round: int) -> CountNoises:
        """Both noises for what Gaussian noise of this standard deviation costs at sensitivity 1."""
        sums, histogram = split_sigma(sigma, [1 - HISTOGRAM_SHARE, HISTOGRAM_SHARE])
        return cls(sums, histogram, round)

    @property
    def events(self) -> tuple[GaussianEvent, GaussianEvent]:
        """For the ledger: of the histogram of items per user, and of the counts."""
        return (
            GaussianEvent(self.histogram_sigma, round=self.round, label="items per user"),
            GaussianEvent(self.sigma, round=self.round + 1, label="noisy counts"),
        )

    def clip(self, noisy: np.ndarray, size: int) -> tuple[int, float]:
        """(clip, share of the entries that it loses) of the smallest error, by noisy numbers alone.

        The error of an item of mean count is noise over what is left, and BIAS times its loss.
        """
        best = (self.sigma * math.sqrt(size), size, 0.0)
        lost, entries = clip_losses(noisy, size, self.histogram_sigma)
        for clip, loss in lost.items():
            deviation = self.sigma * math.sqrt(clip) / (1 - loss)
            best = min(best, (math.hypot(deviation, BIAS * loss * entries / size), clip, loss))
        return best[1], best[2]

    def way(self, noisy: np.ndarray, size: int) -> Columns:
        """What the hub announces of the counts of `size` items, for `UserRounds.choose_way`."""
        clip, loss = self.clip(noisy, max(size, 1))
        return {WAY: np.array([clip], np.int64), USERS_PER_WEIGHT: np.array([math.sqrt(clip) / (1 - loss)])}

    def counts(self, noisy: np.ndarray, scale: float) -> tuple[np.ndarray, np.ndarray]:
        """Whole numbers of users, float64 of the shape of the noisy sums, and their standard deviations.

        Args:
          noisy: sums of weights with noise, in units of the grid.
          scale: as announced.
        """
        return np.rint(noisy / UNITS * scale), np.full(len(noisy), self.sigma * scale)


class SummedCounts(UserRounds):
    """A counting program and noisy counts of the items that come of it; a subclass says who adds noise to the sums.

    Args:
      inner: a counted selection, or `CountProgram`; noises: of the counts.
      others: whether users without any of the items are counted too.
    """

    released_names = (NOISY_COUNT, DEVIATION)

    def __init__(self, inner: Program, noises: CountNoises, others: bool = False):
        super().__init__(inner)
        self.noises_of_counts, self.others = noises, others
        self.weight_grid = 1.0
        self.add_rounds()

    @property
    def histogram_noise(self) -> NoiseSpec:
        return NoiseSpec("gaussian", self.noises_of_counts.histogram_sigma, self.noises_of_counts.round)

    def choose_way(self, noisy: np.ndarray, size: int) -> Columns:
        return self.noises_of_counts.way(noisy, size)


class CountingSelection(SummedCounts):
    """A selection whose released items get noisy counts, each in its shard.

    Args:
      selection: what releases; noises, others: see `SummedCounts`.
    """

    def __init__(self, selection: Program, noises: CountNoises, others: bool = False):
        super().__init__(CountedProgram(selection), noises, others)

    def noise(self, trip: int) -> ItemNoise:
        if trip < self.trips - 1:
            return super().noise(trip)
        return NoiseSpec("gaussian", self.noises_of_counts.sigma, self.noises_of_counts.round + 1)

    def exact(self, trip: int, shard: Shard) -> Exact:
        return super().exact(trip, shard) if self.is_first(trip) else Exact(shard.sums[WEIGHT])

    def observe(self, trip: int, shard: Shard, noisy: np.ndarray, present: np.ndarray) -> Shard:
        if self.is_first(trip):
            return super().observe(trip, shard, noisy, present)
        return with_state(shard, noisy=noisy)

    def threshold(self, trip: int, shard: Shard) -> Shard:
        return super().threshold(trip, shard) if self.is_first(trip) else shard

    def released(self, shard: Shard) -> tuple[np.ndarray, np.ndarray]:
        """(items,) bool, and (items, 2) float64: the count, a whole number, and its standard deviation."""
        scale = float(shard.broadcast[USERS_PER_WEIGHT][0])
        return shard.state[INSIDE], np.stack(
            self.noises_of_counts.counts(shard.state["noisy"], scale), axis=1
        )


def count_noises(
    selection: ComposedEvent, epsilon: float, delta: float, share: float
) -> tuple[CountNoises, ComposedEvent]:
    """The noise of the counts beside a calibrated selection, and the event of both.

    Args:
      epsilon, delta: of both together; share: of the counts.

    Raises:
      InputError: the selection leaves nothing.
    """
    gaussian = selection.kind == "gaussian"
    (own_epsilon, _), of_counts = two_parts(epsilon, delta, share)
    if not gaussian:
        epsilon, delta = of_counts
    own = (ComposedEvent("gaussian", selection.parts, label=selection.label),) if gaussian else ()
    sigma = sigma_beside(own, epsilon, delta)
    if sigma is None:
        raise SettingError(f"{param('noisy_count_share')} leaves nothing for the counts: raise it")
    noises = CountNoises.calibrate(sigma, max((spec.round for spec in selection.noises()), default=0) + 1)
    event = ComposedEvent("gaussian", (*own, *noises.events), label=selection.label, epsilon=epsilon)
    if gaussian:
        return noises, event
    first = selection.at(own_epsilon)
    return noises, ComposedEvent("basic", (first, event), label=selection.label)
