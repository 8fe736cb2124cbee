"""`dpbeam verify`: recompute the guarantee that a ledger states, and look at the output that it names."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dpbeam.cli.flags import READ, FlagParser
from dpbeam.errors import InputError, complain, visible
from dpbeam.jobs.console import emit, run_command
from dpbeam.jobs.exit_codes import ExitCode

if TYPE_CHECKING:
    from dpbeam.accounting.ledger import Ledger
    from dpbeam.review.verification import Statement


def make_parser() -> FlagParser:
    text = (
        "Recompute the guarantee of finished runs from their ledgers, and check that the output is there. "
        "Exit code 0: all of it holds; 1: something does not; 2: a ledger cannot be read."
    )
    parser = FlagParser("verify", text, beam=False)
    parser.add_argument("ledger", nargs="*", metavar="LEDGER", type=READ, help="PREFIX.ledger.json of a run")
    parser.add_switch("contents", "read the output too: digests and number of rows")
    parser.add_switch("ledger_alone", "do not look for the output")
    parser.add_argument(
        "--input",
        nargs="+",
        action="extend",
        metavar="PATTERN",
        type=READ,
        help="compare the digest of the input; needs the key, --input_digests",
    )
    parser.add_argument(
        "--input_digests",
        metavar="KEYFILE",
        type=READ,
        help="the key that the run was given under the same name",
    )
    parser.add_switch("json", "print JSON instead of text")
    return parser


def main(argv: Sequence[str]) -> int:
    """Entry point; returns the exit code: 0 verified, 1 not verified, 2 unreadable or wrong usage."""
    return run_command("verify", lambda: _run(argv))


def _run(argv: Sequence[str]) -> int:
    given, _ = make_parser().parse(argv)
    paths = given.get("ledger", [])
    if not paths:
        raise InputError("name the ledger of a run: PREFIX.ledger.json")
    if ("input" in given) != ("input_digests" in given):
        raise InputError("--input and --input_digests go together")
    if given.get("contents", False) and given.get("ledger_alone", False):
        raise InputError("--contents and --ledger_alone exclude each other")
    found, unreadable = [], False
    for path in paths:
        try:
            found.append(_verified(path, given))
        except InputError as error:
            complain(f"dpbeam verify: error: {error}")
            unreadable = True
    if given.get("json", False):
        emit(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        for one in found:
            _print(one, quiet=given.get("quiet", False))
    if unreadable:
        return ExitCode.REFUSED
    return ExitCode.DONE if all(one["verified"] for one in found) else ExitCode.FAILED


def _verified(path: str, given: dict[str, Any]) -> dict[str, Any]:
    """What `--json` prints of one ledger."""
    from dpbeam.io.digests import check_digest
    from dpbeam.io.released import check_outputs
    from dpbeam.review.verification import not_proved

    _, ledger, statements = read_and_check(path)
    contents = given.get("contents", False)
    if ledger is not None and not given.get("ledger_alone", False):
        statements += check_outputs(path, ledger, contents=contents)
    if ledger is not None and "input" in given:
        statements.append(check_digest(ledger, given["input"], given["input_digests"]))
    return {
        "ledger": path,
        "verified": all(statement.holds is not False for statement in statements),
        "statements": [{"name": s.name, "holds": s.holds, "text": s.text} for s in statements],
        "not_proved": [] if ledger is None else not_proved(ledger, contents=contents),
    }


def read_and_check(path: str) -> tuple[str, Ledger | None, list[Statement]]:
    """A ledger's text, the ledger, and every statement that follows from it alone, as `check_ledger`.

    Raises:
      InputError: there is none, or it is not a ledger that this version knows.
    """
    from dpbeam.io.released import read_ledger_text
    from dpbeam.review.verification import check_ledger

    text = read_ledger_text(path)
    try:
        return text, *check_ledger(text)
    except ValueError as error:
        raise InputError(f"'{path}': {error}") from None


def refused(command: str, path: str, statements: list[Statement]) -> bool:
    """Whether a ledger does not verify, which is told; one of a fixed key passes: what is made of it says so."""
    wrong = [s for s in statements if s.holds is False and s.name != "key"]
    if wrong:
        complain(f"dpbeam {command}: error: '{path}' does not verify: {wrong[0].name}: {wrong[0].text}")
    return bool(wrong)


def _print(found: dict[str, Any], *, quiet: bool) -> None:
    verdict = "verified" if found["verified"] else "NOT VERIFIED"
    lines = [f"{found['ledger']}: {verdict}"]
    marks = {True: "ok", False: "FAILS", None: "--"}
    shown = [s for s in found["statements"] if s["holds"] is False or not quiet]
    lines += [f"  {marks[s['holds']]:<6} {s['name']}: {s['text']}" for s in shown]
    if not quiet:
        lines += [f"  not proved: {text}" for text in found["not_proved"]]
    if not quiet or not found["verified"]:
        emit("\n".join(map(visible, lines)))
