"""The families that there are: one line each. Everything else that speaks of kinds of releases walks this registry."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from types import MappingProxyType

from dpbeam.families.base import Release

#: module:class of the settings of every family, in the order of help.
_FAMILIES = (
    "dpbeam.selection.config:SelectionConfig",
    "dpbeam.topk.family:TopKConfig",
    "dpbeam.packing.family:PackingConfig",
    "dpbeam.hitting.family:HittingSetConfig",
    "dpbeam.counting.family:CountConfig",
    "dpbeam.series.family:SeriesConfig",
)


@functools.cache
def families() -> Mapping[str, type[Release]]:
    """All families by the names of their commands."""
    kinds = {}
    for entry in _FAMILIES:
        module, name = entry.split(":")
        kind = getattr(importlib.import_module(module), name)
        kinds[kind.name] = kind
    return MappingProxyType(kinds)


def family_of(method: str) -> type[Release] | None:
    """The family that writes ledgers of a method; None for what no family of this version writes."""
    return next((family for family in families().values() if family.wrote(method)), None)
