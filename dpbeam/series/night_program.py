"""A night of a series as trips between blocks and shards: many on an engine, one of each in one process.

Trip 0 is the arrival: blocks bring their items, among them those that a night has made known, and hear the scores of
all. Then every round of the night is a trip, as in `SeriesProgram`. What open items have gathered on earlier nights
comes as a block of its own for each shard, which holds the shard's items and has no users: so an item takes part in
every round also where nobody holds it any more, and noise, sums and checks are those of any program.

Every round of the schedule is run, also where nobody brings anything, and every item that was ever held gets its noise.
An item that nobody held before gets the noise of all rounds before: its accumulators are, bit for bit, what they would
be had it been known from the start. It is tested from the night on which it comes.
"""

from __future__ import annotations

import numpy as np

from dpbeam.accounting.threshold import ReleaseTest
from dpbeam.engine.program import (
    ItemNoise,
    Keys,
    Program,
    Reply,
    ReplyColumn,
    Touches,
    Weighed,
    add_noise,
    with_state,
)
from dpbeam.kernels.columns import Columns
from dpbeam.kernels.pairs import Block
from dpbeam.kernels.shards import Shard
from dpbeam.series.counts import SeriesCounts
from dpbeam.series.parts import OpenItems
from dpbeam.series.program import ENERGY, RANK, SeriesProgram
from dpbeam.series.state import ACCUMULATORS, open_items

ARRIVAL = 0
_HELD, _USERS = "held", "users"


class NightProgram(Program):
    """The trips of one night: the arrival, and a trip for each round.

    Args:
      series: the whole window.
      night: from 1.
      counts: what counts the users of released items, where somebody asked for it.
    """

    def __init__(self, series: SeriesProgram, night: int, counts: SeriesCounts | None):
        self.series, self.counts = series, counts
        self.rounds = series.schedule.of_night(night)
        self.trips = 1 + len(self.rounds)
        self.norm, self.cap, self.weight_grid = series.norm, series.cap, series.weight_grid
        column = {"score": ReplyColumn(np.uint16, 0)}
        self.reply_columns = dict.fromkeys(range(self.trips - 1), column)

    def round_of(self, trip: int) -> int:
        """The round of the window, from 0, of a trip after the arrival."""
        return self.rounds[trip - 1]

    def sum_names(self, trip: int) -> tuple[str, ...]:
        if trip != ARRIVAL:
            return ("weight",)
        return (_HELD, *ACCUMULATORS, *(() if self.counts is None else (_USERS,)))

    def touches(self, trip: int) -> Touches:
        return self.series.touches(0)

    def noise(self, trip: int) -> ItemNoise:
        return None if trip == ARRIVAL else self.series.noise(self.round_of(trip))

    def release_test(self, trip: int) -> ReleaseTest | None:
        return None if trip == ARRIVAL else self.series.release_test(self.round_of(trip))

    def block_state_trip(self, trip: int) -> int | None:
        """What users have left after the round before; what they came with stands in the block."""
        return trip - 1 if self.series.saving is not None and trip > ARRIVAL + 1 else None

    def weigh(self, trip: int, block: Block, reply: Reply, keys: Keys) -> Weighed:
        nothing = np.zeros(block.num_items, np.int64)
        gathered = not len(block.user_fp)
        if trip != ARRIVAL:
            if not gathered:
                return self._round(trip, block, reply, keys)
            left = None if self.series.saving is None else {ENERGY: np.zeros(0, np.int64)}
            return {"weight": nothing}, left
        if gathered:
            sums = {name: _bits(np.asarray(block.state[name])) for name in ACCUMULATORS}
            return {_HELD: np.ones_like(nothing), _USERS: nothing, **sums}, None
        return {_HELD: nothing, _USERS: users_of(block), **dict.fromkeys(ACCUMULATORS, nothing)}, None

    def _round(self, trip: int, block: Block, reply: Reply, keys: Keys) -> Weighed:
        return self.series.weigh(self.round_of(trip), block, reply, keys)

    def arrived(self, shard: Shard, keys: Keys) -> dict[str, np.ndarray]:
        """State of a shard after the arrival: what items have gathered, and of new ones the noise of earlier rounds.

        Args:
          keys: draw what was drawn for these items if anybody held them before.
        """
        held = shard.sums[_HELD]
        if len(held) and held.max() > 1:
            raise RuntimeError(f"shard {shard.id} was told twice what its items have gathered")
        accumulators = {name: _numbers(shard.sums[name], kind) for name, kind in ACCUMULATORS.items()}
        new = np.flatnonzero(held == 0)
        if self.rounds.start and len(new):
            late = caught_up(self.series, self.rounds.start, shard.fp[new], keys)
            for name, values in accumulators.items():
                values[new] = late[name]
        state = open_items(accumulators)
        return state if self.counts is None else {**state, _USERS: shard.sums[_USERS]}

    def observe(self, trip: int, shard: Shard, noisy: np.ndarray, present: np.ndarray) -> Shard:
        return self.series.observe(self.round_of(trip), shard, noisy, present)

    def threshold(self, trip: int, shard: Shard) -> Shard:
        return self.series.threshold(self.round_of(trip), shard)

    def reply(self, trip: int, shard: Shard) -> tuple[Shard, dict[str, np.ndarray]]:
        if trip == ARRIVAL:
            return shard, {"score": shard.state["score"]}
        return self.series.reply(self.round_of(trip), shard)

    def end(self, shard: Shard, keys: Keys) -> tuple[OpenItems, Columns]:
        """After the last round: what stays open, and what is released, with fp, items and noisy counts."""
        shard, _ = self.reply(self.trips - 1, shard)
        out = shard.state["released"]
        assert shard.items is not None
        items = OpenItems(shard.fp, shard.items, {name: shard.state[name] for name in ACCUMULATORS})
        released = items.rows(out)
        noisy = np.zeros(len(released.fp), np.int64)
        if self.counts is not None:
            noisy = self.counts.release(shard.state[_USERS][out], released.fp, keys)
        return items.rows(~out), {"fp": released.fp, "items": released.items, "noisy": noisy}


