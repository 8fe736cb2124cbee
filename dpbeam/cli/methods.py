"""`dpbeam methods`: the methods of selection, and the constants that `--set` takes."""

from __future__ import annotations

from typing import Any

from dpbeam.cli.flags import FlagParser, entry_point
from dpbeam.cli.settings import naming_selector
from dpbeam.jobs.options import Options, flag
from dpbeam.selection.shown import short
from dpbeam.selectors.base import Request, Selector, Setting
from dpbeam.selectors.registry import DEFAULT_METHOD, find, selectors

#: Defaults that depend on the budget are those at this one.
_EPSILON, _DELTA = 1.0, 1e-5
_KINDS = {
    int: "an integer",
    float: "a number",
    bool: "true, false",
    tuple: "numbers with commas",
    str: "a name",
}


class MethodsOptions(Options):
    """Which method."""

    name: str | None = flag("NAME", "a method (default: all)", nargs="?", positional=True)


def make_parser() -> FlagParser[MethodsOptions]:
    text = (
        "The methods of selection and their constants: default, range, meaning. A run takes another value by "
        "--set NAME=VALUE, or under `settings:` in a --config file."
    )
    return FlagParser("methods", text, MethodsOptions, beam=False)


@entry_point("methods", make_parser)
def main(options: MethodsOptions) -> int:
    with naming_selector("NAME"):
        chosen = list(selectors().values()) if options.name is None else [find(options.name)]
    from rich.table import Table

    from dpbeam.cli.tables import show

    def draw(console: Any) -> None:
        for selector in chosen:
            console.print(_heading(selector), highlight=False)
            if not selector.settings_type.described():
                continue
            table = Table(box=None, padding=(0, 2, 0, 2))
            for title in ("constant", "default", "values", "meaning"):
                table.add_column(title, overflow="fold")
            for row in _rows(selector):
                table.add_row(*row)
            console.print(table)
        console.print(
            f"Defaults are those at epsilon {short(_EPSILON)} and delta {short(_DELTA)}.", highlight=False
        )

    show(draw)
    return 0


def _heading(selector: Selector) -> str:
    """Name, what it does, how many items of a user count, and its presets."""
    names = ", ".join((selector.name, *selector.aliases))
    default = " (default)" if selector.name == DEFAULT_METHOD else ""
    presets = f"; presets: {', '.join(selector.presets)}" if selector.presets else ""
    return (
        f"{names}{default}: {selector.summary}. --max_items_per_user {_resolved(selector).max_items}{presets}"
    )


def _rows(selector: Selector) -> list[tuple[str, str, str, str]]:
    resolved = _resolved(selector).settings
    return [
        (name, _text(getattr(resolved, name)), _values(described), described.help)
        for name, described in selector.settings_type.described().items()
    ]


def _resolved(selector: Selector) -> Request:
    return selector.resolve(Request(_EPSILON, _DELTA, None, selector.settings_type()))


def _values(described: Setting) -> str:
    """What a constant may be."""
    if described.choices:
        return ", ".join(described.choices)
    if described.low is not None and described.high is not None:
        return f"{_KINDS[described.kind]} from {described.low:.10g} to {described.high:.10g}"
    return _KINDS[described.kind]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return short(list(value) if isinstance(value, tuple) else value)
