"""Plans as tables on the terminal."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.table import Table

from dpbeam.cli.console import emit
from dpbeam.selection.report import PROBABILITIES


def print_plan(report: dict[str, Any]) -> None:
    """Print a plan report: settings, rounds, users needed."""
    show(lambda console: _plan(report, console))


def print_topk_plan(report: dict[str, Any]) -> None:
    """Print a plan report of top-k: the selection's as above, then the choice and what errors to expect."""
    show(lambda console: _topk_plan(report, console))


def print_packing_plan(report: dict[str, Any]) -> None:
    """Print a plan report of packing: supply, noise, rounds."""
    show(lambda console: _packing_plan(report, console))


def print_hitting_set_plan(report: dict[str, Any]) -> None:
    """Print a plan report of hitting-set: the selection's as above, then the choices."""
    show(lambda console: _hitting_set_plan(report, console))


def print_evaluation(result: dict[str, Any]) -> None:
    """Print what `evaluate_release` found, each figure with its meaning."""
    show(lambda console: _evaluation(result, console))


def print_tuning(report: dict[str, Any]) -> None:
    """Print what `dpbeam tune` found: every method and setting at its best D0."""
    show(lambda console: _tuning(report, console))


def show(draw: Callable[[Console], None], width: int = 110) -> None:
    """Print what `draw` draws, as the product of the command."""
    drawn = io.StringIO()
    draw(Console(file=drawn, width=width, force_terminal=sys.stdout is not None and sys.stdout.isatty()))
    emit(drawn.getvalue().removesuffix("\n"))


def not_run(report: dict[str, Any]) -> str:
    """What `dpbeam tune` did not come to."""
    methods = ", ".join(report["methods_not_run"])
    whole = f", nothing at all of {methods}" if methods else ""
    choices = report["not_run"] + len(report["choices"])
    return f"{report['not_run']} of {choices} choices were not run for lack of time{whole}"


def _plan(report: dict[str, Any], console: Console) -> None:
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
    if "floor" in report:
        console.print(_floor(report["floor"]), highlight=False, soft_wrap=True)


def _floor(floor: dict[str, Any]) -> str:
    more = ", ".join(
        f"{'never' if row['users'] is None else row['users']} where users hold {row['items_per_user']}"
        for row in floor["more_users_0.5"]
    )
    return (
        f"floor: no item of fewer than {floor['min_users']} users; {floor['weight']:.6g} is taken off every weight "
        f"before noise. More users for 50 %: {more}"
    )


def _packing_plan(report: dict[str, Any], console: Console) -> None:
    resources, agents = len(report["resources"]), report["num_agents"]
    head = f"packing  epsilon {report['epsilon']:g}  delta {report['delta']:g}  alpha {report['alpha']:g}"
    console.print(head, f"{agents} agents, {resources} resources", sep="\n", highlight=False)
    rows = Table("what", "value")
    verdict = "suffices" if report["suffices"] else "TOO SMALL"
    rows.add_row(
        "supply of the scarcest resource, over its largest demand", f"{report['supply']:.6g}  {verdict}"
    )
    rows.add_row("supply that alpha needs", f"{report['supply_needed']:.6g}")
    rows.add_row("l2-sensitivity of the total demand", f"{report['sensitivity']:.4f}")
    rows.add_row("deviation of the noise in the averaged demand", f"{report['noise_deviation']:.4g}")
    margin = f"{report['overuse_margin']:.4g}  ({100 * report['margin_share']:.2f} % of the supply)"
    beta = report["failure_probability"]
    rows.add_row(f"margin for overuse with probability {beta:g}", margin)
    rows.add_row("rounds, typically; at most", f"{report['typical_rounds']}; {report['rounds_limit']}")
    console.print(rows)


