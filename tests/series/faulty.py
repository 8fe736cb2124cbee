"""Series with a fault, each of which the audit must refute: how a night is made, and how a user is erased."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from unittest import mock

import numpy as np
import pyarrow as pa

from dpbeam.engine.program import Keys
from dpbeam.kernels.csr import Csr
from dpbeam.kernels.pairs import rows_at
from dpbeam.selectors.gsu.calibration import calibrate_gsu
from dpbeam.selectors.gsu.kernels import RELEASED
from dpbeam.series import night_program
from dpbeam.series.config import SeriesPlan
from dpbeam.series.program import ENERGY, RANK, SeriesProgram
from dpbeam.series.saved import FULL, Saving, charge
from dpbeam.series.state import SeriesState
from tests.series.streams import run_night
from tests.support.running import recast


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


class EnergyResetEachNight(Honest):
    """What a user has spent counts for the night alone."""

    def run(self, program, state, users, items, keys):
        return super().run(
            program, replace(state, energy=np.full_like(state.energy, FULL)), users, items, keys
        )


class EnergyForgottenOnErasure(Honest):
    """Who comes back may spend all again."""

    def erase(self, state, users, keys):
        erased = super().erase(state, users, keys)
        gone = np.diff(erased.offsets) < np.diff(state.offsets)
        return replace(erased, energy=np.where(gone, FULL, erased.energy))


class EnergyOfTheWrongUser(Honest):
    """New users come between the old ones, whose energies stay where they are."""

    def run(self, program, state, users, items, keys):
        after = super().run(program, state, users, items, keys)
        moved = len(after.energy) > len(state.energy) > 0
        return replace(after, energy=np.roll(after.energy, 1)) if moved else after


class _NextShare(Saving):
    def spend(self, trip, *arguments):
        return super().spend(min(trip + 1, len(self.shares) - 1), *arguments)


class _SharedUnpaid(Saving):
    def spend(self, trip, rows, score, bar, energy, first):
        units, _ = super().spend(trip, rows, score, bar, energy, first)
        alone = np.bincount(rows.links)[rows.links] == 1
        cost = charge(rows.row_sums(np.where(alone, units * units, 0)), self.shares[trip])
        return units, energy - cost


class _NoCharge(Saving):
    def spend(self, *arguments):
        self.rows, self.units = arguments[1], super().spend(*arguments)[0]
        return super().spend(*arguments)


class _OthersEnergy(Saving):
    def room(self, trip, energy, first):
        return super().room(trip, energy, first) * (0.5 + 0.5 * float(np.mean(energy / FULL)))


class WithSaving(Honest):
    """The rule of saving is another one."""

    saving: type[Saving]

    def program(self, plan):
        program = plan.program
        s = program.saving
        program.saving = self.saving(s.fractions, s.nights, s.bonus)
        return program


class ShareOfAnotherRound(WithSaving):
    """A round takes what the next one should."""

    saving = _NextShare


class SharedItemsUnpaid(WithSaving):
    """Only what goes to items that nobody else holds is paid."""

    saving = _SharedUnpaid


class RoomByOthers(WithSaving):
    """What a user may give depends on what others have left."""

    saving = _OthersEnergy


class ReleasedUnpaid(WithSaving):
    """What went to an item that takes part no more is given back, in the night's later rounds."""

    saving = _NoCharge

    def program(self, plan):
        return recast(super().program(plan), _GivesBack)


class _GivesBack(SeriesProgram):
    def weigh(self, trip, block, reply, keys):
        before = self.saving
        if ENERGY in block.state and len(before.rows.links):
            out = reply["score"][before.rows.links] <= RELEASED
            back = charge(before.rows.row_sums(np.where(out, before.units**2, 0)), before.shares[trip - 1])
            energy = np.array(block.state[ENERGY])
            energy[self.there] += back
            block.state = {ENERGY: energy}
        degrees = np.diff(block.offsets)
        if trip:
            kept = reply["score"][block.links] > RELEASED
            degrees = Csr(block.offsets, block.links).restrict(kept).degrees
        self.there = np.flatnonzero(degrees)
        return super().weigh(trip, block, reply, keys)


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
            tuple(c.fractions),
            tuple(schedule.spending),
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
        def nothing(program, rounds, fp, keys):
            # The score of an item that has seen no round: it counts fully.
            count = len(fp)
            gathered = {"z": np.zeros(count), "y": np.zeros(count), "a": np.full(count, 1e-9)}
            return {**gathered, "score": np.full(count, 65535, np.uint16)}

        with mock.patch.object(night_program, "caught_up", nothing):
            return super().run(program, state, users, items, keys)


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
