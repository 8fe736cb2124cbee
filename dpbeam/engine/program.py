"""Algorithms as rounds of messages between user blocks and item shards.

A `Program` says what a block sends (`weigh`), what a shard does with the sums (`add_noise`, `threshold`) and
what it sends back (`reply`). It holds public numbers only and knows nothing of where blocks and shards live:
the in-process driver and the Beam engine run the same program.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from dpbeam.kernels.columns import Columns
from dpbeam.kernels.grid import UNITS
from dpbeam.kernels.pairs import Block, PairKeys
from dpbeam.kernels.shards import Shard
from dpbeam.randomness import RunKey, gaussian, prf_bits


class Keys:
    """The derived keys of a run; one label per use, so that no two uses share randomness."""

    def __init__(self, run_key: RunKey):
        self._run_key = run_key
        self.pairs = PairKeys(
            user=run_key.derive("identity/user"),
            item=run_key.derive("identity/item"),
            sample=run_key.derive("sample"),
        )

    def sample(self, round_number: int) -> bytes:
        """Key of the sampling order of a round that samples afresh."""
        return self._run_key.derive(f"sample/round {round_number}")

    def gaussian_noise(self, round_number: int, fp: np.ndarray, sigma: float) -> np.ndarray:
        """N(0, sigma^2) noise of a round for each item fingerprint, (items,) float64."""
        return sigma * gaussian(prf_bits(self._run_key.derive(f"noise/round {round_number}"), fp))


@dataclass(frozen=True)
class ReplyColumn:
    """One column of values that shards send back: its type, and the value that is not worth sending."""

    dtype: type
    default: int


class Program(ABC):
    """One algorithm.

    Attributes:
      trips: how many times blocks send to shards.
      cap: distinct items kept per user when blocks are built.
      weight_grid: spacing of the noisy weights that `released` returns, a public power of two.
      reply_columns: trip -> {name: ReplyColumn} that shards return after that trip; absent: nothing returns.
    """

    trips: int
    cap: int
    weight_grid: float
    reply_columns: Mapping[int, Mapping[str, ReplyColumn]]

    @abstractmethod
    def sum_names(self, trip: int) -> tuple[str, ...]:
        """Names of the integer columns that blocks send on this trip."""

    @abstractmethod
    def weigh(
        self, trip: int, block: Block, reply: Mapping[str, np.ndarray], keys: Keys
    ) -> tuple[dict[str, np.ndarray], Columns | None]:
        """What a block adds to each of its items: {name: (items,) int64}, and state for later trips (None: nothing)."""

    def block_state_trip(self, trip: int) -> int | None:
        """The earlier trip whose block state this trip needs; None where it needs none."""
        return None

    @abstractmethod
    def noise_round(self, trip: int) -> int | None:
        """Number of the noisy round that ends with this trip, counted from 1; None where no noise is added."""

    def add_noise(self, trip: int, shard: Shard, keys: Keys) -> Shard:
        """The shard with its noisy weights in the state; only called where `noise_round` is not None."""
        raise NotImplementedError

    def threshold(self, trip: int, shard: Shard) -> Shard:
        """The shard with released items marked; only called where `noise_round` is not None."""
        raise NotImplementedError

    def reply(self, trip: int, shard: Shard) -> tuple[Shard, dict[str, np.ndarray]]:
        """State to remember, and the values of every item for the blocks that hold it."""
        raise NotImplementedError

    def released(self, shard: Shard) -> tuple[np.ndarray, np.ndarray]:
        """After the last trip: (items,) bool released, and (items,) float64 noisy weight in the releasing round.

        Noisy weights are rounded to a public grid far coarser than floating point, so that low-order bits carry
        nothing (Mironov 2012).
        """
        weight = shard.state["weight"] / UNITS
        return shard.state["released"], np.rint(weight / self.weight_grid) * self.weight_grid


def with_state(shard: Shard, **arrays: np.ndarray) -> Shard:
    """A copy of the shard whose state has these arrays replaced or added."""
    return replace(shard, state={**shard.state, **arrays})


def mark_released(shard: Shard, noisy_units: np.ndarray, crossed: np.ndarray) -> Shard:
    """Release the items that crossed a threshold now and remember their noisy weight; earlier ones stay."""
    before = shard.state.get("released")
    if before is None:
        before = np.zeros(len(shard), bool)
        kept = np.zeros(len(shard), np.int64)
    else:
        kept = shard.state["weight"]
    new = crossed & ~before
    return with_state(shard, released=before | new, weight=np.where(new, noisy_units, kept))
