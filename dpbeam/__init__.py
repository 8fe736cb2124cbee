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
    from dpbeam.selection.config import SelectionConfig
    from dpbeam.selection.transforms import CountedItem, ReleasedItem, SelectPartitions
    from dpbeam.topk.config import TopKConfig
    from dpbeam.topk.transforms import TopKItems

__version__ = "0.1.0"

__all__ = [
    "CountedItem",
    "InputError",
    "Ledger",
    "ReleasedItem",
    "RunFolder",
    "SelectPartitions",
    "Selection",
    "SelectionConfig",
    "TopKConfig",
    "TopKItems",
    "__version__",
    "select",
]

_HOME = {
    "CountedItem": "selection.transforms",
    "InputError": "errors",
    "Ledger": "accounting.ledger",
    "ReleasedItem": "selection.transforms",
    "RunFolder": "engine.beam.store",
    "SelectPartitions": "selection.transforms",
    "Selection": "front",
    "SelectionConfig": "selection.config",
    "TopKConfig": "topk.config",
    "TopKItems": "topk.transforms",
    "select": "front",
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
