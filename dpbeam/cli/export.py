"""`dpbeam export`: what a ledger states, for the accountants of other libraries."""

from __future__ import annotations

import json
from collections.abc import Sequence

from dpbeam.cli.flags import READ, WRITTEN, FlagParser
from dpbeam.cli.verify import read_and_check, refused
from dpbeam.errors import InputError
from dpbeam.jobs.console import emit, run_command, tell, warn
from dpbeam.jobs.exit_codes import ExitCode


def make_parser() -> FlagParser:
    text = (
        "Print the ledger of a run as an event of the library dp_accounting, as JSON, with the delta that no event "
        "holds. A ledger that does not verify gets none (exit code 1)."
    )
    parser = FlagParser("export", text, beam=False)
    parser.add_argument("ledger", nargs="?", metavar="LEDGER", type=READ, help="PREFIX.ledger.json of a run")
    parser.add_argument("--output", metavar="FILE", type=WRITTEN, help="write a file instead of printing")
    parser.add_switch("overwrite", "replace an earlier file")
    return parser


def main(argv: Sequence[str]) -> int:
    """Entry point; returns the exit code: 0 done, 1 the ledger does not verify, 2 wrong usage or input."""
    return run_command("export", lambda: _run(argv))


def _run(argv: Sequence[str]) -> int:
    given, _ = make_parser().parse(argv)
    path = given.get("ledger")
    if path is None:
        raise InputError("name the ledger of a run: PREFIX.ledger.json")
    from dpbeam.accounting.dp_event import export_event

    file, overwrite = given.get("output"), given.get("overwrite", False)
    if file is not None:
        file.check(overwrite=overwrite)
    _, ledger, statements = read_and_check(path)
    if refused("export", path, statements) or ledger is None:
        return ExitCode.FAILED
    exported = json.dumps(export_event(ledger).to_dict(), indent=2, ensure_ascii=False, allow_nan=False)
    if not ledger.private:
        warn("NOT PRIVATE: the run had a fixed key, and the event says so")
    if file is None:
        emit(exported)
    else:
        file.write(f"{exported}\n".encode(), overwrite=overwrite)
        if not given.get("quiet", False):
            tell(f"event: {file}")
    return ExitCode.DONE
