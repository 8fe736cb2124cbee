"""A program that goes on where another one ends."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dpbeam.accounting.noise import NoiseSpec
from dpbeam.accounting.tables import TableNoise
from dpbeam.engine.program import Exact, Keys, Program
from dpbeam.kernels.columns import Columns
from dpbeam.kernels.pairs import Block
from dpbeam.kernels.shards import Shard


class Extended(Program):
    """All trips of `first`, and trips of its own after them, without sums, noise of items or shards.

    A subclass says how many `trips` there are, and what happens after the last one of `first`.

    Attributes:
      first: the program that comes first; its parts meet nobody.
    """

    def __init__(self, first: Program):
        self.first = first
        self.trips, self.norm, self.cap = first.trips, first.norm, first.cap
        self.weight_grid, self.reply_columns = first.weight_grid, first.reply_columns

    def is_first(self, trip: int) -> bool:
        """Whether the trip is one of `first`."""
        return trip < self.first.trips

    def sum_names(self, trip: int) -> tuple[str, ...]:
        return self.first.sum_names(trip) if self.is_first(trip) else ()

    def noise(self, trip: int) -> NoiseSpec | TableNoise | None:
        return self.first.noise(trip) if self.is_first(trip) else None

    def block_state_trip(self, trip: int) -> int | None:
        return self.first.block_state_trip(trip) if self.is_first(trip) else None

    def weigh(
        self, trip: int, block: Block, reply: Mapping[str, np.ndarray], keys: Keys
    ) -> tuple[dict[str, np.ndarray], Columns | None]:
        return self.first.weigh(trip, block, reply, keys) if self.is_first(trip) else ({}, None)

    def exact(self, trip: int, shard: Shard) -> Exact:
        return self.first.exact(trip, shard)

    def observe(self, trip: int, shard: Shard, noisy: np.ndarray, present: np.ndarray) -> Shard:
        return self.first.observe(trip, shard, noisy, present)

    def threshold(self, trip: int, shard: Shard) -> Shard:
        return self.first.threshold(trip, shard)

    def reply(self, trip: int, shard: Shard) -> tuple[Shard, dict[str, np.ndarray]]:
        return self.first.reply(trip, shard)
