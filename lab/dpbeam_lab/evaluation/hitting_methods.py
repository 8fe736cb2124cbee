"""k-hitting set as methods of experiments: the command, its parts alone, and baselines without privacy. NOT PRIVATE.

`greedy` is exact, since counts are kept up to date, which costs one pass over the pairs where a lazy evaluation of
stale counts would compute many again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from dpbeam.accounting.peeling import peeling_epsilon0
from dpbeam.counts.gathered import public_domain
from dpbeam.engine.program import Keys
from dpbeam.errors import SettingError, naming_arguments
from dpbeam.hitting.config import FIRST_HIT, MAX_K, HittingSetPlan, largest_range, plan_hitting_set
from dpbeam.hitting.cover import Choose, Cover, peel
from dpbeam.hitting.family import HittingSetConfig
from dpbeam.hitting.program import HittingSetProgram, noisy_choice, taking_part
from dpbeam.kernels.csr import Csr
from dpbeam.randomness import RunKey, fingerprints
from dpbeam.selection.plan import SelectionPlan
from dpbeam_lab.evaluation.data import PairData, Repetition
from dpbeam_lab.evaluation.methods import HITTING_SET, Method, Outcome, Prepared, whole
from dpbeam_lab.evaluation.ranked_methods import (
    domain_config,
    domain_of,
    domain_settings,
    halves,
    hub_items,
)

_OWN = ("k", "selector", "selector_share", "public_domain", "choices")
ALL_USERS, COMPOSED, PUBLISHED = "all-users", "composed", "published"


def _plan(epsilon: float, delta: float, settings: Mapping[str, Any]) -> HittingSetPlan:
    k = whole(settings, "k", 1, MAX_K)
    public = settings.get("public_domain", False)
    with naming_arguments():
        selection = None if public else domain_config(epsilon, delta, settings, _OWN)
        share = settings.get("selector_share")
        return plan_hitting_set(HittingSetConfig(epsilon, delta, k, selection, share, public))


class HittingSet(Method):
    """`dpbeam hitting-set`; with `public_domain` all items of the data are taken for public."""

    name = "hitting-set"
    kind = HITTING_SET

    def settings(self, settings: Mapping[str, Any]) -> Collection[str]:
        return ("k", "public_domain", *domain_settings(settings))

    def prepare(self, epsilon: float, delta: float, settings: Mapping[str, Any]) -> Prepared:
        plan = _plan(epsilon, delta, settings)

        def run(data: PairData, repetition: Repetition) -> Outcome:
            domain = public_domain(data.items) if plan.config.public_domain else None
            return hub_items(HittingSetProgram(plan, domain, gather=True), data, repetition)

        return run


class HittingSetParts(Method):
    """The same selection, and choices without what the command adds to the published method.

    `choices`: "all-users" (every user takes part), "composed" (and as any k choices are composed), or "published": half
    of the budget for `basic`, the closed formula for k choices with the other half.
    """

    name = "hitting-set-parts"
    kind = HITTING_SET

    def settings(self, settings: Mapping[str, Any]) -> Collection[str]:
        default = {"selector": "basic"} if settings.get("choices") == PUBLISHED else {}
        return ("k", "choices", *domain_settings({**default, **settings}))

    def label(self, settings: Mapping[str, Any]) -> str:
        return f"hitting-set {settings.get('choices', ALL_USERS)}"

    def prepare(self, epsilon: float, delta: float, settings: Mapping[str, Any]) -> Prepared:
        choices = settings.get("choices", ALL_USERS)
        k = whole(settings, "k", 1, MAX_K)
        if choices == PUBLISHED:
            selection, rest = halves(epsilon, delta, settings)
            epsilon0 = peeling_epsilon0(*rest, k)
        elif choices in (ALL_USERS, COMPOSED):
            plan = _plan(epsilon, delta, settings)
            assert plan.selection is not None
            selection = plan.selection
            epsilon0 = _all_users(plan) if choices == ALL_USERS else _composed(plan)
        else:
            raise SettingError(f"choices must be {ALL_USERS}, {COMPOSED} or {PUBLISHED}, got {choices!r}")

        def run(data: PairData, repetition: Repetition) -> Outcome:
            return _peeled(selection, k, epsilon0, data, repetition)

        return run


def _all_users(plan: HittingSetPlan) -> float:
    """The range of a choice where every user takes part."""
    assert plan.selection is not None
    largest = largest_range(plan.config, plan.selection, 1.0)
    return _composed(plan) if largest is None else largest[0].epsilon0


def _composed(plan: HittingSetPlan) -> float:
    """The range where k choices are composed as any k choices are."""
    return max(epsilon0 for composition, epsilon0 in plan.ranges.items() if composition != FIRST_HIT)


def _peeled(
    selection: SelectionPlan, k: int, epsilon0: float, data: PairData, repetition: Repetition
) -> Outcome:
    domain = domain_of(selection, data, repetition)
    if not len(domain):
        return Outcome()
    position = np.full(len(data.items), -1)
    position[domain] = np.arange(len(domain))
    cover = Cover.restricted(data.indexed.sets, position)
    fp = fingerprints(Keys(repetition.key).pairs.item, data.items.take(pa.array(domain)))
    choose = noisy_choice(epsilon0, fp, repetition.key)
    return Outcome(domain[np.array(peel([cover], cover.counts(len(domain)), k, choose), np.int64)])


def greedy(sets: Csr, num_items: int, k: int) -> np.ndarray:
    """k times the item that most of the users hold who hold none before; ties to the smaller position.

    Hits at least 1 - 1/e of what k items can (Nemhauser, Wolsey and Fisher 1978).

    Args:
      sets: one row per user, links are items 0..num_items - 1.

    Returns:
      (min(k, num_items),) int64 positions.
    """
    return _peel(sets, num_items, k, lambda number, counts, positions: int(np.argmax(counts)))


def _peel(sets: Csr, num_items: int, k: int, choose: Choose) -> np.ndarray:
    cover = Cover.restricted(sets, np.arange(num_items))
    return np.array(peel([cover], cover.counts(num_items), k, choose), np.int64)


class Greedy(Method):
    """The algorithm without noise, on every item."""

    name = "greedy"
    kind = HITTING_SET
    note = "not private: no noise"

    def settings(self, settings: Mapping[str, Any]) -> Collection[str]:
        return ("k",)

    def prepare(self, epsilon: float, delta: float, settings: Mapping[str, Any]) -> Prepared:
        k = whole(settings, "k", 1, MAX_K)

        def run(data: PairData, repetition: Repetition) -> Outcome:
            return Outcome(greedy(data.indexed.sets, len(data.items), k))

        return run


class TrueUnion(Method):
    """User peeling among all items that somebody holds, with the budget of a public domain."""

    name = "true-union"
    kind = HITTING_SET
    note = "not private: the items that somebody holds are taken for public"

    def settings(self, settings: Mapping[str, Any]) -> Collection[str]:
        return ("k",)

    def prepare(self, epsilon: float, delta: float, settings: Mapping[str, Any]) -> Prepared:
        plan = _plan(epsilon, delta, {**settings, "public_domain": True})

        def run(data: PairData, repetition: Repetition) -> Outcome:
            key = repetition.key
            sets = _sampled(data.indexed.sets, plan.rate, key)
            fp = fingerprints(Keys(key).pairs.item, data.items)
            return Outcome(_peel(sets, len(fp), plan.config.k, noisy_choice(plan.epsilon0, fp, key)))

        return run


def _sampled(sets: Csr, rate: float, key: RunKey) -> Csr:
    """The sets of the users who take part."""
    users = np.arange(2 * (len(sets.offsets) - 1), dtype=np.uint64).reshape(-1, 2)
    return sets.select_rows(taking_part(rate, users, Keys(key)))[0]
