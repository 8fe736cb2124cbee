"""`dpbeam evaluate`: how much of the private data the released items cover. NOT PRIVATE."""

from __future__ import annotations

import json
from collections.abc import Sequence

from dpbeam.cli.flags import READ, FlagParser, add_budget_flags, add_input_flags, require
from dpbeam.jobs.checks import check_budget
from dpbeam.jobs.console import emit, run_command


def make_parser() -> FlagParser:
    text = "Compare released items with the private data, in memory. What it prints is NOT PRIVATE."
    parser = FlagParser("evaluate", text, beam=False)
    add_input_flags(parser)
    add_budget_flags(parser)
    parser.add_argument(
        "--released", metavar="FILE", type=READ, help="output of a run (a file or glob); required"
    )
    parser.add_argument(
        "--ledger",
        metavar="FILE",
        type=READ,
        help="its ledger, for epsilon, delta and D0, in place of the flags",
    )
    parser.add_switch(
        "full_knowledge",
        "with the best that any weights under one Gaussian could release (default; about 10 s per million pairs)",
    )
    parser.add_switch("json", "print JSON instead of a table with explanations")
    return parser


def main(argv: Sequence[str]) -> int:
    """Entry point; returns the exit code. `evaluate run` is a command of its own."""
    if argv[:1] == ["run"]:
        from dpbeam.cli import evaluate_run

        return evaluate_run.main(argv[1:])
    return run_command("evaluate", lambda: _run(argv))


def _run(argv: Sequence[str]) -> int:
    given, _ = make_parser().parse(argv)
    require(given, "input", "released")
    if "ledger" in given:
        given = {**_from_ledger(given["ledger"]), **given}
    require(given, "epsilon", "delta")
    check_budget(given)
    from dpbeam.cli.settings import input_spec
    from dpbeam.io.item_lists import read_items
    from dpbeam.io.pairs import read_pairs
    from dpbeam.io.sinks import OutputColumns
    from dpbeam.io.sources import preflight
    from dpbeam.lab.evaluation.quality import MEANINGS, evaluate_release
    from dpbeam.selection.config import MAX_ITEMS_PER_USER
    from dpbeam.selectors.base import check_range

    max_items = given.get("max_items_per_user", 100)
    check_range("max_items_per_user", max_items, 1, MAX_ITEMS_PER_USER, integer=True)
    spec = input_spec(given)
    summary = preflight(spec)
    released = read_items(given["released"], OutputColumns.of(spec, summary.kinds), "--released")
    result = evaluate_release(
        read_pairs(spec, summary),
        released,
        epsilon=given["epsilon"],
        delta=given["delta"],
        max_items=max_items,
        full_knowledge=given.get("full_knowledge", True),
    )
    if given.get("json", False):
        emit(json.dumps(result, indent=2))
    else:
        from dpbeam.cli.tables import print_evaluation

        print_evaluation(result, MEANINGS)
    return 0


def _from_ledger(path: str) -> dict:
    from dpbeam.accounting.ledger import Ledger
    from dpbeam.errors import InputError
    from dpbeam.io.released import read_ledger_text

    try:
        ledger = Ledger.from_json(read_ledger_text(path))
    except InputError as error:
        raise InputError(f"--ledger: {error}") from None
    except ValueError:
        raise InputError(f"--ledger: '{path}' is not a ledger of dpbeam") from None
    found = {"epsilon": ledger.epsilon, "delta": ledger.delta}
    d0 = ledger.parameters.get("max_items_per_user")
    return found if d0 is None else {**found, "max_items_per_user": d0}
