"""Plans that are calibrated once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dpbeam.families.registry import families


def remembered(plan: Callable[..., Any]) -> Callable[..., Any]:
    """Of the same settings the same plan, in this process and its forks."""
    plans: dict[str, Any] = {}

    def once(settings: Any, *public: Any) -> Any:
        of = repr((settings, public))
        if of not in plans:
            plans[of] = plan(settings, *public)
        return plans[of]

    return once


#: How kinds of release plan, each plan once.
PLANS = {family: remembered(family.plan) for family in families().values()}
