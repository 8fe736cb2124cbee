"""What other distributions add: selectors, formats, kinds of release, stores and events, each by an entry point.

A distribution names them in its metadata, under the groups below. Launcher and workers find them wherever it is
installed, and so do `verify`, `report` and `export`. Nothing is imported before it is asked for.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Container
from importlib.metadata import entry_points
from typing import Any

from dpbeam.errors import SetupError

SELECTORS = "dpbeam.selectors"
FORMATS = "dpbeam.formats"
KINDS = "dpbeam.kinds"
STORES = "dpbeam.stores"
#: Modules that register events when they are imported.
EVENTS = "dpbeam.events"


def added(group: str, taken: Container[str] = ()) -> dict[str, str]:
    """Name -> `module:class` of what is installed.

    Args:
      taken: names of dpbeam's own, which nobody replaces.

    Raises:
      InputError: a name is taken, or two distributions add it.
    """
    entries: dict[str, str] = {}
    for name, value, distribution in _entries(group):
        if name in taken or entries.get(name, value) != value:
            raise SetupError(f"{group}: {distribution} adds '{name}', which is there already; uninstall one")
        entries[name] = value
    return entries


def load(entry: str) -> Any:
    """What `module:name` stands for; the module where no name is said.

    Raises:
      InputError: there is none.
    """
    module, _, name = entry.partition(":")
    try:
        made = importlib.import_module(module)
        return getattr(made, name) if name else made
    except (ImportError, AttributeError) as error:
        raise SetupError(f"cannot load '{entry}', which an installed distribution names: {error}") from None


@functools.cache
def _entries(group: str) -> tuple[tuple[str, str, str], ...]:
    """Name, value and distribution of all entry points, which do not change while a process lives."""
    return tuple(
        (entry.name, entry.value, "a distribution" if entry.dist is None else entry.dist.name)
        for entry in entry_points(group=group)
    )
