"""Rounds of coins on weights: how many samples hold an item, and how large they are, decides how likely it is released.

A round sends weights and draws coins; released items leave every user's set, and the next round samples afresh. No sum,
noisy or not, is seen by anybody: of a coin the engine shows only whether the item is released.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpbeam.accounting.coins import CoinNoise
from dpbeam.accounting.noise import LINF
from dpbeam.engine.program import (
    Keys,
    Program,
    Reply,
    ReplyColumn,
    Touches,
    Weighed,
    mark_released,
    with_state,
)
from dpbeam.kernels.csr import Csr
from dpbeam.kernels.grid import UNITS
from dpbeam.kernels.pairs import Block
from dpbeam.kernels.shards import Shard
from dpbeam.selectors.uniform.program import sample_rows

Moves = tuple[tuple[int, int], ...]
_REPLY = {"released": ReplyColumn(np.uint8, 0)}


class BitsProgram(Program):
    """R rounds of coins; a user whose sample holds at most n items gives each s steps of the round's table.

    Args:
      coins: one per round.
      moves: the pairs (n, s) of each round, n increasing; the last n is the round's D0.
      pool: items kept per user, of which every round samples its own afresh; None: one sample, for one round.
    """

    norm = LINF
    weight_grid = 1.0

    def __init__(self, *, coins: Sequence[CoinNoise], moves: Sequence[Moves], pool: int | None = None):
        self.coins, self.moves = tuple(coins), tuple(moves)
        self.round_items = tuple(pairs[-1][0] for pairs in self.moves)
        self.trips = len(self.coins)
        self.cap = max(*self.round_items, pool or 0)
        self.reply_columns = dict.fromkeys(range(self.trips - 1), _REPLY)

    def sum_names(self, trip: int) -> tuple[str, ...]:
        return ("weight",)

    def noise(self, trip: int) -> CoinNoise:
        return self.coins[trip]

    def touches(self, trip: int) -> Touches:
        grid = self.coins[trip].grid
        return Touches.of(*((most, steps / grid) for most, steps in self.moves[trip]))

    def weigh(self, trip: int, block: Block, reply: Reply, keys: Keys) -> Weighed:
        rows = Csr(block.offsets, block.links)
        if trip:
            rows = rows.restrict(reply["released"].take(rows.links) == 0)
        rows = sample_rows(rows, block, keys.sample(trip + 1), self.round_items[trip])
        weights = rows.per_pair(self._units(trip, rows.degrees))
        return {"weight": rows.item_sums(weights, block.num_items)}, None

    def _units(self, trip: int, degrees: np.ndarray) -> np.ndarray:
        """What users with samples of these sizes give to each of their items, in units of 2^-30."""
        most, steps = np.array(self.moves[trip], np.int64).T
        return steps[np.searchsorted(most, degrees)] * (UNITS // self.coins[trip].grid)

    def observe(self, trip: int, shard: Shard, noisy: np.ndarray, present: np.ndarray) -> Shard:
        return with_state(shard, noisy=noisy)

    def threshold(self, trip: int, shard: Shard) -> Shard:
        """Nobody's item is never released: p_0 = 0."""
        return mark_released(shard, shard.state["noisy"], shard.state["noisy"] > 0)

    def reply(self, trip: int, shard: Shard) -> tuple[Shard, dict[str, np.ndarray]]:
        return shard, {"released": shard.state["released"].astype(np.uint8)}
