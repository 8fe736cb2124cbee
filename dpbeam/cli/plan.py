"""`dpbeam plan`: what a method and budget mean, before any data."""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Sequence
from typing import Any

from dpbeam.cli import hitting_set, pack, select, top_k
from dpbeam.cli.flags import FlagParser, add_budget_flags, add_method_flags, require
from dpbeam.cli.settings import naming_selector
from dpbeam.errors import InputError
from dpbeam.jobs.checks import check_budget, warn_of_budget, within_arithmetic
from dpbeam.jobs.console import emit, run_command
from dpbeam.selectors.registry import advised, find

#: Family -> its command.
_JOBS = {"select": select, "top-k": top_k, "hitting-set": hitting_set, "pack": pack}
SELECT, TOP_K, HITTING_SET, PACK = _JOBS
#: Flags of some families alone -> those families, the first of which it is said to be of.
_FAMILIES_OF = {
    **dict.fromkeys(top_k.CHOICE_FLAGS, (TOP_K,)),
    **dict.fromkeys(("noisy_counts", "noisy_count_share"), (TOP_K, SELECT)),
    **dict.fromkeys(("k", "selector", "selector_share", "public_domain"), (TOP_K, HITTING_SET)),
}


def make_parser() -> FlagParser:
    parser = FlagParser(
        "plan",
        "Sigma, thresholds and keep probabilities of a method and budget, or of the job of a --config file: of top-k "
        "where it has a k and --family says nothing else.",
        beam=False,
    )
    add_budget_flags(parser)
    add_method_flags(parser)
    top_k.add_choice_flags(parser)
    parser.add_argument(
        "--family",
        metavar="NAME",
        help="select, top-k (default with --k), hitting-set, or pack: of a market, from --supplies and --num_agents",
    )
    pack.add_packing_flags(parser)
    parser.add_switch(
        "public_domain", "top-k, hitting-set: the domain, or a histogram's items, are public: no selection"
    )
    parser.add_argument(
        "--users_at_least",
        type=int,
        metavar="N",
        help="how many users there publicly are; --delta is held against it",
    )
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
    given, _ = make_parser().parse(argv, files=_job_parser())
    require(given, "epsilon", "delta")
    family = _family(given)
    if family == PACK:
        require(given, "supplies", "num_agents")
    check_budget(given, zero_delta=family == TOP_K)
    if family != PACK:
        _check_choice(given, family)
    if family != SELECT:
        _JOBS[family].make_parser().refuse_discarded(given)
    named = naming_selector() if family in (TOP_K, HITTING_SET) else contextlib.nullcontext()
    with within_arithmetic(given), named:
        report = _REPORTS[family](given)
    warn_of_budget(given)
    if given.get("json", False):
        emit(json.dumps(report, indent=2))
        return 0
    from dpbeam.cli import tables

    {
        SELECT: tables.print_plan,
        TOP_K: tables.print_topk_plan,
        HITTING_SET: tables.print_hitting_set_plan,
        PACK: tables.print_packing_plan,
    }[family](report)
    return 0


def _family(given: dict[str, Any]) -> str:
    """What is planned.

    Raises:
      InputError: --family names none, or flags of packing are given without it.
    """
    family = given.get("family")
    if family not in (None, *_JOBS):
        raise InputError(f"--family: expected {', '.join(_JOBS)}, got '{family}'")
    if family == PACK or (family is None and "agents" in given):
        return PACK
    for name in (*pack.SETTINGS, *pack.MARKET):
        if name in given:
            raise InputError(f"--{name} is of pack: give --family=pack too, or drop it")
    return family or (TOP_K if "k" in given else SELECT)


def _check_choice(given: dict[str, Any], family: str) -> None:
    """Refuse flags of other families than that of what is chosen, and a choice without its k."""
    for name, families in _FAMILIES_OF.items():
        if name in given and family not in families:
            mend = "drop it" if "k" in given else "give --k too, or drop it"
            raise InputError(f"--{name} is of {families[0]}: {mend}")
    if family == SELECT:
        return
    require(given, "k")
    if "items_per_user" in given:
        raise InputError("--items_per_user recommends a method of select: drop it, or --k")


def _job_parser() -> FlagParser:
    """Every flag that the file of a job may hold."""
    parser = FlagParser("plan", "")
    for job in _JOBS.values():
        parser.adopt(job.make_parser())
    parser.adopt(make_parser())
    return parser


def _selection_report(given: dict[str, Any]) -> dict[str, Any]:
    from dpbeam.selection.plan import make_plan
    from dpbeam.selection.report import plan_report

    degrees = given.get("degrees")
    if degrees and min(degrees) < 1:
        raise InputError("--degrees must be at least 1")
    chosen, advice = _advised(given)
    return {**plan_report(make_plan(select.config_of(chosen)), degrees), **advice}


def _topk_report(given: dict[str, Any]) -> dict[str, Any]:
    from dpbeam.topk.config import plan_topk
    from dpbeam.topk.report import topk_report

    return topk_report(plan_topk(top_k.config_of(given)))


def _hitting_set_report(given: dict[str, Any]) -> dict[str, Any]:
    from dpbeam.hitting.config import plan_hitting_set
    from dpbeam.hitting.report import hitting_set_report

    return hitting_set_report(plan_hitting_set(hitting_set.config_of(given)))


def _packing_report(given: dict[str, Any]) -> dict[str, Any]:
    from dpbeam.packing.report import packing_report

    resources = pack.read_supplies(given["supplies"])
    return packing_report(pack.plan_of(given, pack.config_of(given), resources, None))


_REPORTS = {
    SELECT: _selection_report,
    TOP_K: _topk_report,
    HITTING_SET: _hitting_set_report,
    PACK: _packing_report,
}


def _advised(given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The flags, completed by what is recommended unless another method is given; and the recommendation to report."""
    if "items_per_user" not in given:
        return given, {}
    selector, advice = advised(given["items_per_user"])
    recommended = {"method": selector.name, **advice.settings}
    report = {"recommended": {**recommended, "why": advice.why}}
    other = "method" in given and find(given["method"]) is not selector
    return (given if other else {**recommended, **given}), report
