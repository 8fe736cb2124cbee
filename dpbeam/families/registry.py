"""The families that there are: one line each. Everything else that speaks of kinds of releases walks this registry."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from types import MappingProxyType

from dpbeam.families.base import Family

#: module:class of every family, in the order of help.
_FAMILIES = (
    "dpbeam.selection.family:Select",
    "dpbeam.topk.family:TopK",
    "dpbeam.packing.family:Pack",
    "dpbeam.hitting.family:HittingSet",
    "dpbeam.counting.family:Count",
    "dpbeam.series.family:Series",
)


@functools.cache
def families() -> Mapping[str, Family]:
    """All families by the names of their commands."""
    made = {}
    for entry in _FAMILIES:
        module, name = entry.split(":")
        family = getattr(importlib.import_module(module), name)()
        made[family.name] = family
    return MappingProxyType(made)


def family_of(method: str) -> Family | None:
    """The family that writes ledgers of a method; None for what no family of this version writes."""
    return next((family for family in families().values() if family.wrote(method)), None)
