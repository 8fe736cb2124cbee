"""Planted faults of MAD2R, which the replay test and the audit must see."""

from __future__ import annotations

import numpy as np

from dpbeam.selectors.base import HardCase, PlantedFault
from dpbeam.selectors.mad.program import BIAS_ONE, Mad2rProgram
from dpbeam.selectors.multi_round import unseen
from dpbeam.selectors.recast import recast


class KeepAbsent(Mad2rProgram):
    """An item that nobody gave weight to in the first round is kept with bias one."""

    def _biases(self, shard):
        return np.where(shard.state["present"], super()._biases(shard), np.uint16(BIAS_ONE))


FAULTS = [
    PlantedFault(
        "mad2r, fresh samples, absent item kept",
        {"max_items_per_user": 4, "upper_confidence": 0.0},
        lambda calibration, case: recast(calibration.program, KeepAbsent),
        HardCase(*unseen(4)),
    )
]
