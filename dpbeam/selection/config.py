"""Settings of partition selection: what every selector has, and those of the selector itself.

Names equal the command line flags. What is not given takes the default of the method, or of the preset.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from dpbeam.accounting.arguments import instance
from dpbeam.accounting.budget import Budget, check_share, two_parts
from dpbeam.counts import DEVIATION, NOISY_COUNT
from dpbeam.errors import SettingError, constant, param
from dpbeam.families.base import OutputColumn, Release, Shown
from dpbeam.selection.known import KNOWN, NEW, ONLY_NEW
from dpbeam.selection.shown import shown_selection
from dpbeam.selectors.base import Request, Selector, Settings, check_range, setting
from dpbeam.selectors.registry import DEFAULT_METHOD, all_settings, find, selectors

if TYPE_CHECKING:
    from dpbeam.accounting.ledger import Ledger
    from dpbeam.selection.plan import SelectionPlan

MAX_ITEMS_PER_USER = 1_000_000
MAX_MIN_USERS = 1_000_000
#: Stated by a ledger where they are true alone.
_WHERE_TRUE = ("noisy_counts", "others")
#: D0 times or through this is far from a default: a larger step than any that `tune` tries or `plan` recommends.
FAR_ITEMS = 40
_DEFAULT_COUNT_SHARE = 0.2
#: Column of the output: the noisy weight of a released item.
WEIGHT = "noisy_weight"


def _method_help(selector: Selector) -> str:
    marks = [*selector.aliases, *(["default"] if selector.name == DEFAULT_METHOD else [])]
    return f"{selector.name} ({', '.join(marks)})" if marks else selector.name


def _max_items_help() -> str:
    """With the defaults of each method."""
    by_default: dict[str, list[str]] = {}
    for selector in selectors().values():
        every = {
            selector.default_items(_settings(selector, {}, {**selector.presets.get(preset, {}), **own}))
            for preset, own in map(_apart, selector.variants.values())
        }
        by_default.setdefault(" or ".join(map(str, sorted(every))), []).append(selector.name)
    defaults = [f"{value} of {', '.join(names)}" for value, names in by_default.items()]
    return f"items of a user that count (default {'; '.join(defaults)})"


def _settings(
    selector: Selector, settings: Mapping[str, Any] | Settings, preset: Mapping[str, Any]
) -> Settings:
    """The selector's settings object; they win over the preset."""
    if isinstance(settings, Settings):
        if type(settings) is not selector.settings_type:
            raise SettingError(
                f"settings of type {type(settings).__name__} do not apply to {param('method')}={selector.name}"
            )
        return settings
    described = selector.settings_type.described()
    for name in settings:
        if name not in described:
            owners = [one.name for one in selectors().values() if name in one.settings_type.described()]
            of = f"; it is of {', '.join(owners)}" if owners else ""
            raise SettingError(f"{constant(name)} does not apply to {param('method')}={selector.name}{of}")
    return selector.settings_type(**{**preset, **settings})


