"""Top-k as methods of experiments: the command, the published way, mechanisms on known counts. NOT PRIVATE."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dpbeam.counts.gathered import public_domain
from dpbeam.engine.in_process import output_batches, run_blocks, run_trips
from dpbeam.engine.program import Keys, Program
from dpbeam.errors import SettingError, naming_arguments, template_of
from dpbeam.randomness import fingerprints
from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.domain import DEFAULT_SELECTOR
from dpbeam.selection.plan import SelectionPlan
from dpbeam.selectors.registry import find
from dpbeam.topk.config import MAX_K, plan_topk
from dpbeam.topk.family import TopKConfig
from dpbeam.topk.mechanisms import OF_BUDGET, CdpPeel, LimitedDomain, Mechanism
from dpbeam.topk.program import topk_program
from dpbeam_lab.evaluation.data import HISTOGRAM, HistogramData, PairData, Repetition
from dpbeam_lab.evaluation.methods import (
    TOP_K,
    Method,
    Outcome,
    Prepared,
    released_items,
    selection_plan,
    whole,
)

_SELECTION = ("max_items_per_user", "preset")


def domain_settings(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the settings of a stage that selects a domain, and of its share."""
    selector = find(settings.get("selector", DEFAULT_SELECTOR))
    return ("selector", "selector_share", *_SELECTION, *selector.settings_type.described())


def domain_config(
    epsilon: float, delta: float, settings: Mapping[str, Any], others: Collection[str]
) -> SelectionConfig:
    """The selection of a domain; `others`: settings that are not its own."""
    own = {name: value for name, value in settings.items() if name not in others}
    return SelectionConfig(epsilon, delta, settings.get("selector", DEFAULT_SELECTOR), **own)


def hub_items(program: Program, data: PairData, repetition: Repetition) -> Outcome:
    """The items that the hub of a program gives, in its order."""
    finished = run_trips(program, data.blocks(repetition, program.cap), Keys(repetition.key))
    columns = [batch.column("item") for batch in output_batches(program, finished)]
    return released_items(data, data.positions(pa.concat_arrays([pa.array([], pa.large_binary()), *columns])))


class TopK(Method):
    """`dpbeam top-k`; with `public_domain` all items of the data are taken for public."""

    name = "top-k"
    kind = TOP_K
    _OWN = ("k", "mechanism", "kbar", "public_domain", "selector", "selector_share", "beta")

    def settings(self, settings: Mapping[str, Any]) -> Collection[str]:
        return (*self._OWN, *domain_settings(settings))

    def label(self, settings: Mapping[str, Any]) -> str:
        return str(settings.get("mechanism", "gauss-rank"))

    def prepare(self, epsilon: float, delta: float, settings: Mapping[str, Any]) -> Prepared:
        whole(settings, "k", 1, MAX_K)
        own = {n: v for n, v in settings.items() if n in self._OWN and n != "selector"}
        with naming_arguments():
            config = TopKConfig(epsilon, delta, **own)
            if config.selects:
                selection = domain_config(epsilon, delta, settings, self._OWN)
                config = TopKConfig(epsilon, delta, selection=selection, **own)
            else:
                rest = {n: v for n, v in settings.items() if n not in self._OWN}
                if config.mechanism == LimitedDomain.name and set(rest) <= {"max_items_per_user"}:
                    config = TopKConfig(epsilon, delta, **own, **rest)
                elif rest or "selector" in settings:
                    raise SettingError(f"there is no selection stage: drop {', '.join([*rest, 'selector'])}")
            plan = plan_topk(config)
        public = plan.config.public_domain

        def run(data: PairData, repetition: Repetition) -> Outcome:
            program = topk_program(plan, public_domain(data.items) if public else None)
            return hub_items(program, data, repetition)

        return run


class TopKPublished(Method):
    """A selection with its share of epsilon and delta, then CDP-Peel by the papers' formula with the rest."""

    name = "top-k-published"
    kind = TOP_K
    note = "the weighted Gaussian mechanism, then CDP-Peel by the closed formula (Dick, Joseph, Raman 2026)"

    def settings(self, settings: Mapping[str, Any]) -> Collection[str]:
        return ("k", *domain_settings({"selector": "basic", **settings}))

    def prepare(self, epsilon: float, delta: float, settings: Mapping[str, Any]) -> Prepared:
        k = whole(settings, "k", 1, MAX_K)
        plan, rest = halves(epsilon, delta, settings)
        return functools.partial(_peeled, plan, CdpPeel.calibrate(k, *rest, published=True))


def halves(
    epsilon: float, delta: float, settings: Mapping[str, Any]
) -> tuple[SelectionPlan, tuple[float, float]]:
    """The plan of a selection with its share of the budget, half by default, and the budget that is left.

    Raises:
      InputError: naming a setting.
    """
    share = settings.get("selector_share", 0.5)
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 1:
        raise SettingError(f"selector_share must lie strictly between 0 and 1, got {share}")
    own = {n: v for n, v in settings.items() if n not in ("k", "selector", "selector_share", "choices")}
    method = settings.get("selector", "basic")
    plan = selection_plan(share * epsilon, share * delta, {"method": method, **own})
    return plan, (epsilon * (1 - share), delta * (1 - share))


def domain_of(plan: SelectionPlan, data: PairData, repetition: Repetition) -> np.ndarray:
    """Positions of what a selection releases, ascending."""
    blocks = data.blocks(repetition, plan.program.cap)
    positions = data.positions(run_blocks(plan.program, blocks, Keys(repetition.key)).items)
    return np.sort(positions[positions >= 0])


def _peeled(plan: SelectionPlan, mechanism: CdpPeel, data: PairData, repetition: Repetition) -> Outcome:
    domain = domain_of(plan, data, repetition)
    if not len(domain):
        return Outcome()
    names = data.items.take(pa.array(domain))
    fp = fingerprints(Keys(repetition.key).pairs.item, names)
    chosen = mechanism.at_most(len(domain)).select(data.holders[domain], fp, repetition.key)
    return Outcome(domain[chosen])


@dataclass(frozen=True)
class _Known:
    mechanism: Mechanism

    def __call__(self, data: PairData | HistogramData, repetition: Repetition) -> Outcome:
        fp = fingerprints(Keys(repetition.key).pairs.item, data.items)
        counts = np.asarray(data.holders)
        mechanism = self.mechanism.at_most(len(counts))
        return Outcome(np.asarray(mechanism.select(counts, fp, repetition.key), np.int64))


class TopKKnown(Method):
    """A mechanism of the registry on exact counts of all items, which are taken for public."""

    name = "top-k-known"
    kind = TOP_K
    data = HISTOGRAM
    note = "the items are taken for public"

    def settings(self, settings: Mapping[str, Any]) -> Collection[str]:
        return ("k", "mechanism", "published", "beta", "kbar", "max_items_per_user")

    def label(self, settings: Mapping[str, Any]) -> str:
        return str(settings.get("mechanism", CdpPeel.name))

    def prepare(self, epsilon: float, delta: float, settings: Mapping[str, Any]) -> Prepared:
        k = whole(settings, "k", 1, MAX_K)
        name = settings.get("mechanism", CdpPeel.name)
        if name not in OF_BUDGET:
            raise SettingError(f"mechanism must be one of {', '.join(OF_BUDGET)}, got {name!r}")
        own = {n: v for n, v in settings.items() if n not in ("k", "mechanism")}
        try:
            return _Known(OF_BUDGET[name].calibrate(k, epsilon, delta, **own))
        except (TypeError, ValueError) as error:
            raise SettingError(f"{name}: {template_of(error)}") from None
