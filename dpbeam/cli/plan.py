"""`dpbeam plan`: what a method and budget mean, before any data."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

from dpbeam.cli.console import run_command
from dpbeam.cli.flags import FlagParser, add_budget_flags, add_method_flags, require
from dpbeam.cli.settings import selection_config
from dpbeam.errors import InputError
from dpbeam.selectors.registry import advised, find


def _parser() -> FlagParser:
    parser = FlagParser(
        "plan", "Sigma, thresholds and keep probabilities of a method and budget.", beam=False
    )
    add_budget_flags(parser)
    add_method_flags(parser)
    parser.add_argument("--degrees", type=_degrees, metavar="D,D,...", help="items per user to tabulate")
    parser.add_argument(
        "--items_per_user",
        type=float,
        metavar="X",
        help="how many items users typically hold, from public knowledge and never from the data: recommends a method",
    )
    parser.add_switch("json", "print JSON instead of tables")
    return parser


def _degrees(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected comma-separated integers, got '{text}'") from None


def main(argv: Sequence[str]) -> int:
    """Entry point; returns the exit code."""
    return run_command("plan", lambda: _run(argv))


def _run(argv: Sequence[str]) -> int:
    given, _ = _parser().parse(argv)
    require(given, "epsilon", "delta")
    from dpbeam.selection.plan import make_plan
    from dpbeam.selection.report import plan_report

    degrees = given.get("degrees")
    if degrees and min(degrees) < 1:
        raise InputError("--degrees must be at least 1")
    chosen, advice = _advised(given)
    report = {**plan_report(make_plan(selection_config(chosen)), degrees), **advice}
    if given.get("json", False):
        print(json.dumps(report, indent=2))
    else:
        from dpbeam.cli.tables import print_plan

        print_plan(report)
    return 0


def _advised(given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The flags, completed by what is recommended unless another method is given; and the recommendation to report."""
    if "items_per_user" not in given:
        return given, {}
    selector, advice = advised(given["items_per_user"])
    recommended = {"method": selector.name, **advice.settings}
    report = {"recommended": {**recommended, "why": advice.why}}
    other = "method" in given and find(given["method"]) is not selector
    return (given if other else {**recommended, **given}), report