def _apart(variant: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The name of a variant's preset, and the settings of the method itself."""
    known = all_settings()
    return variant.get("preset", ""), {name: value for name, value in variant.items() if name in known}


@dataclass(frozen=True, init=False)
class SelectionConfig(Release):
    """What a job of partition selection is asked to do.

        SelectionConfig(epsilon=1.0, delta=1e-8, method="gsu", rounds=16)

    Attributes:
      epsilon, delta: the total budget of the selection.
      method: name of a selector of `dpbeam.selectors.registry`, or an alias.
      max_items_per_user: D0.
      min_users: no item of fewer users is released, whatever the noise; None: there is no floor.
      preset: "published" takes every setting of the method's paper.
      noisy_weights: report the noisy weight of released items.
      noisy_counts: release a noisy number of users of every released item, at `noisy_count_share` of the budget.
      others: with noisy counts, also how many users hold nothing of the output.
      settings: of the method: a mapping of what was given until `resolve`, its own settings object afterwards.
    """

    name = "select"
    summary = "release the items that many users hold"
    added = (
        OutputColumn(WEIGHT, float, "noisy_weights", nullable=True),
        OutputColumn(NOISY_COUNT, int, "noisy_counts"),
        OutputColumn(DEVIATION, float, "noisy_counts"),
        OutputColumn(NEW, bool, KNOWN),
    )

    method: str = setting(
        DEFAULT_METHOD,
        ", ".join(map(_method_help, selectors().values())),
        metavar="NAME",
        common=True,
        stated=False,
    )
    max_items_per_user: int | None = setting(None, _max_items_help(), kind=int, metavar="D0", common=True)
    min_users: int | None = setting(
        None, "release no item of fewer users, whatever the noise", kind=int, metavar="K", common=True
    )
    preset: str | None = setting(
        None, "published: every setting of the method's paper", kind=str, metavar="NAME"
    )
    noisy_weights: bool = setting(False, "report the noisy weight of released items")
    noisy_counts: bool = setting(
        False, "with every item a noisy number of its users", common=True, alone=True
    )
    noisy_count_share: float | None = setting(
        None, "share of the budget for --noisy_counts (default 0.2)", kind=float, metavar="X", alone=True
    )
    others: bool = setting(
        False,
        "with --noisy_counts, a noisy number of users that hold nothing of the output; in the ledger",
        alone=True,
    )
    settings: Mapping[str, Any] | Settings = field(default_factory=dict)

    def __init__(
        self,
        epsilon: float,
        delta: float,
        method: str = DEFAULT_METHOD,
        *,
        max_items_per_user: int | None = None,
        min_users: int | None = None,
        preset: str | None = None,
        noisy_weights: bool = False,
        noisy_counts: bool = False,
        noisy_count_share: float | None = None,
        others: bool = False,
        settings: Mapping[str, Any] | Settings | None = None,
        **options: Any,
    ):
        """Settings of the method may be given as keywords; None stands for not given.

        Raises:
          TypeError: no method has such a setting.
          InputError: a value is of another type.
        """
        arguments = {name: value for name, value in locals().items() if name not in ("self", "options")}
        known = all_settings()
        for name in options:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise TypeError(f"no method has a setting {name!r}{hint}")
        chosen = {name: value for name, value in options.items() if value is not None}
        instance("settings", settings, Mapping, Settings, optional=True)
        if isinstance(settings, Settings):
            merged: Mapping[str, Any] | Settings = replace(settings, **chosen) if chosen else settings
        else:
            merged = {**(settings or {}), **chosen}
        for name, value in {**arguments, "settings": merged}.items():
            object.__setattr__(self, name, value)
        self.__post_init__()

    @property
    def selector(self) -> Selector:
        """The algorithm.

        Raises:
          InputError: there is none of this name.
        """
        return find(self.method)

    @property
    def default_items(self) -> int:
        """D0 where none is asked for, of this method with these settings.

        Raises:
          InputError: a setting does not belong to the method.
        """
        selector = self.selector
        return selector.default_items(_settings(selector, self.settings, self._preset(selector)))

    def doubts(self) -> list[str]:
        """What is legal and perhaps a slip, a line each that begins with the name of a setting."""
        return far_from_default(self.max_items_per_user, self.default_items, self.selector.name)

    def request(self) -> Request:
        """What the selector is asked for, with every setting filled in and checked, at the budget that counts leave.

        Raises:
          InputError: a value is out of range, or a setting does not belong to the method.
        """
        Budget(self.epsilon, self.delta)
        selector = self.selector
        settings = _settings(selector, self.settings, self._preset(selector))
        if self.noisy_weights and not selector.shows_weights:
            raise SettingError(
                f"{param('noisy_weights')} does not apply to {param('method')}={selector.name}, which pays "
                "for the release of items alone"
            )
        if self.max_items_per_user is not None:
            check_range("max_items_per_user", self.max_items_per_user, 1, MAX_ITEMS_PER_USER, integer=True)
        budget = self._selection_budget()
        request = Request(*budget, self.max_items_per_user, settings, self._floor(selector) or 1)
        return selector.resolve(request)

    def _floor(self, selector: Selector) -> int | None:
        """The floor on users, None where nothing lies below it."""
        if self.min_users is None:
            return None
        check_range("min_users", self.min_users, 1, MAX_MIN_USERS, integer=True)
        if self.min_users > 1 and not selector.takes_min_users:
            raise SettingError(
                f"{param('min_users')} does not apply to {param('method')}={selector.name}: nothing says "
                "that its guarantee holds with it"
            )
        return int(self.min_users) if self.min_users > 1 else None

    def _preset(self, selector: Selector) -> Mapping[str, Any]:
        if self.preset is None:
            return {}
        if self.preset not in selector.presets:
            known = sorted({name for other in selectors().values() for name in other.presets})
            if self.preset not in known:
                raise SettingError(
                    f"{param('preset')} must be one of {', '.join(known)}, got {self.preset!r}"
                )
            raise SettingError(
                f"{param('preset')}={self.preset} does not exist for {param('method')}={selector.name}"
            )
        return selector.presets[self.preset]

    def resolve(self) -> SelectionConfig:
        """The same with every setting of the method filled in and checked.

        Raises:
          InputError: see `request`.
        """
        request = self.request()
        return replace(
            self,
            noisy_count_share=self._count_share(),
            method=self.selector.name,
            max_items_per_user=request.max_items,
            min_users=self._floor(self.selector),
            settings=request.settings,
        )

    def _selection_budget(self) -> tuple[float, float]:
        share = self._count_share()
        return (self.epsilon, self.delta) if share is None else two_parts(self.epsilon, self.delta, share)[0]

    def _count_share(self) -> float | None:
        if not self.noisy_counts:
            if self.noisy_count_share is not None:
                raise SettingError(f"{param('noisy_count_share')} needs {param('noisy_counts')}")
            if self.others:
                raise SettingError(
                    f"{param('others')} needs {param('noisy_counts')}: it is read from their histogram"
                )
            return None
        if self.noisy_weights:
            raise SettingError(
                f"{param('noisy_counts')} and {param('noisy_weights')} exclude each other: counts say more"
            )
        share = _DEFAULT_COUNT_SHARE if self.noisy_count_share is None else self.noisy_count_share
        check_share("noisy_count_share", share)
        return share

    def plan(self, *public: Any) -> SelectionPlan:
        from dpbeam.selection.plan import make_plan

        return make_plan(self)

    @classmethod
    def asked(cls, values: Mapping[str, Any], public: str | None = None) -> SelectionConfig:
        """As of `Release`; the constants of the method stand under `settings`."""
        own = {name: values[name] for name in cls.described() if values.get(name) is not None}
        return cls(values["epsilon"], values["delta"], **own, **values.get("settings", {}))

    @classmethod
    def selection_of(cls, plan: SelectionPlan) -> SelectionPlan:
        return plan

    @classmethod
    def wrote(cls, method: str) -> bool:
        return method in selectors()

    @classmethod
    def ledger(cls, plan: SelectionPlan, **run: Any) -> Ledger:
        """As of `dpbeam.selection.ledger.selection_ledger`."""
        from dpbeam.selection.ledger import selection_ledger

        return selection_ledger(plan, **run)

    @classmethod
    def follows(cls, plan: SelectionPlan) -> dict[str, Any]:
        from dpbeam.selection.ledger import count_parameters

        return count_parameters(plan)

    @classmethod
    def of_ledger(cls, ledger: Ledger) -> SelectionConfig:
        return cls.of_parameters(ledger.epsilon, ledger.delta, ledger.method, ledger.parameters)

    @classmethod
    def of_parameters(
        cls, epsilon: float, delta: float, method: str, parameters: Mapping[str, Any]
    ) -> SelectionConfig:
        """The settings of a selection among a ledger's parameters.

        Raises:
          InputError, TypeError: they are none.
        """
        from dpbeam.counts.selection import COUNT_DEVIATION
        from dpbeam.selection.ledger import OTHERS_DEVIATION

        apart = ("account", "input", "output", KNOWN, ONLY_NEW, COUNT_DEVIATION, OTHERS_DEVIATION)
        values = {name: value for name, value in parameters.items() if name not in apart}
        values = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
        return cls(epsilon, delta, method, **values)

    @classmethod
    def report(cls, plan: SelectionPlan) -> dict[str, Any]:
        from dpbeam.selection.report import plan_report

        return plan_report(plan)

    @classmethod
    def shown(cls, report: Mapping[str, Any]) -> Iterator[Shown]:
        return shown_selection(report)

    def stated(self) -> dict[str, Any]:
        """Resolved settings as JSON values for the ledger, those of the method alone."""
        settings = self.settings.set_values() if isinstance(self.settings, Settings) else self.settings
        values = {**super().stated(), **settings}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in values.items()
            if value is not None and (value is not False or name not in _WHERE_TRUE)
        }

    def with_budget(self, epsilon: float, delta: float) -> SelectionConfig:
        """The same settings at another budget."""
        return replace(self, epsilon=epsilon, delta=delta)


def far_from_default(max_items: int | None, default: int, method: str) -> list[str]:
    """A line if D0 is far from the default of its method, above or below."""
    if max_items is None or default / FAR_ITEMS <= max_items <= default * FAR_ITEMS:
        return []
    return [
        f"max_items_per_user={max_items} is far from {default}, the default of {method}: too few leave out what users "
        "hold, too many raise the thresholds; dpbeam tune finds a good number on public data"
    ]
