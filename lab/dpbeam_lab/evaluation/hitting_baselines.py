"""What private user peeling is compared with. NOT PRIVATE: both look at the data beyond any budget.

`greedy` is the algorithm without noise, on every item: exact, since counts are kept up to date, which costs one
pass over the pairs where a lazy evaluation of stale counts would compute many again. `peel_true_union` adds the
noise of a plan but takes the items that somebody holds for public: no valid private algorithm where the domain is
unknown.
"""

from __future__ import annotations

import numpy as np

from dpbeam.hitting.cover import Choose, Cover, peel
from dpbeam.hitting.program import noisy_choice
from dpbeam.kernels.csr import Csr
from dpbeam.randomness import RunKey


def greedy(sets: Csr, num_items: int, k: int) -> np.ndarray:
    """NOT PRIVATE: k times the item that most of the users hold who hold none before; ties to the smaller position.

    Hits at least 1 - 1/e of what k items can (Nemhauser, Wolsey and Fisher 1978).

    Args:
      sets: one row per user, links are items 0..num_items - 1.

    Returns:
      (min(k, num_items),) int64 positions.
    """
    return _peel(sets, num_items, k, lambda number, counts, positions: int(np.argmax(counts)))


def peel_true_union(sets: Csr, fp: np.ndarray, k: int, epsilon0: float, key: RunKey) -> np.ndarray:
    """NOT PRIVATE on an unknown domain: user peeling among all items that somebody holds.

    Args:
      fp: (num_items, 2) uint64, distinct.
      epsilon0: bounded range of a choice.
    """
    return _peel(sets, len(fp), k, noisy_choice(epsilon0, fp, key))


def _peel(sets: Csr, num_items: int, k: int, choose: Choose) -> np.ndarray:
    cover = Cover.restricted(sets, np.arange(num_items))
    return np.array(peel([cover], cover.counts(num_items), k, choose), np.int64)
