"""Apache Beam pipelines that release items from massive user data under differential privacy.

    import dpbeam

    result = dpbeam.select(frame, user="user", item="query", epsilon=1, delta=1e-8)

The names below are loaded when they are first used: `import dpbeam` imports nothing else, and `dpbeam.select` no Beam.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpbeam.accounting.ledger import Ledger
    from dpbeam.engine.beam.store import RunFolder
    from dpbeam.errors import InputError
    from dpbeam.front import Selection, select
    from dpbeam.hitting.config import HittingSetConfig
    from dpbeam.hitting.front import hitting_set
    from dpbeam.hitting.transforms import HittingSet
    from dpbeam.packing.config import Market, PackingConfig, Resource
    from dpbeam.packing.front import Packed, pack
    from dpbeam.packing.transforms import Packing
    from dpbeam.selection.config import SelectionConfig
    from dpbeam.selection.transforms import CountedItem, ReleasedItem, SelectPartitions
    from dpbeam.series.front import Series
    from dpbeam.topk.config import TopKConfig
    from dpbeam.topk.front import RankedItems, top_k
    from dpbeam.topk.transforms import TopKItems

__version__ = "0.1.0"

__all__ = [
    "CountedItem",
    "HittingSet",
    "HittingSetConfig",
    "InputError",
    "Ledger",
    "Market",
    "Packed",
    "Packing",
    "PackingConfig",
    "RankedItems",
    "ReleasedItem",
    "Resource",
    "RunFolder",
    "SelectPartitions",
    "Selection",
    "SelectionConfig",
    "Series",
    "TopKConfig",
    "TopKItems",
    "__version__",
    "hitting_set",
    "pack",
    "select",
    "top_k",
]

_HOME = {
    "CountedItem": "selection.transforms",
    "HittingSet": "hitting.transforms",
    "HittingSetConfig": "hitting.config",
    "InputError": "errors",
    "Ledger": "accounting.ledger",
    "Market": "packing.config",
    "Packed": "packing.front",
    "Packing": "packing.transforms",
    "PackingConfig": "packing.config",
    "RankedItems": "topk.front",
    "ReleasedItem": "selection.transforms",
    "Resource": "packing.config",
    "RunFolder": "engine.beam.store",
    "SelectPartitions": "selection.transforms",
    "Selection": "front",
    "SelectionConfig": "selection.config",
    "Series": "series.front",
    "TopKConfig": "topk.config",
    "TopKItems": "topk.transforms",
    "hitting_set": "hitting.front",
    "pack": "packing.front",
    "select": "front",
    "top_k": "topk.front",
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
