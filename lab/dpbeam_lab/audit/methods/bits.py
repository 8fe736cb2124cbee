"""Hard neighbouring inputs of bits, and planted faults that the audit must see."""

from __future__ import annotations

import bisect
import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from dpbeam.accounting.coins import CoinNoise
from dpbeam.accounting.tables import ONE, ReleaseLaw
from dpbeam.engine.program import Program
from dpbeam.kernels.grid import UNITS
from dpbeam.kernels.shards import Shard
from dpbeam.selection.plan import SelectionPlan
from dpbeam.selectors.base import Calibration
from dpbeam.selectors.bits.program import BitsProgram
from dpbeam_lab.audit.neighbours import Neighbours, all_novel, unseen
from dpbeam_lab.audit.planted import PlantedFault, Study, recast


def held_by(users: int, items: int) -> Neighbours:
    """A newcomer with `items` items that `users` users each hold, one item a user."""
    others = tuple((item,) for item in range(items) for _ in range(users))
    return Neighbours(f"{items} items of {users} users", others, tuple(range(items)))


def hard_cases(plan: SelectionPlan) -> list[Neighbours]:
    """All items rare, at even odds, common, and one of each; where later rounds sample what earlier ones missed."""
    program = _honest(plan.calibration)
    coins, most = program.coins[-1], program.round_items[-1]
    longest = len(coins.law.cumulative) // coins.grid
    levels = [max(1, coins.law.users_needed(p) // coins.grid) for p in (0.05, 0.5, 0.95)]
    mixed = tuple((item,) for item in range(most - 1) for _ in range(1 + item * longest // most))
    cases = [held_by(users, most) for users in sorted(set(levels))]
    cases.append(Neighbours("items of all levels", mixed, tuple(range(most))))
    return cases + [unseen(most)] * (program.trips > 1)


def _honest(calibration: Calibration) -> BitsProgram:
    assert isinstance(calibration.program, BitsProgram)
    return calibration.program


class _Altered(CoinNoise):
    """Coins by another table than the curve's, stated as if they were by it."""

    table: ReleaseLaw

    @property
    def law(self) -> ReleaseLaw:
        return self.table


Change = Callable[[tuple[int, ...]], Iterable[int]]


def _altered(change: Change) -> Callable[[Calibration, Neighbours], Program]:
    """A build whose tables are `change` of the honest ones."""

    def build(calibration: Calibration, case: Neighbours) -> Program:
        program, coins = copy.copy(_honest(calibration)), []
        for honest in program.coins:
            other = _Altered(honest.curve, honest.round)
            object.__setattr__(other, "table", ReleaseLaw(tuple(change(honest.law.cumulative))))
            coins.append(other)
        program.coins = tuple(coins)
        return program

    return build


def _eager(table: tuple[int, ...]) -> Iterable[int]:
    """p_1 bounded by delta instead of its share for one of 8 items."""
    start = bisect.bisect_left(table, 8 * table[1])
    return (0, *table[start:])


def _one_sided(table: tuple[int, ...]) -> Iterable[int]:
    """p_n jumps from 2/3 to 1: whoever adds a user hardly sees it, whoever removes one does."""
    return (*(p for p in table if 3 * p < 2 * ONE), ONE)


def _at_the_mean(table: tuple[int, ...]) -> Iterable[int]:
    """Every third step is as large as three, the others are free: on average they cost as little as before."""
    return (0, *(table[1 + 3 * (n // 3)] for n in range(len(table) - 4)), ONE)


def _all_items(calibration: Calibration, case: Neighbours) -> Program:
    """Samples of four times D0."""
    program = copy.copy(_honest(calibration))
    program.moves = tuple(tuple((4 * items, steps) for items, steps in moves) for moves in program.moves)
    program.round_items = tuple(4 * items for items in program.round_items)
    program.cap = max(program.cap, *program.round_items)
    return program


class _Scored(BitsProgram):
    """Items that few users hold leave the sets, by the exact count."""

    floor = 9

    def reply(self, trip: int, shard: Shard) -> tuple[Shard, dict[str, np.ndarray]]:
        closed = shard.state["released"] | (shard.sums["weight"] < self.floor * UNITS)
        return shard, {"released": closed.astype(np.uint8)}


def _scored(calibration: Calibration, case: Neighbours) -> Program:
    return recast(calibration.program, _Scored)


_SMALL: Mapping[str, Any] = {"max_items_per_user": 8}
_ONE_ROUND: Mapping[str, Any] = {**_SMALL, "budget_split": (1.0,)}
_TWO_FULL: Mapping[str, Any] = {**_ONE_ROUND, "bits_full_items": 2}


def _all_full(calibration: Calibration, case: Neighbours) -> Program:
    """Users of D0 items give each the weight that two may get."""
    program = copy.copy(_honest(calibration))
    program.moves = tuple(((items, coins.grid),) for items, coins in zip(program.round_items, program.coins))
    return program


_CROWD = Neighbours("one below the score's floor", ((0,),) * 8, (0,))
FAULTS = (
    PlantedFault("bits, first coins of all delta", _SMALL, _altered(_eager), all_novel(8)),
    PlantedFault("bits, divergence in one direction alone", _ONE_ROUND, _altered(_one_sided), held_by(13, 8)),
    PlantedFault("bits, divergence of the mean level", _ONE_ROUND, _altered(_at_the_mean), held_by(9, 8)),
    PlantedFault("bits, samples above D0", _ONE_ROUND, _all_items, held_by(8, 32)),
    PlantedFault("bits, full weights above the bound", _TWO_FULL, _all_full, held_by(6, 8)),
    PlantedFault("bits, hopeless by exact counts", _SMALL, _scored, _CROWD),
)
BITS = Study(FAULTS, hard_cases)
