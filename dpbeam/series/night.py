"""One night of a series in one process: the trips of `NightProgram` between one block and one shard."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dpbeam.engine.in_process import link_shards, return_replies, shard_trip
from dpbeam.engine.program import Keys
from dpbeam.kernels.pairs import Block
from dpbeam.series.counts import SeriesCounts
from dpbeam.series.night_program import ARRIVAL, NightProgram, gathered_block
from dpbeam.series.parts import OpenItems, joined, with_released
from dpbeam.series.program import SeriesProgram, energy_of
from dpbeam.series.state import SeriesState, Users, among


def run_kept(
    program: SeriesProgram,
    state: SeriesState,
    kept: Block | None,
    keys: Keys,
    counts: SeriesCounts | None = None,
) -> SeriesState:
    """The state after the next night.

    Args:
      kept: the night's pairs without known items, from `SeriesState.kept`.
      counts: what counts the users of released items, where somebody asked for it.

    Raises:
      ValueError: all nights of the schedule are made.
    """
    night = state.night + 1
    if night > program.schedule.last_night:
        raise ValueError("all nights of the series are made")
    trips = NightProgram(program, night, counts)
    users = Users.of(state).arrived(kept, night, keys.pairs, program.cap)
    own, gathered = (
        users.block(0, 1, state.kinds),
        gathered_block(OpenItems.of(state), 0, 1, 1, state.kinds),
    )
    blocks = [block for block in (own, gathered) if block.num_items]
    shards = link_shards(blocks) if blocks else []
    replies: dict[int, dict[str, np.ndarray]] = {block.id: {} for block in blocks}
    for trip in range(trips.trips):
        sent = {}
        for block in blocks:
            sent[block.id], left = trips.weigh(trip, block, replies[block.id], keys)
            if left is not None:
                block.state = left
        shards = [shard_trip(trips, trip, shard, sent, keys) for shard in shards]
        if trip == ARRIVAL:
            shards = [replace(shard, state=trips.arrived(shard, keys)) for shard in shards]
        if trip < trips.trips - 1:
            shards = return_replies(trips, trip, shards, blocks, replies)
    if program.saving is not None and own.num_items:
        users = replace(users, energy=energy_of(own))
    ends = [trips.end(shard, keys) for shard in shards]
    public = with_released(state.public(), [released for _, released in ends], night, trips.rounds.stop)
    users = users.holding(~among(users.item_fp, public.released_fp))
    return joined(public, [users], [items for items, _ in ends])
