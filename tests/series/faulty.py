"""Series with a fault, each of which the audit must refute: how a night is made, and how a user is erased."""

from __future__ import annotations

import dataclasses
from dataclasses import replace

import numpy as np
import pyarrow as pa

from dpbeam.engine.in_process import shard_trip
from dpbeam.engine.program import Keys
from dpbeam.kernels.csr import Csr
from dpbeam.kernels.pairs import rows_at
from dpbeam.selectors.gsu.calibration import calibrate_gsu
from dpbeam.series.config import SeriesPlan
from dpbeam.series.program import RANK, SeriesProgram
from dpbeam.series.state import SeriesState
from tests.series.streams import run_night


class Honest:
    """The product."""

    def program(self, plan: SeriesPlan) -> SeriesProgram:
        return plan.program

    def run(self, program, state: SeriesState, users: pa.Array, items: pa.Array, keys: Keys) -> SeriesState:
        return run_night(program, state, users, items, keys)

    def erase(self, state: SeriesState, users: pa.Array, keys: Keys) -> SeriesState:
        return state.without(users, keys.pairs)


class SetResetEachNight(Honest):
    """D0 new items a night, and not in all."""

    def run(self, program, state, users, items, keys):
        return super().run(program, replace(state, used=np.zeros_like(state.used)), users, items, keys)


class OrderByEventDate(Honest):
    """What comes late has the earliest date: it takes the places of what was there."""

    def run(self, program, state, users, items, keys):
        nothing = np.zeros(0, np.int32)
        state = replace(
            state,
            used=np.zeros_like(state.used),
            offsets=np.zeros_like(state.offsets),
            links=nothing,
            ranks=nothing,
        )
        return super().run(program, state, users, items, keys)


class FreshRanksOnReturn(Honest):
    """No tombstone: an erased user comes back as a new one."""

    def erase(self, state, users, keys):
        erased = super().erase(state, users, keys)
        return replace(erased, used=np.where(np.diff(erased.offsets) > 0, erased.used, 0))


class PresentDegree(SeriesProgram):
    def weigh(self, trip, block, reply, keys):
        rows = Csr(block.offsets, block.links)
        if trip:
            rows = rows.restrict(reply["score"][rows.links] > 0)
        degrees = rows.per_pair(rows.degrees).astype(np.int32)
        block = replace(block, offsets=rows.offsets, links=rows.links, pair_values={RANK: degrees})
        return super().weigh(trip, block, reply, keys)


class CapByPresentDegree(Honest):
    """gsu's caps by degree, of the items that are left."""

    def program(self, plan):
        c, config = plan.calibration, plan.config
        schedule = config.resolved_schedule
        gsu = calibrate_gsu(
            config.epsilon,
            config.delta,
            c.fractions,
            schedule.spending,
            config.delta_share,
            config.max_items_per_user,
            config.cap,
            0.0,
        )
        calibration = dataclasses.replace(c, thresholds=gsu.thresholds, caps=gsu.caps)
        return PresentDegree(calibration, schedule, config.score, config.aims, config.growth)


class EarlierNoiseLeftOut(Honest):
    """A late item starts with nothing, not with the noise of the rounds before."""

    def run(self, program, state, users, items, keys):
        kept = state.kept(users, items, keys.pairs, program.cap, state.night + 1)
        state, new = state.arrived(kept, keys.pairs, program.cap)
        # The score of an item that has seen no round: it counts fully.
        score = state.accumulators["score"].copy()
        score[new] = 65535
        accumulators = {name: values.copy() for name, values in state.accumulators.items()}
        accumulators["score"], accumulators["a"][new] = score, 1e-9
        return _rounds(program, replace(state, accumulators=accumulators), keys)


class CandidatesOnlyWhileHeld(Honest):
    """Items without holders leave, with what erased users gave to them."""

    def erase(self, state, users, keys):
        erased = super().erase(state, users, keys)
        held = np.zeros(len(erased.item_fp), bool)
        held[erased.links] = True
        rows = np.flatnonzero(held)
        return replace(
            erased,
            links=(np.cumsum(held) - 1)[erased.links].astype(np.int32),
            item_fp=rows_at(erased.item_fp, rows),
            items=erased.items.take(pa.array(rows)),
            accumulators={name: values[rows] for name, values in erased.accumulators.items()},
        )


class EmptyRoundSkipped(Honest):
    """No data, no round."""

    def run(self, program, state, users, items, keys):
        if len(users):
            return super().run(program, state, users, items, keys)
        return replace(state, night=state.night + 1)


def _rounds(program, state: SeriesState, keys: Keys) -> SeriesState:
    block, shard, night = state.block(), state.shard(), state.night + 1
    for trip in program.schedule.of_night(night):
        reply = {} if trip == 0 else {"score": shard.state["score"]}
        sums, _ = program.weigh(trip, block, reply, keys)
        shard, _ = program.reply(trip, shard_trip(program, trip, shard, {0: sums}, keys))
    return state.after(shard, night, program.schedule.of_night(night).stop)
