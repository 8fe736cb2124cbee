"""What a contribution must do, for the tests of whoever writes one: a call or a class to inherit for each seam.

No module of a release imports this package. Each name is imported when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpbeam.testing.contracts import check_format as check_format
    from dpbeam.testing.contracts import check_kind as check_kind
    from dpbeam.testing.contracts import check_selector as check_selector
    from dpbeam.testing.contracts import check_store as check_store
    from dpbeam.testing.contracts import checks as checks
    from dpbeam.testing.formats import FormatContract as FormatContract
    from dpbeam.testing.kinds import KindContract as KindContract
    from dpbeam.testing.replay import audit_by_replay as audit_by_replay
    from dpbeam.testing.runners import check_runner as check_runner
    from dpbeam.testing.selectors import SelectorContract as SelectorContract
    from dpbeam.testing.stores import StoreContract as StoreContract

_HOME = {
    "check_format": "contracts",
    "check_kind": "contracts",
    "check_selector": "contracts",
    "check_store": "contracts",
    "checks": "contracts",
    "FormatContract": "formats",
    "KindContract": "kinds",
    "audit_by_replay": "replay",
    "check_runner": "runners",
    "SelectorContract": "selectors",
    "StoreContract": "stores",
}
__all__ = [*_HOME]


def __getattr__(name: str) -> Any:
    """Loads a name (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module 'dpbeam.testing' has no attribute {name!r}")
    return getattr(importlib.import_module(f"dpbeam.testing.{_HOME[name]}"), name)
