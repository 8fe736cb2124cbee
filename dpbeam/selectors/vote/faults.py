"""Hard neighbouring inputs of the vote, and planted faults that the replay test and the audit must see."""

from __future__ import annotations

from functools import partial

import numpy as np

from dpbeam.engine.program import Program
from dpbeam.selectors.base import Calibration, HardCase, PlantedFault
from dpbeam.selectors.recast import recast
from dpbeam.selectors.vote.program import VoteProgram


class RefuseEverybody(VoteProgram):
    """A crowded item turns all away that ask on this trip, so one more voter costs it the others."""

    def refused(self, slots, per_link, asking, seated):
        return np.where((asking > self.quota - seated)[slots], per_link, 0)


class RefuseTheHopeless(VoteProgram):
    """Elimination: an item with a single vote passes it on, so one more voter brings it two."""

    def refused(self, slots, per_link, asking, seated):
        return np.where((asking + seated < 2)[slots], per_link, 0)


def hard_cases(calibration: Calibration) -> list[HardCase]:
    """Items full to the quota, alone and in a chain that a new vote pushes along; items as the law grows, and ends."""
    quota = calibration.program.quota
    chain = tuple((i, i + 1) for i in range(4) for _ in range(quota))
    longest = len(calibration.program.count_noise.law.cumulative)
    return [
        HardCase("at the quota", ((0, 1),) * quota, (0, 1, 2)),
        HardCase("one below the quota", ((0, 1),) * (quota - 1) + ((0,),), (0, 1)),
        HardCase("a chain of full items", chain, (0, 1)),
        HardCase("where the law ends", ((0,),) * max(1, longest - 2), (0,)),
    ]


def _build(kind: type, calibration: Calibration, case: HardCase) -> Program:
    return recast(calibration.program, kind)


_SETTINGS = {"max_items_per_user": 8, "vote_quota": 3, "vote_trips": 6}
FAULTS = [
    PlantedFault(
        "vote, a crowded item refuses all",
        _SETTINGS,
        partial(_build, RefuseEverybody),
        HardCase("at the quota", ((0, 1), (0, 2), (0, 3)), (0,)),
    ),
    PlantedFault(
        "vote, hopeless items are eliminated",
        _SETTINGS,
        partial(_build, RefuseTheHopeless),
        HardCase("hopeless", ((0, 1), (2, 1)), (0,)),
    ),
]
