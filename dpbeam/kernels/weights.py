"""What one user adds to its items when all of them count alike."""

from __future__ import annotations

import numpy as np

from dpbeam.kernels.csr import Csr


def uniform_weights(rows: Csr, table: np.ndarray) -> np.ndarray:
    """1/sqrt(d) for each pair, (pairs,) int64 units, from `uniform_l2_units`."""
    return rows.per_pair(table[rows.degrees])
