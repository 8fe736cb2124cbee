"""The families that there are: one line each. Everything else that speaks of kinds of releases walks this registry."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import MappingProxyType

from dpbeam.families.base import Release
from dpbeam.plugins import KINDS, added, load

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
    """All families by the names of their commands, with those of other distributions, which add their commands too."""
    own: list[type[Release]] = [load(entry) for entry in _FAMILIES]
    others: list[type[Release]] = [
        load(entry) for entry in added(KINDS, {kind.name for kind in own}).values()
    ]
    return MappingProxyType({kind.name: kind for kind in (*others, *own)})


def family_of(method: str) -> type[Release] | None:
    """The family that writes ledgers of a method; None for what no family of this version writes."""
    return next((family for family in families().values() if family.wrote(method)), None)
