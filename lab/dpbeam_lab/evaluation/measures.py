"""What is measured of a result: one function per measure, explained wherever it is printed. NOT PRIVATE.

A measure gives one number, or one per bin: of item frequency, of rank, or of the size of users' sets. Bins are 1, 2, 3
to 4, 5 to 8, ..., doubling.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpbeam.accounting.limits import release_probability_limit
from dpbeam.packing.config import make_plan
from dpbeam.packing.family import PackingConfig
from dpbeam.topk.measures import TopkErrors, topk_errors
from dpbeam_lab.evaluation.data import MarketData, PairData
from dpbeam_lab.evaluation.methods import HITTING_SET, PACKING, SELECTION, TOP_K, Outcome
from dpbeam_lab.evaluation.packing import over
from dpbeam_lab.evaluation.quality import missing_mass
from dpbeam_lab.evaluation.quality import share_of_users as users_with_one

Bin = tuple[int, int]
"""The least and the largest value of a bin: users of an item, rank of an item, or items of a user."""
Bins = Mapping[Bin, float]
Compute = Callable[["Case"], float | Bins]
"""The value of a case, or a value per bin."""
FREQUENCY, RANK, SET_SIZE = "frequency", "rank", "set_size"
#: What bins are of -> what an axis says.
BINNED = {
    FREQUENCY: "users that hold the item, at most",
    RANK: "rank of the item",
    SET_SIZE: "items of the user, at most",
}


@dataclass(frozen=True)
class Case:
    """A result next to the truth.

    Attributes:
      data: pairs or a market.
      epsilon, delta: the budget of the run.
      settings: of the method, such as k.
    """

    data: Any
    outcome: Outcome
    epsilon: float
    delta: float
    settings: Mapping[str, Any]

    @functools.cached_property
    def pairs(self) -> PairData:
        """The data, of a method that needs pairs."""
        assert isinstance(self.data, PairData)
        return self.data

    @functools.cached_property
    def market(self) -> MarketData:
        """The data, of a method that needs a market."""
        assert isinstance(self.data, MarketData)
        return self.data

    @functools.cached_property
    def holders(self) -> np.ndarray:
        """(items,) users that hold each item."""
        return np.asarray(self.data.holders)

    @functools.cached_property
    def mask(self) -> np.ndarray:
        """(items,) bool, released."""
        mask = np.zeros(self.pairs.indexed.num_items, bool)
        mask[self.outcome.items] = True
        return mask

    @functools.cached_property
    def shares(self) -> np.ndarray:
        """(agents,) what every agent gets of its bundle."""
        assert self.outcome.allocation is not None
        return self.outcome.allocation

    @functools.cached_property
    def limits(self) -> np.ndarray:
        """(items,) the largest chance of release that any algorithm of the budget can have."""
        counts, index = np.unique(self.holders, return_inverse=True)
        return np.asarray(release_probability_limit(counts, self.epsilon, self.delta))[index]

    @functools.cached_property
    def mass(self) -> dict[str, float]:
        """Missing mass by exponent."""
        return missing_mass(self.holders, self.mask)

    @functools.cached_property
    def ranking(self) -> TopkErrors:
        """Errors of a ranking; an answer longer than the data counts up to their number of items."""
        k = min(int(self.settings["k"]), len(self.holders))
        return topk_errors(self.holders, self.outcome.items, k)

    def by_frequency(self, values: np.ndarray, *, mean: bool = False) -> Bins:
        """Sums, or means, of a value per item over the bins of frequency that hold an item."""
        numbers = np.ceil(np.log2(self.holders)).astype(np.int64)
        sums = np.bincount(numbers, values)
        counts = np.bincount(numbers)
        return {
            (2 ** (number - 1) + 1 if number else 1, 2**number): float(
                sums[number] / counts[number] if mean else sums[number]
            )
            for number in np.flatnonzero(counts).tolist()
        }


@dataclass(frozen=True)
class Measure:
    """One measure.

    Attributes:
      name: in files and tables.
      unit: of its values.
      meaning: one line.
      kinds: the kinds of results that have it.
      compute: the value of a case, or a value per bin.
      of_data: it follows from data and budget alone, whatever the method.
      by: of a value per bin, what the bins are of: a key of `BINNED`.
      of_users: it needs to know who holds what, which a histogram does not say.
    """

    name: str
    unit: str
    meaning: str
    kinds: tuple[str, ...]
    compute: Compute
    of_data: bool = False
    of_users: bool = False
    by: str = FREQUENCY


MEASURES: dict[str, Measure] = {}


def measure(
    unit: str,
    meaning: str,
    *kinds: str,
    of_data: bool = False,
    of_users: bool = False,
    by: str = FREQUENCY,
) -> Callable[[Compute], Compute]:
    """Makes a function a measure of its own name.

    Args:
      unit, meaning: for people, a line.
      kinds: of the results that have it: `SELECTION`, `TOP_K`, `HITTING_SET`, `PACKING`.
      of_data, of_users, by: see `Measure`.

    Raises:
      ValueError: there is one of this name.
    """

    def register(compute: Compute) -> Compute:
        name = compute.__name__
        if name in MEASURES:
            raise ValueError(f"a measure is named {name!r} already")
        MEASURES[name] = Measure(name, unit, meaning, kinds, compute, of_data, of_users, by)
        return compute

    return register


@measure("share", "(users of the k most frequent items - users of the chosen ones) / pairs", TOP_K)
def topk_missing_mass(case: Case) -> float:
    return case.ranking.missing_mass


@measure("users", "sum over ranks of |users of the true item - users of the chosen one|", TOP_K)
def topk_l1(case: Case) -> float:
    return case.ranking.l1


@measure("users", "largest over ranks of |users of the true item - users of the chosen one|", TOP_K)
def topk_linf(case: Case) -> float:
    return case.ranking.linf


@measure("users", "users that hold none of the chosen items", HITTING_SET)
def users_missed(case: Case) -> float:
    kept = case.pairs.indexed.sets.row_sums(case.mask[case.pairs.indexed.sets.links].astype(np.int64))
    return int(np.count_nonzero(kept == 0))


@measure("items", "released items that somebody holds", SELECTION, TOP_K, HITTING_SET)
def released(case: Case) -> float:
    return len(case.outcome.items)


@measure("items", "released items that nobody holds", SELECTION, TOP_K, HITTING_SET)
def outside(case: Case) -> float:
    return case.outcome.outside


@measure("items", "MM_0: items that are not released", SELECTION)
def missing_mass_0(case: Case) -> float:
    return case.mass["p0"]


@measure("share", "MM_1: pairs whose item is not released, as a share of all", SELECTION)
def missing_mass_1(case: Case) -> float:
    return case.mass["p1"]


@measure("share", "MM_inf: share of all pairs that the most frequent missed item has", SELECTION)
def missing_mass_inf(case: Case) -> float:
    return case.mass["pinf"]


@measure("share", "users that hold at least one released item", SELECTION, TOP_K, HITTING_SET, of_users=True)
def share_of_users(case: Case) -> float:
    return users_with_one(case.pairs.indexed, case.mask)


@measure("share", "pairs whose item is released, as a share of all", SELECTION)
def share_of_entries(case: Case) -> float:
    return float(case.holders[case.mask].sum() / case.holders.sum())


@measure(
    "items",
    "no (epsilon, delta)-algorithm releases more items on average (lab/docs/explanation/limits.md)",
    SELECTION,
    of_data=True,
)
def limit(case: Case) -> float:
    return float(case.limits.sum())


@measure("items", "items of the data, by how many users hold them", SELECTION, of_data=True)
def items_by_frequency(case: Case) -> Bins:
    return case.by_frequency(np.ones(len(case.holders)))


@measure("items", "released items, by how many users hold them", SELECTION)
def released_by_frequency(case: Case) -> Bins:
    return case.by_frequency(case.mask)


@measure("share", "items that are released, by how many users hold them", SELECTION)
def keep_rate(case: Case) -> Bins:
    return case.by_frequency(case.mask, mean=True)


@measure(
    "share",
    "no (epsilon, delta)-algorithm keeps more on average, by how many users hold them",
    SELECTION,
    of_data=True,
)
def keep_limit(case: Case) -> Bins:
    return case.by_frequency(case.limits, mean=True)


@measure(
    "users", "users of the item at the last rank of each bin, items by rank", SELECTION, of_data=True, by=RANK
)
def users_by_rank(case: Case) -> Bins:
    descending = np.sort(case.holders)[::-1]
    return {(low, high): float(descending[high - 1]) for low, high in _doubling(len(descending))}


@measure(
    "share",
    "users that hold at most so many items",
    SELECTION,
    of_data=True,
    of_users=True,
    by=SET_SIZE,
)
def users_by_set_size(case: Case) -> Bins:
    sizes = np.sort(case.pairs.indexed.sets.degrees)
    return {
        (low, high): float(np.searchsorted(sizes, high, side="right") / len(sizes))
        for low, high in _doubling(int(sizes[-1]))
    }


def _doubling(last: int) -> list[Bin]:
    """1, 2, 3 to 4, 5 to 8, ... up to `last`, where the last bin ends."""
    highs = [*(2**j for j in range((last - 1).bit_length())), last]
    return [(low + 1, high) for low, high in zip([0, *highs], highs)]


@measure("share of optimum", "value of what agents get / optimum of the linear program", PACKING)
def welfare(case: Case) -> float:
    return float(case.market.values @ case.shares / case.market.optimum())


@measure("share of supply", "largest use of a resource / its supply; above 1 there is too little", PACKING)
def use(case: Case) -> float:
    return over(case.market.demands, case.market.supply, case.shares)


@measure("share of optimum", "welfare, divided by the use where that is above 1", PACKING)
def feasible_welfare(case: Case) -> float:
    return welfare(case) / max(1.0, use(case))  # type: ignore[type-var, operator]


@measure("rounds", "rounds of prices; of an online algorithm, agents", PACKING)
def rounds(case: Case) -> float:
    return case.outcome.facts["rounds"]


@measure("share of supply", "supply that alpha needs / supply; above 1 `dpbeam pack` refuses", PACKING)
def supply_needed(case: Case) -> float:
    market, alpha = case.market, float(case.settings.get("alpha", PackingConfig.alpha))
    config = PackingConfig(case.epsilon, case.delta, alpha, allow_small_supply=True)
    return float(make_plan(config, market.described()).supply_needed) / market.supply
