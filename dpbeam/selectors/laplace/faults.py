"""Planted faults of weighted Laplace."""

from __future__ import annotations

from dpbeam.kernels.grid import uniform_l2_units
from dpbeam.selectors.base import Calibration, HardCase, PlantedFault, all_novel
from dpbeam.selectors.recast import recast
from dpbeam.selectors.uniform.faults import one_novel_item


def _l2_weights(calibration: Calibration, case: HardCase):
    """Weights of Basic, 1/sqrt(d), under noise that protects an l1 norm of 1."""
    program = recast(calibration.program, type(calibration.program))
    program._table = uniform_l2_units(program.max_items)
    return program


FAULTS = [
    one_novel_item("laplace"),
    PlantedFault(
        "laplace, weights bounded in l2", {"max_items_per_user": 8, "epsilon": 4.0}, _l2_weights, all_novel(8)
    ),
]
