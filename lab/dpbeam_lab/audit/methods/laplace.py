"""Planted faults of weighted Laplace."""

from __future__ import annotations

from dpbeam.engine.program import Program
from dpbeam.kernels.grid import uniform_l2_units
from dpbeam.selectors.base import Calibration
from dpbeam.selectors.uniform.program import UniformProgram
from dpbeam_lab.audit.methods.uniform import one_novel_item
from dpbeam_lab.audit.neighbours import Neighbours, all_novel
from dpbeam_lab.audit.planted import PlantedFault, Study, recast


def _l2_weights(calibration: Calibration, case: Neighbours) -> Program:
    """Weights of Basic, 1/sqrt(d), under noise that protects an l1 norm of 1."""
    program = recast(calibration.program, UniformProgram)
    program._table = uniform_l2_units(program.max_items)
    return program


LAPLACE = Study(
    (
        one_novel_item("laplace"),
        PlantedFault(
            "laplace, weights bounded in l2",
            {"max_items_per_user": 8, "epsilon": 4.0},
            _l2_weights,
            all_novel(8),
        ),
    )
)
