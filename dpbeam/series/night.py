"""One night of a series: pairs come in, new items catch up on the noise of earlier rounds, and the night's rounds run.

Every round of the schedule is run, also where nobody brings anything, and every item that was ever held gets its noise.
An item that nobody held before gets the noise of all rounds before: its accumulators are, bit for bit, what they would
be had it been known from the start. It is tested from the night on which it comes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dpbeam.engine.in_process import shard_trip
from dpbeam.engine.program import Keys, add_noise, with_state
from dpbeam.kernels.pairs import Block, rows_at
from dpbeam.kernels.shards import Shard
from dpbeam.series.counts import SeriesCounts
from dpbeam.series.program import SeriesProgram, energy_of
from dpbeam.series.state import ACCUMULATORS, SeriesState


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
    state, new = state.arrived(kept, keys.pairs, program.cap)
    state = _caught_up(program, state, new, keys)
    block, shard = state.block(), state.shard()
    rounds = program.schedule.of_night(night)
    for trip in rounds:
        reply = {} if trip == 0 else {"score": shard.state["score"]}
        sums, left = program.weigh(trip, block, reply, keys)
        if left is not None:
            block.state = left
        shard = shard_trip(program, trip, shard, {0: sums}, keys)
        shard, _ = program.reply(trip, shard)
    noisy = None
    if counts is not None:
        out, holders = np.flatnonzero(shard.state["released"]), users_of(block)
        noisy = np.zeros(len(holders), np.int64)
        noisy[out] = counts.release(holders[out], rows_at(state.item_fp, out), keys)
    if program.saving is not None:
        state = replace(state, energy=energy_of(block))
    return state.after(shard, night, rounds.stop, noisy)


def users_of(block: Block) -> np.ndarray:
    """(items,) int64: how many users of a block hold each of its items."""
    return np.bincount(block.links, minlength=block.num_items)


def _caught_up(program: SeriesProgram, state: SeriesState, new: np.ndarray, keys: Keys) -> SeriesState:
    """The state with the noise of all rounds so far in the accumulators of new items."""
    rows = np.flatnonzero(new)
    if not state.rounds or not len(rows):
        return state
    late = caught_up(program, state.rounds, rows_at(state.item_fp, rows), keys)
    accumulators = {name: values.copy() for name, values in state.accumulators.items()}
    for name in ACCUMULATORS:
        accumulators[name][rows] = late[name]
    return replace(state, accumulators=accumulators)


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
