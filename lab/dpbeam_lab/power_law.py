"""A Zipf law, smoothed at the first ranks: a continuous power law bounded to [1, n + 1), rounded down."""

from __future__ import annotations

import numpy as np


def power_law_ranks(uniform: np.ndarray, n: int, exponent: float) -> np.ndarray:
    """Ranks in 0..n-1 of uniform variates in [0, 1): inverse distribution function of the bounded power law."""
    if abs(exponent - 1.0) < 1e-9:
        x = np.exp(uniform * np.log(n + 1.0))
    else:
        power = 1.0 - exponent
        x = ((np.power(n + 1.0, power) - 1.0) * uniform + 1.0) ** (1.0 / power)
    return np.clip(x.astype(np.int64), 1, n) - 1
