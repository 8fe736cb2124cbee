"""The bounds of theory as measures: what it says beforehand, next to what a run gave.

D0 is the run's `max_items_per_user`, or 100; whatever the method, the bounds are those of the Weighted Gaussian
Mechanism (method basic) of the same budget and D0.
"""

from __future__ import annotations

import functools

from dpbeam_lab.evaluation.bounds import (
    Masses,
    Wgm,
    best_law,
    missing_mass_floor,
    rare_items,
    theorem_3_3,
    theorem_3_3_printed,
    theorem_3_6,
    theorem_4_5,
)
from dpbeam_lab.evaluation.measures import Case, measure
from dpbeam_lab.evaluation.methods import HITTING_SET, SELECTION

_MAX_ITEMS = 100
#: All of them follow from data and budget alone.
_foretold = functools.partial(measure, of_data=True)


def _wgm(case: Case) -> tuple[Masses, Wgm]:
    cap = case.settings.get("max_items_per_user") or _MAX_ITEMS
    return Masses.of(case.pairs.indexed), Wgm.of(case.epsilon, case.delta, cap)


@_foretold("share", "no (epsilon, delta)-algorithm has a smaller MM_1 on average", SELECTION)
def missing_mass_floor_1(case: Case) -> float:
    return missing_mass_floor(Masses.of(case.pairs.indexed), case.epsilon, case.delta)


@_foretold(
    "share", "MM_1 of basic is above this in 5 % of runs at most: Theorem 3.6 and the counts", SELECTION
)
def bound_1(case: Case) -> float:
    return rare_items(*_wgm(case))


@_foretold(
    "share",
    "MM_1 of basic is above this in 5 % of runs at most: Theorem 3.3, corrected, and the fitted law",
    SELECTION,
)
def bound_1_zipf(case: Case) -> float:
    masses, wgm = _wgm(case)
    return theorem_3_3(masses, wgm, best_law(masses, wgm))


@_foretold("share", "bound_1_zipf as the proof of Theorem 3.3 prints it, which need not hold", SELECTION)
def bound_1_printed(case: Case) -> float:
    masses, wgm = _wgm(case)
    return theorem_3_3_printed(masses, wgm, best_law(masses, wgm))


@_foretold("share", "MM_inf of basic is above this in 5 % of runs at most: Theorem 3.6", SELECTION)
def bound_inf(case: Case) -> float:
    return theorem_3_6(*_wgm(case))


@_foretold(
    "exponent", "s of the law N_(r)/N <= C r^-s that all counts obey, the one with the best bound", SELECTION
)
def zipf_exponent(case: Case) -> float:
    return best_law(*_wgm(case)).exponent


@_foretold(
    "factor", "C of the law N_(r)/N <= C r^-s that all counts obey, the one with the best bound", SELECTION
)
def zipf_factor(case: Case) -> float:
    return best_law(*_wgm(case)).factor


@_foretold(
    "users",
    "hits of the published method fall short of 1 - 1/e of the best k items by more than this in 5 % of runs at most: "
    "Theorem 4.5",
    HITTING_SET,
)
def hits_gap_bound(case: Case) -> float:
    cap = case.settings.get("max_items_per_user") or _MAX_ITEMS
    masses = Masses.of(case.pairs.indexed)
    return theorem_4_5(masses, case.epsilon, case.delta, cap, int(case.settings["k"]))
