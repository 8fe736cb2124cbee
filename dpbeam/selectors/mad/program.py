"""MAD and MAD2R (Chen et al. 2025) as programs of two and four trips."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from dpbeam.accounting.noise import L2, NoiseSpec
from dpbeam.accounting.threshold import ReleaseTest
from dpbeam.engine.program import Exact, Keys, Program, Reply, ReplyColumn, Touches, Weighed, with_state
from dpbeam.kernels.columns import Columns
from dpbeam.kernels.csr import Csr, uniform_weights
from dpbeam.kernels.grid import UNITS, public_grid, uniform_l2_units
from dpbeam.kernels.pairs import Block
from dpbeam.kernels.shards import Shard
from dpbeam.selectors.floor import USERS
from dpbeam.selectors.mad.kernels import (
    FRACTION_BITS,
    MadTables,
    excess_ratio,
    initial_sums,
    second_sums,
    total_weight,
)
from dpbeam.selectors.mad.weights import user_weights
from dpbeam.selectors.uniform.program import cross, sample_mask

BIAS_ONE = (
    1 << 15
)  # biases travel as multiples of 2^-15; they are functions of released history, so any rounding is fine
_RATIO = ReplyColumn(np.int64, 0)
_BIAS = ReplyColumn(np.uint16, BIAS_ONE)


@dataclass(frozen=True)
class MadRound:
    """Public numbers of one round of MAD.

    Attributes:
      noise, threshold: Gaussian noise and release threshold of the round.
      tables: constants of the rerouting.
    """

    noise: NoiseSpec
    threshold: float
    tables: MadTables

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise."""
        return self.noise.deviation


class MadProgram(Program):
    """MAD without biases: initial weights out, excess ratios back, final weights out.

    Args:
      round: sigma, threshold, tables (b_min = 1).
      max_items: D0.
      count_users: send how many users hold each item too, for a floor on users.
    """

    trips = 2
    norm = L2

    def __init__(self, *, round: MadRound, max_items: int, count_users: bool = False):
        self.reply_columns = {0: {"ratio": _RATIO}}
        self.round = round
        self.cap = max_items
        self.count_users = count_users
        self.weight_grid = public_grid(round.sigma)
        self._table = uniform_l2_units(max_items)

    def sum_names(self, trip: int) -> tuple[str, ...]:
        return (*mad_sum_names(trip), *([USERS] if self.count_users and trip == 1 else []))

    def noise(self, trip: int) -> NoiseSpec | None:
        return self.round.noise if trip == 1 else None

    def release_test(self, trip: int) -> ReleaseTest | None:
        return ReleaseTest(self.round.threshold) if trip == 1 else None

    def exact(self, trip: int, shard: Shard) -> Exact:
        return mad_exact(shard, self.round.tables)

    def weigh(self, trip: int, block: Block, reply: Reply, keys: Keys) -> Weighed:
        rows = Csr(block.offsets, block.links)
        if trip == 0:
            return {"initial": initial_sums(rows, self.round.tables, block.num_items)}, None
        direct = partial(uniform_weights, table=self._table)
        sums = mad_second(second_sums(rows, self.round.tables, direct, reply["ratio"], block.num_items))
        return {**sums, **users_of(rows, block.num_items, self.count_users)}, None

    def reply(self, trip: int, shard: Shard) -> tuple[Shard, dict[str, np.ndarray]]:
        return mad_reply(shard, self.round.tables)

    def threshold(self, trip: int, shard: Shard) -> Shard:
        return cross(shard, self.round.threshold)


