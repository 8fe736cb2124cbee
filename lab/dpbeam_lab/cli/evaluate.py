"""`dpbeam evaluate`: how much of the private data the released items cover. NOT PRIVATE."""

from __future__ import annotations

import json
from collections.abc import Sequence

from dpbeam.cli.flags import FlagParser
from dpbeam.jobs.checks import check_budget
from dpbeam.jobs.console import emit, run_command
from dpbeam.jobs.options import READ, BudgetOptions, InputOptions, flag, switch


class EvaluateOptions(InputOptions, BudgetOptions):
    """What was released, and from what."""

    max_items_per_user: int | None = flag("D0", "items of a user that count (default 100)", common=True)
    released: str = flag("FILE", "output of a run (a file or glob); required", type=READ, needed=True)
    ledger: str | None = flag(
        "FILE",
        "its ledger, for epsilon, delta and D0, in place of the flags",
        type=READ,
        common=True,
    )
    full_knowledge: bool = switch(
        "with the best that any weights under one Gaussian could release (default; about 10 s per million pairs)",
        value=True,
    )
    json: bool = switch("print JSON instead of a table with explanations", common=True)


def make_parser() -> FlagParser[EvaluateOptions]:
    text = "Compare released items with the private data, in memory. What it prints is NOT PRIVATE."
    return FlagParser("evaluate", text, EvaluateOptions, beam=False)


def main(argv: Sequence[str]) -> int:
    """Entry point; returns the exit code. `evaluate run` is a command of its own."""
    if argv[:1] == ["run"]:
        from dpbeam_lab.cli import evaluate_run

        return evaluate_run.main(argv[1:])
    return run_command("evaluate", lambda: _run(argv))


def _run(argv: Sequence[str]) -> int:
    options, _ = make_parser().parse(argv)
    options.require("input", "released")
    if options.ledger is not None:
        options = EvaluateOptions({**_from_ledger(options.ledger), **options.said})
    options.require("epsilon", "delta")
    check_budget(options)
    from dpbeam.cli.settings import input_spec
    from dpbeam.io.item_lists import read_items
    from dpbeam.io.pairs import read_pairs
    from dpbeam.io.sinks import OutputColumns
    from dpbeam.io.sources import preflight
    from dpbeam.selection.config import MAX_ITEMS_PER_USER
    from dpbeam.selectors.base import check_range
    from dpbeam_lab.evaluation.quality import MEANINGS, evaluate_release

    max_items = 100 if options.max_items_per_user is None else options.max_items_per_user
    check_range("max_items_per_user", max_items, 1, MAX_ITEMS_PER_USER, integer=True)
    spec = input_spec(options)
    summary = preflight(spec)
    released = read_items(options.released, OutputColumns.of(spec, summary.kinds), "--released")
    result = evaluate_release(
        read_pairs(spec, summary),
        released,
        epsilon=options.epsilon,
        delta=options.delta,
        max_items=max_items,
        full_knowledge=options.full_knowledge,
    )
    if options.json:
        emit(json.dumps(result, indent=2))
    else:
        from dpbeam_lab.cli.tables import print_evaluation

        print_evaluation(result, MEANINGS)
    return 0


def _from_ledger(path: str) -> dict:
    from dpbeam.accounting.ledger import Ledger
    from dpbeam.errors import DataError, InputError, UnavailableError
    from dpbeam.io.released import read_ledger_text

    try:
        ledger = Ledger.from_json(read_ledger_text(path))
    except (InputError, UnavailableError) as error:
        raise type(error)(f"--ledger: {error}") from None
    except ValueError:
        raise DataError(f"--ledger: '{path}' is not a ledger of dpbeam") from None
    budget = {"epsilon": ledger.epsilon, "delta": ledger.delta}
    d0 = ledger.parameters.get("max_items_per_user")
    return budget if d0 is None else {**budget, "max_items_per_user": d0}
