"""Kinds of release that choose among the items of a domain: a public one, or what a selection releases first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from dpbeam.accounting.arguments import instance
from dpbeam.errors import SettingError, constant, param
from dpbeam.families.base import Release, Shown
from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.shown import shown_selection

if TYPE_CHECKING:
    from dpbeam.accounting.ledger import Ledger
    from dpbeam.selection.plan import SelectionPlan

#: The selector of the domain that loses least at equal budget (lab/docs/reference/topk_results.md,
#: lab/docs/reference/hitting_set_results.md).
DEFAULT_SELECTOR = "gsu"
_ANY_DELTA = 0.5  # of a selection whose budget follows from the shares
DomainT = TypeVar("DomainT", bound="DomainRelease")


class DomainRelease(Release):
    """A release of at most k items of a domain; subclasses have these fields.

    Attributes:
      k: number of items.
      selection: settings of the selection of a domain (default: `DEFAULT_SELECTOR`); its epsilon and delta are ignored,
        they follow from the share.
      selector_share: share of epsilon and delta that the selection gets.
      public_domain: the domain is public: there is no selection.
    """

    k: int
    selection: SelectionConfig | None
    selector_share: float | None
    public_domain: bool

    def __post_init__(self) -> None:
        super().__post_init__()
        instance("selection", self.selection, SelectionConfig, optional=True)

    @property
    def selects(self) -> bool:
        """Whether there is a selection stage."""
        return not self.public_domain

    @property
    def bounds(self) -> tuple[str, ...]:
        """Settings of a selection that these settings take for themselves where there is none."""
        return ()

    @classmethod
    def asked(cls: type[DomainT], values: Mapping[str, Any], public: str | None = None) -> DomainT:
        """As of `Release`; `selector`, settings of its selection, and under `settings` the constants of its method."""
        domain: dict[str, Any] = {"public_domain": public is not None}
        config = replace(super().asked(values), **domain)
        of_stage = SelectionConfig.described().keys() - cls.described().keys() - {"method"}
        stage = {name: value for name, value in values.items() if name in of_stage and value is not None}
        constants = {name: value for name, value in values.get("settings", {}).items() if value is not None}
        selector = values.get("selector")
        if config.selects:
            method = DEFAULT_SELECTOR if selector is None else selector
            domain["selection"] = SelectionConfig(config.epsilon, config.delta, method, **stage, **constants)
            return replace(config, **domain)
        own = {name: stage.pop(name) for name in config.bounds if name in stage}
        others = [param(name) for name in ("selector", "selector_share") if values.get(name) is not None]
        for name in (*others, *map(param, stage), *map(constant, constants)):
            what = param(public) if public is not None else "limited-domain"
            raise SettingError(
                f"{name} belongs to a selection stage, and {what} leaves none: drop one of them"
            )
        return replace(config, **own)

    def doubts(self) -> list[str]:
        return [] if self.selection is None else self.selection.doubts()

    @classmethod
    def of_arguments(cls: type[DomainT], *, public_domain: bool = False, **arguments: Any) -> DomainT:
        """As `asked`, of keyword arguments, those of the selection's method among them."""
        known = {"epsilon", "delta", "selector", *cls.described(), *SelectionConfig.described()}
        values = {name: arguments.pop(name) for name in known & arguments.keys()}
        return cls.asked({**values, "settings": arguments}, "domain" if public_domain else None)

    @classmethod
    def selection_of(cls, plan: Any) -> SelectionPlan | None:
        selection: SelectionPlan | None = plan.selection
        return selection

    def stated(self) -> dict[str, Any]:
        return {**super().stated(), "public_domain": self.public_domain}

    @classmethod
    def parameters(cls, plan: Any) -> dict[str, Any]:
        selection = cls.selection_of(plan)
        return {
            **super().parameters(plan),
            "selection": None if selection is None else selection.config.stated(),
            "selector": None if selection is None else selection.config.method,
        }

    @classmethod
    def of_ledger(cls: type[DomainT], ledger: Ledger) -> DomainT:
        values = ledger.parameters
        domain = {name: values[name] for name in ("selection", "public_domain")}
        if domain["selection"] is not None:
            stage = (ledger.epsilon, ledger.delta or _ANY_DELTA, values["selector"], domain["selection"])
            domain["selection"] = SelectionConfig.of_parameters(*stage)
        return replace(super().of_ledger(ledger), **domain)

    @classmethod
    def report(cls, plan: Any) -> dict[str, Any]:
        from dpbeam.selection.report import plan_report

        selection = cls.selection_of(plan)
        return {**super().report(plan), "selection": None if selection is None else plan_report(selection)}

    @classmethod
    def shown(cls, report: Mapping[str, Any]) -> Iterator[Shown]:
        """The head of a plan, and the selection of its domain if there is one."""
        yield f"{cls.name}  k {report['k']}  epsilon {report['epsilon']:g}  delta {report['delta']:g}"
        if report["selection"] is not None:
            yield f"selection of the items, {report['selector_share']:g} of the budget:"
            yield from shown_selection(report["selection"])
        else:
            domain = "the public domain" if report["public_domain"] else "an unknown domain"
            yield f"no selection: items of {domain}"