def gathered_block(items: OpenItems, shard: int, num_blocks: int, num_shards: int, kinds: bytes) -> Block:
    """What the open items of a shard have gathered, as a block behind those of the users."""
    return Block(
        id=num_blocks + shard,
        offsets=np.zeros(1, np.int64),
        links=np.zeros(0, np.int32),
        shard_offsets=np.where(np.arange(num_shards + 1) > shard, len(items.fp), 0),
        identity=items.fp,
        user_fp=np.zeros((0, 2), np.uint64),
        items=items.items,
        kinds=kinds,
        state=dict(items.accumulators),
        pair_values={RANK: np.zeros(0, np.int32)},
    )


def users_of(block: Block) -> np.ndarray:
    """(items,) int64: how many users of a block hold each of its items."""
    return np.bincount(block.links, minlength=block.num_items)


def caught_up(program: SeriesProgram, rounds: int, fp: np.ndarray, keys: Keys) -> dict[str, np.ndarray]:
    """Accumulators of items that nobody has held before: the noise of the first `rounds` rounds, one or more.

    Args:
      fp: (items, 2).
    """
    shard = Shard(
        id=0,
        fp=fp,
        block_ids=np.zeros(0, np.int64),
        slot_offsets=np.zeros(1, np.int64),
        slots=np.zeros(0, np.int32),
    )
    for trip in range(rounds):
        shard.sums = {"weight": np.zeros(len(fp), np.int64)}
        shard = add_noise(program, trip, shard, keys)
        # Not tested: nobody held it, so what its noise alone would have crossed is not released.
        shard = with_state(shard, released=np.zeros(len(fp), bool))
        shard, _ = program.reply(trip, shard)
    return {name: shard.state[name] for name in ACCUMULATORS}


def _bits(values: np.ndarray) -> np.ndarray:
    """Numbers as integers that sums of one of them and zeros keep: int64."""
    if values.dtype == np.float64:
        return np.ascontiguousarray(values).view(np.int64)
    return values.astype(np.int64)


def _numbers(sums: np.ndarray, kind: type) -> np.ndarray:
    """Inverse of `_bits`, writable."""
    return sums.view(np.float64).copy() if kind is np.float64 else sums.astype(kind)
