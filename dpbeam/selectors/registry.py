"""The selectors that there are: one line each. Everything else that speaks of methods walks this registry."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from dpbeam.errors import SettingError, SetupError, param
from dpbeam.plugins import SELECTORS, added, load
from dpbeam.selectors.base import Advice, Selector, Setting, Settings, check_range

#: module:class of every selector, in the order of help.
_BUILT_IN = (
    "dpbeam.selectors.uniform:Basic",
    "dpbeam.selectors.uniform:DpSips",
    "dpbeam.selectors.mad:Mad",
    "dpbeam.selectors.mad:Mad2r",
    "dpbeam.selectors.gsu:Gsu",
    "dpbeam.selectors.laplace:Laplace",
    "dpbeam.selectors.vote:Vote",
    "dpbeam.selectors.bits:Bits",
)
_added: dict[str, Selector] = {}

DEFAULT_METHOD = "gsu"


@functools.cache
def _installed() -> dict[str, Selector]:
    """dpbeam's own, and what other distributions add."""
    known: dict[str, Selector] = {}
    for entry in (*_BUILT_IN, *added(SELECTORS).values()):
        try:
            _add(load(entry)(), known)
        except ValueError as error:
            raise SetupError(f"the selector '{entry}' of an installed distribution: {error}") from None
    return known


def selectors() -> Mapping[str, Selector]:
    """All selectors by name."""
    return MappingProxyType({**_installed(), **_added})


def register(selector: Selector) -> Selector:
    """Add a selector from outside of the package, for this process; returns it.

    Workers need none of it: programs travel as they are. A distribution that names its selector under the group
    `dpbeam.selectors` of its entry points needs no call.

    Raises:
      ValueError: its name or an alias is taken, or it does not say what is asked of a selector.
    """
    known = dict(selectors())
    _add(selector, known)
    _added[selector.name] = selector
    return selector


def _add(selector: Selector, known: dict[str, Selector]) -> None:
    check_selector(selector)
    taken = {name for other in known.values() for name in (other.name, *other.aliases)}
    for name in (selector.name, *selector.aliases):
        if name in taken:
            raise ValueError(f"a selector is named {name!r} already")
    known[selector.name] = selector


def check_selector(selector: Selector) -> None:
    """Refuse a selector that does not say what is asked of one.

    Raises:
      ValueError: naming its class and what is missing.
    """
    kind = type(selector).__name__
    for name, wanted in (("name", str), ("summary", str), ("variants", Mapping)):
        value = getattr(selector, name, None)
        if not isinstance(value, wanted) or not value:
            raise ValueError(f"selector {kind} has no {name}")
    if not issubclass(selector.settings_type, Settings):
        raise ValueError(f"settings_type of selector {kind} is no Settings")
    known = {"preset", "max_items_per_user", *selector.settings_type.described()}
    for variant, settings in selector.variants.items():
        for name in settings:
            if name not in known:
                raise ValueError(
                    f"variant {variant!r} of selector {kind} sets {name}, which it does not have"
                )


def find(name: str) -> Selector:
    """The selector of a name or an alias.

    Raises:
      InputError: there is none.
    """
    known = selectors()
    aliases = {alias: selector for selector in known.values() for alias in selector.aliases}
    if name in known:
        return known[name]
    if name in aliases:
        return aliases[name]
    raise SettingError(f"{param('method')} must be one of {', '.join((*known, *aliases))}, got {name!r}")


def advised(items_per_user: float, rare_items: float | None = None) -> tuple[Selector, Advice]:
    """The selector for users that typically hold so many items.

    Args:
      rare_items: see `Selector.advice`.

    Raises:
      InputError: not a number from 1.
    """
    check_range("items_per_user", items_per_user, 1.0, 1e9)
    if rare_items is not None:
        check_range("rare_items_of_holder", rare_items, 1.0, 1e9)
    known = ((selector, selector.advice(items_per_user, rare_items)) for selector in selectors().values())
    return next((selector, advice) for selector, advice in known if advice is not None)


def variants() -> dict[str, dict[str, Any]]:
    """The variants of all selectors by name, each with its method: keywords of a `SelectionConfig`."""
    return {
        name: {"method": selector.name, **settings}
        for selector in selectors().values()
        for name, settings in selector.variants.items()
    }


def defaults() -> dict[str, dict[str, Any]]:
    """The first variant of every selector, its default, by name."""
    first = {next(iter(selector.variants)) for selector in selectors().values()}
    return {name: settings for name, settings in variants().items() if name in first}


def as_flags(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as the command line takes them: flags by name, and the constants of the method under `set`."""
    known = all_settings()
    constants = {name: value for name, value in settings.items() if name in known}
    flags = {name: value for name, value in settings.items() if name not in known}
    return {**flags, "set": constants} if constants else flags


def all_settings() -> dict[str, dict[str, Setting]]:
    """Setting name -> {selector name: setting} over all selectors."""
    by_setting: dict[str, dict[str, Setting]] = {}
    for selector in selectors().values():
        for name, described in selector.settings_type.described().items():
            by_setting.setdefault(name, {})[selector.name] = described
    return by_setting
