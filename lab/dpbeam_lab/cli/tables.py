"""What the commands of the lab show, as tables on the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from dpbeam.cli.tables import show
from dpbeam.selection.shown import as_typed, short


def print_evaluation(result: dict[str, Any], meanings: Mapping[tuple[str, str], str]) -> None:
    """Print what `evaluate_release` found, each figure with its meaning: (section, name) -> words."""
    show(lambda console: _evaluation(result, meanings, console))


def print_tuning(report: dict[str, Any]) -> None:
    """Print what `dpbeam tune` found: every method and setting at its best D0."""
    show(lambda console: _tuning(report, console))


def _pick(flags: Mapping[str, Any]) -> dict[str, Any]:
    """The pick of `dpbeam tune` as flat settings."""
    return {name: value for name, value in flags.items() if name != "settings"} | flags.get("settings", {})


def not_run(report: dict[str, Any]) -> str:
    """What `dpbeam tune` did not come to."""
    methods = ", ".join(report["methods_not_run"])
    whole = f", nothing at all of {methods}" if methods else ""
    choices = report["not_run"] + len(report["choices"])
    return f"{report['not_run']} of {choices} choices were not run for lack of time{whole}"


def model_error(report: dict[str, Any]) -> list[str]:
    """How far what `dpbeam tune` expects of a model may be off, in lines; none for data."""
    if "model_error" not in report:
        return []
    error = report["model_error"]
    (least, most), (low, high) = error["items"], error["promise_over_truth"]
    lines = [
        f"a model, not data: such models promised {low:g} to {high:g} times what public sets gave, so the pick "
        f"may release {least:,.0f} to {most:,.0f} items"
    ]
    if error["near"]:
        near = ", ".join(f"{name} ({100 * share:.0f} % of the pick)" for name, share in error["near"].items())
        guessed = not report["not_private"] and "rare_items_per_user" not in report["source"]
        known = "--rare_items_per_user or " if guessed else ""
        lines.append(
            f"unsure of the method: near are {near}, and such a model's ratio of two methods was up to "
            f"{error['ratio_of_methods']:g} times off; {known}public data tell more"
        )
    return lines


def _evaluation(result: dict[str, Any], meanings: Mapping[tuple[str, str], str], console: Console) -> None:
    table = Table("figure", "value", "what it says", title="NOT PRIVATE: computed from the data itself")
    before = ""
    for (section, name), meaning in meanings.items():
        if section and section not in result:
            continue
        value = (result[section] if section else result)[name]
        if section != before:
            table.add_section()
            before = section
        table.add_row(f"{section} {name}".strip(), short(value), meaning)
    console.print(table)


def _tuning(report: dict[str, Any], console: Console) -> None:
    source = report["source"]
    known = "  ".join(
        f"{name}={short(value)}" for name, value in source.items() if name not in ("of", "says")
    )
    console.print(source["says"], f"{source['of']}: {known}", sep="\n", highlight=False, soft_wrap=True)
    table = Table(
        "method and settings", "best D0", "trips", "items", "pairs", "runs", "", title="Expected output"
    )
    seen: set[str] = set()
    for row in report["choices"]:  # the largest first
        picked = row == report["pick"]
        if row["choice"] in seen and not picked:
            continue
        seen.add(row["choice"])
        mark = "pick" if picked else "best" if row == report["best"] else ""
        error = "" if row["error"] is None or report["aim"] != "items" else f" ± {_plain(row['error'])}"
        table.add_row(
            row["choice"],
            str(row["max_items_per_user"]),
            str(row["trips"]),
            f"{row['items']:,.0f}{error}",
            f"{100 * row['pairs']:.1f} %",
            str(row["repetitions"]),
            mark,
        )
    console.print(table)
    late = f"; {not_run(report)}" if report["not_run"] else ""
    console.print(
        f"{len(report['choices'])} choices{late}. ± is the standard error of the mean, from three runs on.",
        *model_error(report),
        f"pick: fewest trips within {100 * report['tolerance']:g} % of the best, then most {report['aim']}:",
        f"  dpbeam select {as_typed(_pick(report['flags']))}",
        sep="\n",
        highlight=False,
        soft_wrap=True,
    )


def _plain(value: float) -> str:
    """Two digits at least, and no exponent."""
    return f"{value:,.0f}" if abs(value) >= 9.95 else f"{value:.2g}"
