"""Settings of a selection as words of its command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpbeam.selection.family import as_typed


def words_of(settings: Mapping[str, Any]) -> list[str]:
    """Flags, and constants of the method by `--set`; no value has a space."""
    lists = {name: list(value) if isinstance(value, tuple) else value for name, value in settings.items()}
    return as_typed(lists).split()
