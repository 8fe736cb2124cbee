"""Apache Beam pipelines that release items from massive user data under differential privacy.

    import dpbeam

    result = dpbeam.select(frame, user="user", item="query", epsilon=1, delta=1e-8)

The names below are loaded when they are first used: `import dpbeam` imports nothing but the version, and
`dpbeam.select` no Beam.
"""

import importlib
from typing import TYPE_CHECKING, Any

from dpbeam.version import __version__

if TYPE_CHECKING:
    from dpbeam.accounting.dp_event import export_event
    from dpbeam.accounting.ledger import Ledger
    from dpbeam.counting.family import CountConfig
    from dpbeam.counting.transforms import CountItems
    from dpbeam.engine.beam.store import RunFolder
    from dpbeam.errors import (
        BudgetError,
        DataError,
        InputError,
        SettingError,
        SetupError,
        StoreError,
        UnavailableError,
    )
    from dpbeam.hitting.family import HittingSetConfig
    from dpbeam.hitting.transforms import HittingSet
    from dpbeam.in_memory.count import count
    from dpbeam.in_memory.hitting_set import hitting_set
    from dpbeam.in_memory.pack import Packed, pack
    from dpbeam.in_memory.select import Selection, select
    from dpbeam.in_memory.series import Series
    from dpbeam.in_memory.top_k import RankedItems, top_k
    from dpbeam.packing.config import Market, Resource
    from dpbeam.packing.family import PackingConfig
    from dpbeam.packing.transforms import Packing
    from dpbeam.rows.released import ReleasedRow
    from dpbeam.selection.config import SelectionConfig
    from dpbeam.selection.transforms import SelectPartitions
    from dpbeam.series.folder import RemoteFolder
    from dpbeam.series.transforms import SeriesNight
    from dpbeam.topk.family import TopKConfig
    from dpbeam.topk.transforms import TopKItems

__all__ = [
    "BudgetError",
    "CountConfig",
    "CountItems",
    "DataError",
    "HittingSet",
    "HittingSetConfig",
    "InputError",
    "Ledger",
    "Market",
    "Packed",
    "Packing",
    "PackingConfig",
    "RankedItems",
    "ReleasedRow",
    "RemoteFolder",
    "Resource",
    "RunFolder",
    "SelectPartitions",
    "Selection",
    "SelectionConfig",
    "Series",
    "SeriesNight",
    "SettingError",
    "SetupError",
    "StoreError",
    "TopKConfig",
    "TopKItems",
    "UnavailableError",
    "__version__",
    "count",
    "export_event",
    "hitting_set",
    "pack",
    "select",
    "top_k",
]

_HOME = {
    "BudgetError": "errors",
    "CountConfig": "counting.family",
    "CountItems": "counting.transforms",
    "DataError": "errors",
    "HittingSet": "hitting.transforms",
    "HittingSetConfig": "hitting.family",
    "InputError": "errors",
    "Ledger": "accounting.ledger",
    "Market": "packing.config",
    "Packed": "in_memory.pack",
    "Packing": "packing.transforms",
    "PackingConfig": "packing.family",
    "RankedItems": "in_memory.top_k",
    "ReleasedRow": "rows.released",
    "RemoteFolder": "series.folder",
    "Resource": "packing.config",
    "RunFolder": "engine.beam.store",
    "SelectPartitions": "selection.transforms",
    "Selection": "in_memory.select",
    "SelectionConfig": "selection.config",
    "Series": "in_memory.series",
    "SeriesNight": "series.transforms",
    "SettingError": "errors",
    "SetupError": "errors",
    "StoreError": "errors",
    "TopKConfig": "topk.family",
    "TopKItems": "topk.transforms",
    "UnavailableError": "errors",
    "count": "in_memory.count",
    "export_event": "accounting.dp_event",
    "hitting_set": "in_memory.hitting_set",
    "pack": "in_memory.pack",
    "select": "in_memory.select",
    "top_k": "in_memory.top_k",
}


def __getattr__(name: str) -> Any:
    """Loads a public name (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module 'dpbeam' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"dpbeam.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