def _topk_plan(report: dict[str, Any], console: Console) -> None:
    head = f"top-k  k {report['k']}  epsilon {report['epsilon']:g}  delta {report['delta']:g}"
    _domain_stage(head, report, console)
    noise = Table("stage", "what", "value", title="Choice and noise")
    noise.add_row("choice", "mechanism", report["mechanism"])
    for name, value in report["choice_budget"].items():
        used = " (used)" if name == report["composition"] else ""
        noise.add_row("choice", f"budget under {name} composition{used}", f"{value:.5f}")
    if report["noisy_count_deviation"] is not None:
        what = f"standard deviation, {report['noisy_count_noise']}"
        noise.add_row("noisy counts", what, f"{report['noisy_count_deviation']:.2f}")
    console.print(noise)
    if not report["expected_errors"]:
        console.print("expected errors are simulated for --k up to 1000", highlight=False)
        return
    title = "Errors of the choice where rank r is held by 1/r of the users of the first"
    errors = Table(
        "users of the first", "of the top k found", "rank off by", "count off by at most", title=title
    )
    for row in report["expected_errors"]:
        values = (f"{100 * row['found']:.1f} %", f"{row['rank_error']:.2f}", f"{row['count_error']:.1f}")
        errors.add_row(str(row["top_count"]), *values)
    console.print(errors)


def _domain_stage(head: str, report: dict[str, Any], console: Console) -> None:
    console.print(head, highlight=False)
    if report["selection"] is not None:
        console.print(f"selection of the items, {report['selector_share']:g} of the budget:", highlight=False)
        _plan(report["selection"], console)
    else:
        where = "the public domain" if report["public_domain"] else "an unknown domain"
        console.print(f"no selection: items of {where}", highlight=False)


def _hitting_set_plan(report: dict[str, Any], console: Console) -> None:
    head = f"hitting-set  k {report['k']}  epsilon {report['epsilon']:g}  delta {report['delta']:g}"
    _domain_stage(head, report, console)
    noise = Table("what", "value", title="Choices")
    for name, value in report["choice_range"].items():
        used = " (used)" if name == report["composition"] else ""
        noise.add_row(f"range of a choice under {name} composition{used}", f"{value:.5f}")
    noise.add_row("probability with which a user takes part", f"{report['rate']:g}")
    hard = f"standard deviation of the count of an item of {report['hard_count']} users"
    noise.add_row(hard, f"{report['deviation']:.1f}")
    for row in report["lost_users"]:
        what = f"users that a choice among {row['domain']} items loses to noise, at most on average"
        noise.add_row(what, f"{row['users']:.1f}")
    console.print(noise)


def _evaluation(result: dict[str, Any], console: Console) -> None:
    from dpbeam.evaluation.quality import MEANINGS

    table = Table("figure", "value", "what it says", title="NOT PRIVATE: computed from the data itself")
    before = ""
    for (section, name), meaning in MEANINGS.items():
        if section and section not in result:
            continue
        value = (result[section] if section else result)[name]
        if section != before:
            table.add_section()
            before = section
        table.add_row(f"{section} {name}".strip(), _short(value), meaning)
    console.print(table)


def _tuning(report: dict[str, Any], console: Console) -> None:
    source = report["source"]
    known = "  ".join(
        f"{name}={_short(value)}" for name, value in source.items() if name not in ("of", "says")
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
        f"pick: fewest trips within {100 * report['tolerance']:g} % of the best, then most {report['aim']}:",
        "  dpbeam select " + " ".join(f"--{n}={_short(v)}" for n, v in report["flags"].items()),
        sep="\n",
        highlight=False,
        soft_wrap=True,
    )


def _plain(value: float) -> str:
    """Two digits at least, and no exponent."""
    return f"{value:,.0f}" if abs(value) >= 9.95 else f"{value:.2g}"


def recommendation(found: dict[str, Any]) -> str:
    """One line: the flags, and why."""
    flags = " ".join(f"--{name}={_short(value)}" for name, value in found.items() if name != "why")
    return f"recommended: {flags} ({found['why']})"


def _short(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(_short(item) for item in value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)
