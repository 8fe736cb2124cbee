"""What a family is: one kind of release, with settings, a plan, a ledger and a command of its own.

A family is a folder, with a class in its `family.py`, and a line in `dpbeam.families.registry`. `dpbeam plan`,
`--dry_run`, `verify`, the report, the list of commands and the tests that every family must pass walk the registry and
know no family by name. Modules of families load quickly: what is heavy is imported where it is used.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from dpbeam.accounting.events import ComposedEvent
    from dpbeam.accounting.ledger import Ledger
    from dpbeam.selection.plan import SelectionPlan


@dataclass(frozen=True)
class Recalibrated:
    """The settings of a ledger, calibrated by this version.

    Attributes:
      event: what it costs.
      selection: the plan of the selection in it, if there is one.
      stated: what the ledger's parameters state that follows from the settings.
    """

    event: ComposedEvent
    selection: SelectionPlan | None = None
    stated: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """A table of a plan, as text."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str | None = None


#: What a plan is shown as: lines and tables.
Shown = str | Table


class Family(ABC):
    """One kind of release.

    Attributes:
      name: of its command.
      summary: of the command, one line.
      method: what its ledgers say under `method`.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    method: ClassVar[str]

    def wrote(self, method: str) -> bool:
        """Whether ledgers of this method are this family's."""
        return method == self.method

    @abstractmethod
    def ledger(self, plan: Any, **run: Any) -> Ledger:
        """What a run of a plan costs and how.

        Args:
          run: what is known of the run, for most families as of `dpbeam.accounting.ledger.run_ledger`.
        """

    @abstractmethod
    def recalibrated(self, ledger: Ledger) -> Recalibrated:
        """The plan that a ledger of this family came from.

        Raises:
          Exception: its parameters are no settings of this family, of whatever kind.
        """

    def sensitivity_needed(self, ledger: Ledger) -> float | None:
        """The l2-sensitivity that follows from public bounds in the settings of a ledger.

        None where a family says none: a ledger whose events rest on such bounds is then refused.

        Raises:
          Exception: the settings do not say what it follows from.
        """
        return None

    @abstractmethod
    def report(self, plan: Any) -> dict[str, Any]:
        """Settings, budget and noise of a plan, as JSON values; needs no data."""

    @abstractmethod
    def shown(self, report: Mapping[str, Any]) -> Iterable[Shown]:
        """A report for the terminal."""

    def shares_budget(self, parameters: Mapping[str, Any]) -> str:
        """Which other releases the budget of a ledger covers besides its own, in a sentence; empty: none.

        Args:
          parameters: of the ledger.
        """
        return ""

    def beside_items(self, parameters: Mapping[str, Any]) -> tuple[int, int]:
        """How many fields come before and after the item in a line of text output.

        Args:
          parameters: of the ledger.
        """
        return 0, 0
