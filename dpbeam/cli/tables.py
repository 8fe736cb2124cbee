"""Plans as tables on the terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from dpbeam.selection.report import PROBABILITIES


def print_plan(report: dict[str, Any], console: Console | None = None) -> None:
    """Print a plan report: settings, rounds, users needed."""
    console = console or Console(width=110)
    head = f"{report['method']}  epsilon {report['epsilon']:g}  delta {report['delta']:g}"
    settings = "  ".join(f"{name}={_short(value)}" for name, value in report["parameters"].items())
    console.print(head, settings, sep="\n", highlight=False, soft_wrap=True)
    if "recommended" in report:
        console.print(recommendation(report["recommended"]), highlight=False, soft_wrap=True)
    rounds = Table("round", "sigma", "threshold", "noise of what is compared", title="Noise and thresholds")
    for row in report["rounds"]:
        threshold = "not tested" if row["threshold"] is None else f"{row['threshold']:.4f}"
        rounds.add_row(str(row["round"]), f"{row['sigma']:.4f}", threshold, f"{row['statistic_sigma']:.4f}")
    console.print(rounds)
    percent = [f"{100 * p:g} %" for p in PROBABILITIES]
    needed = Table(
        "items per user", "weight each", *percent, title="Users an item needs to be released with probability"
    )
    for row in report["users_needed"]:
        users = [str(row[f"users_{p:g}"]) for p in PROBABILITIES]
        needed.add_row(str(row["items_per_user"]), f"{row['weight']:.4f}", *users)
    limit = report["limit_of_any_algorithm"]
    needed.add_row("limit of any algorithm", "", *(str(limit[f"users_{p:g}"]) for p in PROBABILITIES))
    console.print(needed)


def recommendation(found: dict[str, Any]) -> str:
    """One line: the flags, and why."""
    flags = " ".join(f"--{name}={_short(value)}" for name, value in found.items() if name != "why")
    return f"recommended: {flags} ({found['why']})"


def _short(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(_short(item) for item in value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)
