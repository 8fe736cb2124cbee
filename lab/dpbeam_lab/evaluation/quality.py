"""How good a released set is, measured on the private data. NOT PRIVATE: for experiments and public data only.

Missing mass: Dick, Joseph and Raman 2026 (Section 2); bounds on it for the Weighted Gaussian Mechanism:
`dpbeam_lab.evaluation.bounds`; limits that no algorithm passes: `dpbeam.accounting.limits`; the best weights under one
Gaussian: `dpbeam_lab.evaluation.allocation`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from dpbeam.accounting.limits import half_limit_users, release_probability_limit
from dpbeam_lab.evaluation.allocation import gaussian_family
from dpbeam_lab.evaluation.bounds import (
    BOUND_FAILURE,
    Masses,
    Wgm,
    best_law,
    missing_mass_floor,
    rare_items,
    theorem_3_3,
    theorem_3_3_printed,
    theorem_3_6,
)
from dpbeam_lab.evaluation.indexed import IndexedSets, index_pairs, mask_of

#: (section, figure) of `evaluate_release` -> what it says, in one line.
MEANINGS = {
    ("", "users"): "users in the data",
    ("", "items"): "distinct items in the data",
    ("", "entries"): "distinct (user, item) pairs",
    ("released", "items"): "released items that somebody holds",
    ("released", "not_in_data"): "released items that nobody holds: public ones, or of other data",
    ("released", "share_of_items"): "released / items",
    ("released", "share_of_users_that_keep_an_item"): "users that hold at least one released item",
    ("released", "share_of_entries"): "pairs whose item is released",
    ("missing_mass", "p0"): "items that are not released",
    ("missing_mass", "p1"): "pairs whose item is not released, as a share",
    ("missing_mass", "p2"): "root of the sum of the squared shares of missed items: frequent ones weigh more",
    ("missing_mass", "pinf"): "share of the pairs that the most frequent missed item has",
    ("wgm_bounds", "failure_probability"): "chance that a bound below is wrong",
    ("wgm_bounds", "max_items"): "D0 that the bounds assume",
    ("wgm_bounds", "mm_inf"): "bound on pinf for method basic; above 1 it says nothing",
    ("wgm_bounds", "mm_1"): "bound on p1 for method basic, from the counts themselves",
    ("wgm_bounds", "mm_1_zipf"): "bound on p1 for method basic, from the Zipf law below",
    ("wgm_bounds", "mm_1_zipf_printed"): "the same as the paper prints it, which need not hold",
    ("wgm_bounds", "zipf_exponent"): "exponent s of the law share of rank r <= C r^-s that bounds best",
    ("wgm_bounds", "zipf_factor"): "factor C of that law",
    ("wgm_bounds", "mm_1_at_least"): "no algorithm of this budget misses a smaller p1 on average",
    ("limit", "expected_items_at_most"): "no algorithm of this budget releases more items on average",
    ("limit", "released_share_of_limit"): "released / that limit",
    ("limit", "half_limit_users"): "an item of at most so many users is released at best in half of all runs",
    ("limit", "items_above_half_limit"): "items held by more users than that",
    ("limit", "released_above_half_limit"): "released among them",
    ("limit", "released_below_half_limit"): "released among the others: luck, or public items",
    ("full_knowledge", "max_items"): "D0 that the lines below assume",
    (
        "full_knowledge",
        "expected_items",
    ): "what weights under one Gaussian release on average if they know the data",
    ("full_knowledge", "released_share"): "released / that",
    ("full_knowledge", "expected_items_at_most"): "no such weights release more",
}


def evaluate_release(
    batches: Iterable[tuple[pa.Array, pa.Array]],
    released: pa.Array,
    *,
    epsilon: float,
    delta: float,
    max_items: int = 100,
    full_knowledge: bool = True,
) -> dict[str, Any]:
    """Compare released items with the data they come from. The result is NOT PRIVATE.

    Args:
      batches: (users, items) arrays of the data, see `index_pairs`.
      released: the released items.
      epsilon, delta: the budget spent, for the limits and bounds.
      max_items: D0 of the bounds of the Weighted Gaussian Mechanism and of the full-knowledge allocation.
      full_knowledge: compute the full-knowledge allocation too, which takes most of the time.

    Returns:
      A JSON-ready dictionary; "not_private" is true.

    Raises:
      InputError: no data, or types of items that differ.
    """
    indexed = index_pairs(batches)
    mask, unknown = mask_of(indexed, released)
    holders = indexed.holders
    result = {
        "not_private": True,
        "users": len(indexed.sets.offsets) - 1,
        "items": indexed.num_items,
        "entries": len(indexed.sets.links),
        "released": {
            "items": int(mask.sum()),
            "not_in_data": unknown,
            "share_of_items": float(mask.mean()),
            "share_of_users_that_keep_an_item": share_of_users(indexed, mask),
            "share_of_entries": float(holders[mask].sum() / holders.sum()),
        },
        "missing_mass": missing_mass(holders, mask),
        "wgm_bounds": wgm_bounds(indexed, epsilon, delta, max_items),
        "limit": physical_limit(holders, mask, epsilon, delta),
    }
    if full_knowledge:
        result["full_knowledge"] = best_allocation(indexed, mask, epsilon, delta, max_items)
    return result


def share_of_users(indexed: IndexedSets, mask: np.ndarray) -> float:
    """Share of the users with at least one released item."""
    kept = indexed.sets.row_sums(mask[indexed.sets.links].astype(np.int64))
    return float(np.mean(kept > 0))


def missing_mass(holders: np.ndarray, mask: np.ndarray) -> dict[str, float]:
    """MM_p = || (N(x)/N) over x not released ||_p: p = 1 missing share of entries, 0 items missed, inf the largest.

    Args:
      holders: (items,) N(x); mask: (items,) bool, released.
    """
    missed = holders[~mask] / holders.sum()
    return {
        "p0": len(missed),
        "p1": float(missed.sum()),
        "p2": float(np.sqrt(np.square(missed).sum())),
        "pinf": float(missed.max(initial=0.0)),
    }


def wgm_bounds(indexed: IndexedSets, epsilon: float, delta: float, max_items: int) -> dict[str, float]:
    """Bounds on the missing mass of the Weighted Gaussian Mechanism, see `dpbeam_lab.evaluation.bounds`.

    Each holds but with probability `BOUND_FAILURE`; above 1 it says nothing.
    """
    masses, wgm = Masses.of(indexed), Wgm.of(epsilon, delta, max_items)
    law = best_law(masses, wgm)
    return {
        "failure_probability": BOUND_FAILURE,
        "max_items": max_items,
        "mm_inf": theorem_3_6(masses, wgm),
        "mm_1": rare_items(masses, wgm),
        "mm_1_zipf": theorem_3_3(masses, wgm, law),
        "mm_1_zipf_printed": theorem_3_3_printed(masses, wgm, law),
        "zipf_exponent": law.exponent,
        "zipf_factor": law.factor,
        "mm_1_at_least": missing_mass_floor(masses, epsilon, delta),
    }


def physical_limit(holders: np.ndarray, mask: np.ndarray, epsilon: float, delta: float) -> dict[str, float]:
    """What no algorithm can pass: the sum of p_N(x) bounds the expected number of released items of any.

    An item of at most b* users is released with probability at most 1/2; items above b* are those that an ideal
    algorithm would mostly release.
    """
    counts, index = np.unique(holders, return_inverse=True)
    expected = np.asarray(release_probability_limit(counts, epsilon, delta))[index].sum()
    bar = half_limit_users(epsilon, delta)
    above = holders > bar
    return {
        "expected_items_at_most": float(expected),
        "released_share_of_limit": float(mask.sum() / expected),
        "half_limit_users": bar,
        "items_above_half_limit": int(above.sum()),
        "released_above_half_limit": int((above & mask).sum()),
        "released_below_half_limit": int((~above & mask).sum()),
    }


def best_allocation(
    indexed: IndexedSets, mask: np.ndarray, epsilon: float, delta: float, max_items: int
) -> dict[str, float]:
    """What weights that know the data could release under one Gaussian: see `dpbeam_lab.evaluation.allocation`."""
    best = gaussian_family(indexed.sets, indexed.num_items, epsilon, delta, max_items=max_items)
    return {
        "max_items": max_items,
        "expected_items": best.at_least,
        "released_share": float(mask.sum() / best.at_least) if best.at_least else 0.0,
        "expected_items_at_most": best.at_most,
    }
