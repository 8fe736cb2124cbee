"""Rounds of coins on counts: how many samples hold an item decides how likely it is released.

A round sends counts and draws coins; found items leave every user's set, and the next round samples afresh. No sum,
noisy or not, is seen by anybody: of a coin the engine shows only whether the item is released.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dpbeam.accounting.coins import CoinNoise
from dpbeam.accounting.noise import LINF
from dpbeam.engine.program import Keys, Program, ReplyColumn, mark_released, with_state
from dpbeam.kernels.columns import Columns
from dpbeam.kernels.csr import Csr
from dpbeam.kernels.grid import UNITS
from dpbeam.kernels.pairs import Block
from dpbeam.kernels.shards import Shard
from dpbeam.selectors.uniform.program import sample_rows

_FOUND = {"found": ReplyColumn(np.uint8, 0)}


class BitsProgram(Program):
    """R rounds of counts and coins; a user adds 1 to at most `round_items[r]` items in round r.

    Args:
      coins: one per round.
      round_items: D0 of each round.
      pool: items kept per user, of which every round samples its own afresh; None: one sample, for one round.
    """

    norm = LINF
    weight_grid = 1.0

    def __init__(self, *, coins: Sequence[CoinNoise], round_items: Sequence[int], pool: int | None = None):
        self.coins, self.round_items = tuple(coins), tuple(round_items)
        self.trips = len(self.coins)
        self.cap = max(*self.round_items, pool or 0)
        self.reply_columns = dict.fromkeys(range(self.trips - 1), _FOUND)

    def sum_names(self, trip: int) -> tuple[str, ...]:
        return ("weight",)

    def noise(self, trip: int) -> CoinNoise:
        return self.coins[trip]

    def weigh(
        self, trip: int, block: Block, reply: Mapping[str, np.ndarray], keys: Keys
    ) -> tuple[dict[str, np.ndarray], Columns | None]:
        rows = Csr(block.offsets, block.links)
        if trip:
            rows = rows.restrict(reply["found"][rows.links] == 0)
        rows = sample_rows(rows, block, keys.sample(trip + 1), self.round_items[trip])
        return {"weight": np.bincount(rows.links, minlength=block.num_items) * UNITS}, None

    def observe(self, trip: int, shard: Shard, noisy: np.ndarray, present: np.ndarray) -> Shard:
        return with_state(shard, noisy=noisy)

    def threshold(self, trip: int, shard: Shard) -> Shard:
        """Nobody's item is never released: p_0 = 0."""
        return mark_released(shard, shard.state["noisy"], shard.state["noisy"] > 0)

    def reply(self, trip: int, shard: Shard) -> tuple[Shard, dict[str, np.ndarray]]:
        return shard, {"found": shard.state["released"].astype(np.uint8)}
