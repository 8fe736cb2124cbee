"""The plan of a selection, as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dpbeam.families.base import Shown, Table
from dpbeam.selectors.registry import as_flags


def shown_selection(report: Mapping[str, Any]) -> Iterator[Shown]:
    """`plan_report` for the terminal: what a person wants to know first, the constants last."""
    from dpbeam.selection.report import even_chance

    yield f"{report['method']}  epsilon {report['epsilon']:g}  delta {report['delta']:g}"
    if chance := even_chance(report):
        yield chance
    if "recommended" in report:
        yield recommendation(report["recommended"])
    yield _needed(report)
    yield "  ".join(f"{name}={short(value)}" for name, value in report["parameters"].items())
    rounds = [
        (
            str(row["round"]),
            f"{row['sigma']:.4f}",
            "not tested" if row["threshold"] is None else f"{row['threshold']:.4f}",
            f"{row['statistic_sigma']:.4f}",
        )
        for row in report["rounds"]
    ]
    yield Table(
        ("round", "sigma", "threshold", "noise of what is compared"), tuple(rounds), "Noise and thresholds"
    )
    if "floor" in report:
        yield _floor(report["floor"])
    if "others_sd" in report:
        yield f"others: users that hold nothing of the output, standard deviation {report['others_sd']:.2f}"


def _needed(report: Mapping[str, Any]) -> Table:
    limit = report["limit_of_any_algorithm"]
    names = tuple(limit)  # users_0.05, ...
    needed = [
        (str(row["items_per_user"]), f"{row['weight']:.4f}", *(_users(row[name]) for name in names))
        for row in report["users_needed"]
    ]
    needed.append(("limit of any algorithm", "", *(str(limit[name]) for name in names)))
    percent = (f"{100 * float(name.removeprefix('users_')):g} %" for name in names)
    return Table(
        ("items per user", "weight each", *percent),
        tuple(needed),
        "Users an item needs to be released with probability",
    )


def _users(count: int | None) -> str:
    return "never" if count is None else str(count)


def _floor(floor: Mapping[str, Any]) -> str:
    more = ", ".join(
        f"{_users(row['users'])} where users hold {row['items_per_user']}" for row in floor["more_users_0.5"]
    )
    return (
        f"floor: no item of fewer than {floor['min_users']} users; {floor['weight']:.6g} is taken off every weight "
        f"before noise. More users for 50 %: {more}"
    )


def recommendation(advice: Mapping[str, Any]) -> str:
    """One line: the flags, and why."""
    settings = {name: value for name, value in advice.items() if name != "why"}
    return f"recommended: {as_typed(settings)} ({advice['why']})"


def as_typed(settings: Mapping[str, Any]) -> str:
    """Settings of a selection as they are typed: `--method=gsu --set rounds=16`."""
    flags = as_flags(settings)
    constants = flags.pop("set", {})
    return " ".join(
        [
            *(f"--{name}={short(value)}" for name, value in flags.items()),
            *(f"--set {name}={short(value)}" for name, value in constants.items()),
        ]
    )


def short(value: Any) -> str:
    """A setting as text, numbers in six digits."""
    if isinstance(value, list | tuple):
        return ",".join(short(item) for item in value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)
