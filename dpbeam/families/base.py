"""What a kind of release is, described once: its settings, and what is said of them, of its plans and of its ledgers.

A kind, or family, is a folder with a subclass of `Release` and a line in `dpbeam.families.registry`. Its fields are
made by `setting`, as those of a selector are. From them follow the flags of its command and of `dpbeam plan`, the
parameters of its ledger and the settings that `verify` reads back, its plan as JSON, and the identity of a run.
Commands, `verify`, the report and the tests that every kind must pass walk the registry and know none by name.
These modules load quickly: what is heavy is imported where it is used.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from dpbeam.accounting.arguments import check_fields
from dpbeam.errors import param
from dpbeam.selectors.base import Settings

if TYPE_CHECKING:
    from dpbeam.accounting.ledger import Ledger
    from dpbeam.selection.plan import SelectionPlan


class OutputColumn(NamedTuple):
    """A column of the output beside those of the items.

    Attributes:
      name, type: of the column, `int`, `float`, `bool` or `str`.
      setting: that adds it; None: it is always there.
      before: it stands before the items of a file or table.
      nullable: a row may have no value of it.
    """

    name: str
    type: type
    setting: str | None = None
    before: bool = False
    nullable: bool = False


@dataclass(frozen=True)
class Table:
    """A table of a plan, as text."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str | None = None


#: What a plan is shown as: lines and tables.
Shown = str | Table
ReleaseT = TypeVar("ReleaseT", bound="Release")


@dataclass(frozen=True)
class Release(Settings, ABC):
    """One kind of release; an instance is what one of its jobs is asked to do.

    Attributes:
      name: of its command.
      writes: what its ledgers say under `method`; None where they say more than one thing.
      summary: of the command, one line.
      added: columns of the output beside those of the items, in their order.
      command: module of its command, which stands in it as `COMMAND`; None: the one of its name in `dpbeam.cli`.
      listed_alone: with a public list, pairs of other items are left out before anything is counted.
      epsilon, delta: the budget of the whole job.

    Raises:
      InputError: a value is of another type, or out of range.
    """

    name: ClassVar[str]
    writes: ClassVar[str | None] = None
    summary: ClassVar[str]
    added: ClassVar[tuple[OutputColumn, ...]] = ()
    command: ClassVar[str | None] = None
    listed_alone: ClassVar[bool] = True

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        check_fields(self)
        self.check()

    @staticmethod
    def named(name: str) -> str:
        return param(name)

    @classmethod
    def asked(cls: type[ReleaseT], values: Mapping[str, Any], public: str | None = None) -> ReleaseT:
        """The settings among flags or arguments.

        Args:
          values: by name, with others; None stands for not given.
          public: the flag or argument that says which items are public; None: none does.

        Raises:
          InputError: a value is of another type, or out of range.
        """
        needed = {field.name for field in fields(cls) if field.default is MISSING}
        names = [name for name in cls.described() if name in needed or values.get(name) is not None]
        own = {name: values[name] for name in names}
        return cls(epsilon=values["epsilon"], delta=values["delta"], **own)

    def columns(self, *beside: str) -> tuple[OutputColumn, ...]:
        """The columns that these settings add to those of the items.

        Args:
          beside: names of what else is asked for, such as `known` releases, that adds columns and is no field.
        """
        return self.columns_of({**vars(self), **dict.fromkeys(beside, True)})

    def doubts(self) -> list[str]:
        """What is legal and perhaps a slip, a line each that begins with the name of a setting."""
        return []

    @abstractmethod
    def plan(self, *public: Any) -> Any:
        """Calibrated, before any data; a plan has `config`, `event` and `composition`.

        Args:
          public: public numbers beside the settings, of a kind that has such.

        Raises:
          InputError: a setting is out of range; names the flag.
        """

    @classmethod
    def selection_of(cls, plan: Any) -> SelectionPlan | None:
        """The selection in a plan, if there is one."""
        return None

    @classmethod
    def wrote(cls, method: str) -> bool:
        """Whether ledgers of this method are this kind's."""
        return method == cls.writes

    @classmethod
    def ledger(cls, plan: Any, **run: Any) -> Ledger:
        """What a run of a plan costs and how.

        Args:
          run: what is known of the run; for most kinds see `dpbeam.accounting.ledger.run_ledger`.
        """
        from dpbeam.accounting.ledger import run_ledger

        unreviewed = cls.unreviewed(plan)
        parameters = cls.parameters(plan)
        return run_ledger(str(cls.writes), plan, plan.composition, parameters, unreviewed=unreviewed, **run)

    @classmethod
    def unreviewed(cls, plan: Any) -> list[str]:
        """What of a plan rests on a proof that is not peer-reviewed."""
        selection = cls.selection_of(plan)
        return [] if selection is None or selection.selector.peer_reviewed else [selection.config.method]

    def stated(self) -> dict[str, Any]:
        """The settings as a ledger states them, JSON values."""
        return {name: getattr(self, name) for name, own in self.described().items() if own.stated}

    @classmethod
    def follows(cls, plan: Any) -> dict[str, Any]:
        """What a ledger states besides, which follows from the settings: `verify` recomputes it."""
        return {}

    @classmethod
    def parameters(cls, plan: Any) -> dict[str, Any]:
        """Of the ledger of a plan."""
        return {**plan.config.stated(), **cls.follows(plan)}

    @classmethod
    def of_ledger(cls: type[ReleaseT], ledger: Ledger) -> ReleaseT:
        """The settings that a ledger of this kind states.

        Raises:
          Exception: its parameters are no settings of this kind, of whatever type.
        """
        own = {name: ledger.parameters[name] for name, one in cls.described().items() if one.stated}
        return cls(epsilon=ledger.epsilon, delta=ledger.delta, **own)

    @classmethod
    def planned_again(cls, ledger: Ledger) -> Any:
        """The plan that a ledger of this kind came from.

        Raises:
          Exception: its parameters are no settings of this kind, or there is no such plan.
        """
        return cls.of_ledger(ledger).plan()

    @classmethod
    def sensitivity_needed(cls, ledger: Ledger) -> float | None:
        """The l2-sensitivity that follows from public bounds in the settings of a ledger.

        None where a kind says none: a ledger whose events rest on such bounds is then refused.

        Raises:
          Exception: the settings do not say what it follows from.
        """
        return None

    @classmethod
    def report(cls, plan: Any) -> dict[str, Any]:
        """Settings, budget and noise of a plan, as JSON values; needs no data."""
        config = plan.config
        return {
            "job": cls.name,
            "epsilon": config.epsilon,
            "delta": config.delta,
            "composition": plan.composition,
            **config.stated(),
            **cls.follows(plan),
        }

    @classmethod
    @abstractmethod
    def shown(cls, report: Mapping[str, Any]) -> Iterable[Shown]:
        """A report for the terminal."""

    @classmethod
    def shares_budget(cls, parameters: Mapping[str, Any]) -> str:
        """Which other releases the budget of a ledger covers besides its own, in a sentence; empty: none.

        Args:
          parameters: of the ledger.
        """
        return ""

    @classmethod
    def columns_of(cls, parameters: Mapping[str, Any]) -> tuple[OutputColumn, ...]:
        """The columns beside the items in the output of a ledger with these parameters."""
        return tuple(
            column
            for column in cls.added
            if column.setting is None or parameters.get(column.setting) not in (None, False)
        )
