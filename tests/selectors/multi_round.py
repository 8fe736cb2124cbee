"""Combinations of accounting and sampling, for selectors with rounds of their own noise."""

from __future__ import annotations

from typing import Any


def variants(method: str, options: dict[str, dict[str, Any]] | None = None) -> dict[str, dict[str, Any]]:
    """name -> settings; `options` by accounting."""
    return {
        f"{method} {accounting}{' resampled' if resample else ''}": {
            "accounting": accounting,
            "resample": resample,
            **(options or {}).get(accounting, {}),
        }
        for accounting in ("basic", "gaussian")
        for resample in (False, True)
    }