class Mad2rProgram(Program):
    """MAD2R: a round of MAD, then a round of MAD with biases learnt from the first round's noisy weights.

    Args:
      first, second: the two rounds; the first round's tables have b_min = 1.
      max_items: D0 of each round's sample.
      b_min, b_max: bounds on the second round's biased weights.
      lower_confidence, upper_confidence: C_lb, C_ub, in standard deviations of the first round's noise.
      pool: items kept per user if the second round samples afresh; None: one sample for both rounds.
      floor: the weight that a floor on users takes off every item, None: there is no floor.
    """

    trips = 4
    norm = L2

    def __init__(
        self,
        *,
        first: MadRound,
        second: MadRound,
        max_items: int,
        b_min: float,
        b_max: float,
        lower_confidence: float,
        upper_confidence: float,
        pool: int | None = None,
        floor: float | None = None,
    ):
        self.reply_columns = {0: {"ratio": _RATIO}, 1: {"bias": _BIAS}, 2: {"ratio": _RATIO}}
        self.first, self.second = first, second
        self.max_items = max_items
        self.b_min, self.b_max = b_min, b_max
        self.lower_confidence, self.upper_confidence = lower_confidence, upper_confidence
        self.resample, self.floor = pool is not None, floor
        self.cap = max(pool, max_items) if pool is not None else max_items
        self.weight_grid = public_grid(max(first.sigma, second.sigma))
        self._table = uniform_l2_units(max_items)

    def sum_names(self, trip: int) -> tuple[str, ...]:
        return (*mad_sum_names(trip % 2), *([USERS] if self.floor is not None and trip % 2 else []))

    def noise(self, trip: int) -> NoiseSpec | None:
        return self._round(trip).noise if trip % 2 else None

    def release_test(self, trip: int) -> ReleaseTest | None:
        return ReleaseTest(self._round(trip).threshold) if trip % 2 else None

    def _round(self, trip: int) -> MadRound:
        return self.first if trip < 2 else self.second

    def touches(self, trip: int) -> Touches:
        return Touches.of((self.max_items, 1.0))

    def exact(self, trip: int, shard: Shard) -> Exact:
        return mad_exact(shard, self._round(trip).tables)

    def block_state_trip(self, trip: int) -> int | None:
        return 2 if trip == 3 else 0 if trip == 1 and self.resample else None

    def weigh(self, trip: int, block: Block, reply: Reply, keys: Keys) -> Weighed:
        if trip < 2:
            return self._weigh_first(trip, block, reply, keys)
        return self._weigh_second(trip, block, reply, keys)

    def _weigh_first(self, trip: int, block: Block, reply: Reply, keys: Keys) -> Weighed:
        rows, kept = Csr(block.offsets, block.links), None
        if trip == 0:
            if self.resample:
                kept = sample_mask(rows, block, keys.sample(1), self.max_items)
            sums = {"initial": initial_sums(rows, self.first.tables, block.num_items, kept)}
            return sums, None if kept is None else sample_state(kept)
        if self.resample:
            kept = sampled(rows, block.state)
        tables, ratio = self.first.tables, reply["ratio"]
        direct = partial(uniform_weights, table=self._table)
        sums = mad_second(second_sums(rows, tables, direct, ratio, block.num_items, kept))
        return {**sums, **users_of(rows, block.num_items, self.floor is not None, kept)}, None

    def _weigh_second(self, trip: int, block: Block, reply: Reply, keys: Keys) -> Weighed:
        rows, tables = Csr(block.offsets, block.links), self.second.tables
        if trip == 2:
            bias = reply["bias"]
            kept = bias.take(rows.links) > 0
            if self.resample:
                again = sample_mask(rows.restrict(kept), block, keys.sample(2), self.max_items)
                if not again.all():
                    kept[np.flatnonzero(kept)] = again
            sums = {"initial": initial_sums(rows, tables, block.num_items, kept)}
            return sums, {"bias": bias, **sample_state(kept)}
        kept, bias = sampled(rows, block.state), block.state["bias"]

        def direct(part: Csr) -> np.ndarray:
            return user_weights(part, bias.take(part.links) * (1.0 / BIAS_ONE), self.b_min, self.b_max)

        sums = mad_second(second_sums(rows, tables, direct, reply["ratio"], block.num_items, kept))
        return {**sums, **users_of(rows, block.num_items, self.floor is not None, kept)}, None

    def reply(self, trip: int, shard: Shard) -> tuple[Shard, dict[str, np.ndarray]]:
        if trip != 1:
            return mad_reply(shard, self._round(trip).tables)
        return shard, {"bias": self._biases(shard)}

    def _biases(self, shard: Shard) -> np.ndarray:
        """b(i) in multiples of 2^-15; 0 removes an item: released, or hopeless by its own noisy weight.

        Every item has a noisy first-round weight, also one that nobody's sample held: its noise alone. Treating
        such an item otherwise would make the second round depend on who held it.
        """
        noisy = shard.state["noisy"] / UNITS
        lower = noisy - self.lower_confidence * self.first.sigma
        upper = noisy + self.upper_confidence * self.first.sigma
        target, floor = self.second.threshold, self.floor or 0.0  # biases scale what lies below the floor too
        bias = np.where(lower > target, (target + floor) / (np.maximum(lower, target) + floor), 1.0)
        units = np.maximum(np.rint(bias * BIAS_ONE), 1.0).astype(np.uint16)
        removed = shard.state["released"] | (upper < target)
        return np.where(removed, np.uint16(0), units)

    def threshold(self, trip: int, shard: Shard) -> Shard:
        return cross(shard, self._round(trip).threshold)


def sample_state(kept: np.ndarray) -> Columns:
    """Which pairs of its users a block looks at, as a state: a bit for each."""
    return {"sample": np.packbits(kept)}


def sampled(rows: Csr, state: Columns) -> np.ndarray:
    """(pairs,) bool: the pairs that `sample_state` kept."""
    return np.unpackbits(state["sample"], count=len(rows.links)).view(bool)


def users_of(
    rows: Csr, num_items: int, counted: bool, kept: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """Users of every item in the pairs that are `kept`, for a floor; nothing where none is `counted`."""
    if not counted:
        return {}
    ones = np.ones(len(rows.links), np.int64) if kept is None else kept.astype(np.int64)
    return {USERS: rows.item_sums(ones, num_items)}


def mad_sum_names(trip: int) -> tuple[str, ...]:
    """Columns of the first (initial weights) and second (final weights) trip of a MAD round."""
    return ("initial",) if trip == 0 else ("whole", "high", "low")


def mad_second(sums: tuple[np.ndarray, np.ndarray, np.ndarray]) -> dict[str, np.ndarray]:
    """The second trip's message of a block, from its `second_sums`."""
    return dict(zip(mad_sum_names(1), sums))


def mad_reply(shard: Shard, tables: MadTables) -> tuple[Shard, dict[str, np.ndarray]]:
    """Remember the initial weights and return the excess ratios, which are zero for all but heavy items."""
    initial = shard.sums["initial"]
    return with_state(shard, initial=initial), {"ratio": excess_ratio(initial, tables.tau_units)}


def mad_exact(shard: Shard, tables: MadTables) -> Exact:
    """Final weights of a MAD round: truncated initial weights and the second trip's sums."""
    sums = shard.sums
    whole, high, low = (sums[name] for name in mad_sum_names(1))
    weight = total_weight(shard.state["initial"], whole, high, low, tables.tau_units)
    return Exact(*weight, FRACTION_BITS)
