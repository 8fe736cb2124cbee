"""Planted faults of the examples of extensions are refused, each by the inherited check that its row names."""

import pytest

from tests.support.faults import matrices

MATRICES = matrices()


@pytest.mark.parametrize("matrix", MATRICES, ids=lambda matrix: matrix.of)
def test_the_sound_example_passes(matrix):
    assert matrix.refusal() == ("-", "")


@pytest.mark.parametrize(
    "matrix, fault",
    [
        pytest.param(matrix, fault, id=f"{matrix.of}: {fault.name}")
        for matrix in MATRICES
        for fault in matrix.faults
    ],
)
def test_a_fault_is_refused(matrix, fault):
    assert matrix.refusal(fault.edits)[0] == fault.refused_by
