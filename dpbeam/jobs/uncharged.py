"""The seam between a run and its account: what every run does, with an account or without.

`dpbeam.jobs.charged` has the runs that are charged; it needs SQLAlchemy, which only they need.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # it imports Beam, which `dpbeam budget` does without
    from dpbeam.accounting.ledger import Ledger
    from dpbeam.io.output import OutputTarget


class Uncharged:
    """A run without an account, and the seam for those with one."""

    #: Whether there is an account.
    pays = False
    #: What the release costs its account, once that is known.
    charged: Mapping[str, float] | None = None

    def __init__(self, note: str = ""):
        self.note = note

    def reserve(self, ledger: Ledger) -> None:
        """Take the budget, before anything is read."""

    def preview(self, ledger: Ledger) -> str:
        """What would be charged, in a line; may be empty."""
        return self.note

    def publish(self, target: OutputTarget, ledger: Ledger) -> list[str]:
        """Put staged output in place; as `OutputTarget.commit`."""
        return target.commit(ledger)

    def failed(self, target: OutputTarget, *, kept: bool) -> None:
        """The run has failed: leave no output.

        Args:
          kept: whether a checkpoint stays from which the run can go on.
        """
        target.abort()
