"""Accounts in memory for tests: entries numbered as a store would."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Any

from dpbeam.budget.account import Account, Charge, Draft, Entry, Limit, limit_draft
from dpbeam.budget.charges import make_limit
from dpbeam.budget.periods import Days

HOLDER = {"host": "here", "pid": 1, "started": "1", "run": "a"}


def nobody_lives(holder: Mapping[str, Any]) -> bool:
    return False


def days(first: str, last: str | None = None) -> Days:
    return Days(date.fromisoformat(first), date.fromisoformat(last or first))


class Memory:
    """A store of one account that is only a list."""

    def __init__(self, *limits: Limit, composition: str = "basic"):
        self.entries: list[Entry] = []
        self.add(self.account.create(composition))
        for limit in limits or (make_limit(composition, 1.0, 1e-6),):
            self.add(limit_draft(limit))

    @property
    def account(self) -> Account:
        return Account("logs", self.entries)

    def add(self, draft: Draft | None) -> int:
        """Append; the number of the last entry."""
        if draft is not None:
            number = len(self.entries) + 1
            values = (
                number,
                "2026-01-01T00:00:00Z",
                draft.kind,
                draft.release_id,
                "who",
                "host",
                "test",
                "dpbeam",
            )
            self.entries.append(Entry(*values, dict(draft.details)))
        return len(self.entries)

    def reserve(self, release_id: str, epsilon: float = 0.1, delta: float = 1e-8, **where: Any) -> int:
        charge = Charge(epsilon, delta, relation="r", **where)
        return self.add(self.account.reserve(release_id, "digest", charge, HOLDER, "{}", nobody_lives))

    def release(self, release_id: str, epsilon: float = 0.1, delta: float = 1e-8, **where: Any) -> None:
        attempt = self.reserve(release_id, epsilon, delta, **where)
        self.add(self.account.publish(release_id, attempt, {}, "{}"))
        self.add(self.account.commit(release_id, attempt))

    def left(self, name: str = "epsilon", **where: Any) -> list[float]:
        """What is left in every window that such a run touches."""
        touched = self.account.touched(Charge(0.1, 1e-8, **where))
        return [float(standing.left[name]) for standing in touched]
