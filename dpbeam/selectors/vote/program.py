"""The vote as a program: votes out, refusals back, noise on the counts of the last trip."""

from __future__ import annotations

import numpy as np

from dpbeam.accounting.geometric import CountNoise
from dpbeam.accounting.noise import L1
from dpbeam.engine.program import (
    Exact,
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
from dpbeam.selectors.vote.kernels import (
    Ballots,
    first_ballots,
    next_ballots,
    refusals,
    seat,
    votes_per_item,
)

_ASK, _STAY = "ask", "stay"
_REFUSED = {"refused": ReplyColumn(np.int64, 0, per_link=True)}


class VoteProgram(Program):
    """One vote per user, transferable for `trips` trips; counts with truncated geometric noise.

    Args:
      noise: of the counts.
      quota: votes that an item seats before it turns others away.
      trips: how often votes may ask; on the last one every item takes all.
      max_items: D0, items on a user's list.
    """

    norm = L1
    weight_grid = 1.0

    def __init__(self, *, noise: CountNoise, quota: int, trips: int, max_items: int):
        self.count_noise, self.quota = noise, quota
        self._threshold_units = noise.law.threshold * UNITS
        self.trips, self.cap = trips, max_items
        self.reply_columns = dict.fromkeys(range(trips - 1), _REFUSED)
        self._latest = trips // 3  # the last trip on which users enter

    def sum_names(self, trip: int) -> tuple[str, ...]:
        return (_ASK, _STAY)

    def noise(self, trip: int) -> CountNoise | None:
        return self.count_noise if trip == self.trips - 1 else None

    def touches(self, trip: int) -> Touches:
        """Others' votes move on with a user's, and in the end one count by one."""
        return Touches.of((1, 1.0))

    def block_state_trip(self, trip: int) -> int | None:
        return trip - 1 if trip else None

    def weigh(self, trip: int, block: Block, reply: Reply, keys: Keys) -> Weighed:
        rows = Csr(block.offsets, block.links)
        if trip == 0:
            ballots, staying = first_ballots(rows, self._latest), np.zeros(0, np.int64)
        else:
            before = Ballots(block.state["place"].astype(np.int64), block.state["asking"])
            ballots, staying = next_ballots(rows, before, reply["refused"], trip, self._latest)
        sums = {
            _ASK: votes_per_item(rows, ballots.place[ballots.asking], block.num_items),
            _STAY: votes_per_item(rows, staying, block.num_items),
        }
        return sums, {"place": ballots.place, "asking": ballots.asking}

    def refused(
        self, slots: np.ndarray, per_link: np.ndarray, asking: np.ndarray, seated: np.ndarray
    ) -> np.ndarray:
        """Votes of each link that are turned away, (links,) int64; for arguments see `refusals`."""
        return refusals(slots, per_link, asking, seated, self.quota)

    def reply(self, trip: int, shard: Shard) -> tuple[Shard, dict[str, np.ndarray]]:
        seated, stayed = _tally(shard)
        asking = shard.sums[_ASK]
        refused = self.refused(shard.slots, shard.per_link[_ASK], asking, seated)
        after = with_state(shard, seated=seat(seated, asking, self.quota), stayed=stayed + shard.sums[_STAY])
        return after, {"refused": refused}

    def exact(self, trip: int, shard: Shard) -> Exact:
        """Votes of every item, in units of 2^-30."""
        seated, stayed = _tally(shard)
        return Exact((seated + stayed + shard.sums[_ASK] + shard.sums[_STAY]) * UNITS)

    def threshold(self, trip: int, shard: Shard) -> Shard:
        """Noise alone never reaches the threshold: `present` only says so once more."""
        noisy = shard.state["noisy"]
        return mark_released(shard, noisy, shard.state["present"] & (noisy >= self._threshold_units))


def _tally(shard: Shard) -> tuple[np.ndarray, np.ndarray]:
    """Votes seated, and votes that stay without a seat, before this trip; (items,) int64 each."""
    none = np.zeros(len(shard), np.int64)
    return shard.state.get("seated", none), shard.state.get("stayed", none)
