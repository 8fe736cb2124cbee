"""The methods and the measures that experiments have: what else speaks of either walks these lists."""

from __future__ import annotations

import functools
import importlib
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from dpbeam_lab.evaluation.data import HISTOGRAM, PAIRS, Data, Repetition
from dpbeam_lab.evaluation.measures import MEASURES, Measure
from dpbeam_lab.evaluation.methods import Method, Outcome, Prepared

#: module:class of every method, in the order of documents.
_BUILT_IN = (
    "dpbeam_lab.evaluation.methods:Select",
    "dpbeam_lab.evaluation.sequential:PolicyGaussian",
    "dpbeam_lab.evaluation.sequential:GreedyUpdate",
    "dpbeam_lab.evaluation.sequential:TruncatedGeometric",
    "dpbeam_lab.evaluation.sequential:UniformBits",
    "dpbeam_lab.evaluation.sequential:Mad2rBits",
    "dpbeam_lab.evaluation.sequential:PolicyBits",
    "dpbeam_lab.evaluation.ranked_methods:TopK",
    "dpbeam_lab.evaluation.ranked_methods:TopKPublished",
    "dpbeam_lab.evaluation.ranked_methods:TopKKnown",
    "dpbeam_lab.evaluation.canonical_lipschitz:TopKSubset",
    "dpbeam_lab.evaluation.hitting_methods:HittingSet",
    "dpbeam_lab.evaluation.hitting_methods:HittingSetParts",
    "dpbeam_lab.evaluation.hitting_methods:Greedy",
    "dpbeam_lab.evaluation.hitting_methods:TrueUnion",
    "dpbeam_lab.evaluation.packing_methods:Pack",
    "dpbeam_lab.evaluation.packing_methods:PackPublished",
    "dpbeam_lab.evaluation.packing_methods:PackFixedSteps",
    "dpbeam_lab.evaluation.packing_methods:PackGradient",
    "dpbeam_lab.evaluation.packing_methods:PackOnline",
)
#: Modules of measures.
_MEASURED_BY = ("dpbeam_lab.evaluation.measures", "dpbeam_lab.evaluation.foretold")
_added: dict[str, Method] = {}


@functools.cache
def _built_in() -> dict[str, Method]:
    by_name: dict[str, Method] = {}
    for entry in _BUILT_IN:
        module, name = entry.split(":")
        method = getattr(importlib.import_module(module), name)()
        by_name[method.name] = method
    return by_name


def methods() -> Mapping[str, Method]:
    """All methods by name."""
    return MappingProxyType({**_built_in(), **_added})


def register(method: Method) -> Method:
    """Add a method of one's own, for runs in this process; returns it.

    Raises:
      ValueError: its name is taken.
    """
    if method.name in methods():
        raise ValueError(f"a method is named {method.name!r} already")
    _added[method.name] = method
    return method


def run(prepared: Prepared, data: Data, repetition: Repetition) -> tuple[Outcome, float]:
    """The outcome, and CPU seconds without those for reading, sampling and building of blocks."""
    prepared_before, start = data.preparing, time.process_time()
    outcome = prepared(data, repetition)
    spent = time.process_time() - start - (data.preparing - prepared_before)
    return outcome, spent


def measures() -> Mapping[str, Measure]:
    """All measures by name, in the order of documents."""
    for module in _MEASURED_BY:
        importlib.import_module(module)
    return MappingProxyType(MEASURES)


def measures_of(kind: str, chosen: Sequence[str] | None = None, data: str = PAIRS) -> list[Measure]:
    """The measures of a kind of result on a kind of data, all or those chosen; the first is the one to look at."""
    return [
        m
        for m in measures().values()
        if kind in m.kinds and (chosen is None or m.name in chosen) and not (m.of_users and data == HISTOGRAM)
    ]
