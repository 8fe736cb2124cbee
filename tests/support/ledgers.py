"""Ledgers of runs that are compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def without_times(path: str | Path) -> dict[str, Any]:
    """The values of a ledger file less when the run began and ended."""
    values = json.loads(Path(path).read_text(encoding="utf-8"))
    for name in ("started", "date"):
        assert values["release"].pop(name)
    return values
