"""Hard neighbouring inputs of the vote, and planted faults that the replay test and the audit must see."""

from __future__ import annotations

from functools import partial

import numpy as np

from dpbeam.engine.program import Program
from dpbeam.selection.plan import SelectionPlan
from dpbeam.selectors.base import Calibration
from dpbeam.selectors.vote.program import VoteProgram
from dpbeam_lab.audit.neighbours import Neighbours
from dpbeam_lab.audit.planted import PlantedFault, Study, recast


class RefuseEverybody(VoteProgram):
    """A crowded item turns all away that ask on this trip, so one more voter costs it the others."""

    def refused(
        self, slots: np.ndarray, per_link: np.ndarray, asking: np.ndarray, seated: np.ndarray
    ) -> np.ndarray:
        return np.where((asking > self.quota - seated)[slots], per_link, 0)


class RefuseTheHopeless(VoteProgram):
    """Elimination: an item with a single vote passes it on, so one more voter brings it two."""

    def refused(
        self, slots: np.ndarray, per_link: np.ndarray, asking: np.ndarray, seated: np.ndarray
    ) -> np.ndarray:
        return np.where((asking + seated < 2)[slots], per_link, 0)


def hard_cases(plan: SelectionPlan) -> list[Neighbours]:
    """Items full to the quota, alone and in a chain that a new vote pushes along; items as the law grows, and ends."""
    program = plan.calibration.program
    assert isinstance(program, VoteProgram)
    quota = program.quota
    chain = tuple((i, i + 1) for i in range(4) for _ in range(quota))
    longest = len(program.count_noise.law.cumulative)
    return [
        Neighbours("at the quota", ((0, 1),) * quota, (0, 1, 2)),
        Neighbours("one below the quota", ((0, 1),) * (quota - 1) + ((0,),), (0, 1)),
        Neighbours("a chain of full items", chain, (0, 1)),
        Neighbours("where the law ends", ((0,),) * max(1, longest - 2), (0,)),
    ]


def _build(kind: type[VoteProgram], calibration: Calibration, case: Neighbours) -> Program:
    return recast(calibration.program, kind)


_SETTINGS = {"max_items_per_user": 8, "vote_quota": 3, "vote_trips": 6}
FAULTS = (
    PlantedFault(
        "vote, a crowded item refuses all",
        _SETTINGS,
        partial(_build, RefuseEverybody),
        Neighbours("at the quota", ((0, 1), (0, 2), (0, 3)), (0,)),
    ),
    PlantedFault(
        "vote, hopeless items are eliminated",
        _SETTINGS,
        partial(_build, RefuseTheHopeless),
        Neighbours("hopeless", ((0, 1), (2, 1)), (0,)),
    ),
)
VOTE = Study(FAULTS, hard_cases)
