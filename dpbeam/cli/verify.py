"""`dpbeam verify`: recompute the guarantee that a ledger states, and look at the output that it names."""

from __future__ import annotations

import json
from typing import Any

from dpbeam.cli.flags import FlagParser, entry_point
from dpbeam.errors import InputError, SettingError, UnavailableError, complain, visible
from dpbeam.jobs.console import emit
from dpbeam.jobs.exit_codes import ExitCode
from dpbeam.jobs.options import READ, Options, flag, switch


class VerifyOptions(Options):
    """Which ledgers, and what is looked at beside them."""

    ledger: list[str] | None = flag(
        "LEDGER", "PREFIX.ledger.json of a run", type=READ, nargs="*", action="store", positional=True
    )
    contents: bool = switch("read the output too: digests and number of rows")
    ledger_alone: bool = switch("do not look for the output")
    json: bool = switch("print JSON instead of text")


def make_parser() -> FlagParser[VerifyOptions]:
    text = (
        "Recompute the guarantee of finished runs from their ledgers, and check that the output is there. "
        "Exit code 0: all of it holds; 1: something does not; 2: a ledger cannot be read."
    )
    return FlagParser("verify", text, VerifyOptions, beam=False)


@entry_point("verify", make_parser)
def main(options: VerifyOptions) -> int:
    paths = options.ledger or []
    if not paths:
        raise SettingError("name the ledger of a run: PREFIX.ledger.json")
    if options.contents and options.ledger_alone:
        raise SettingError("--contents and --ledger_alone exclude each other")
    verdicts, unread = [], ExitCode.DONE
    for path in paths:
        try:
            verdicts.append(_verified(path, options))
        except (InputError, UnavailableError) as error:
            complain(f"dpbeam verify: error: {error}")
            unread = max(unread, ExitCode.REFUSED if isinstance(error, InputError) else ExitCode.FAILED)
    if options.json:
        emit(json.dumps(verdicts, indent=2, ensure_ascii=False))
    else:
        for one in verdicts:
            _print(one, quiet=options.quiet)
    return max(unread, ExitCode.DONE if all(one["verified"] for one in verdicts) else ExitCode.FAILED)


def _verified(path: str, options: VerifyOptions) -> dict[str, Any]:
    """What `--json` prints of one ledger."""
    from dpbeam.io.released import check_outputs, read_and_check
    from dpbeam.review.verification import not_proved

    _, ledger, statements = read_and_check(path)
    contents = options.contents
    if ledger is not None and not options.ledger_alone:
        statements += check_outputs(path, ledger, contents=contents)
    return {
        "ledger": path,
        "verified": all(statement.holds is not False for statement in statements),
        "statements": [{"name": s.name, "holds": s.holds, "text": s.text} for s in statements],
        "not_proved": [] if ledger is None else not_proved(ledger, contents=contents),
    }


def _print(checked: dict[str, Any], *, quiet: bool) -> None:
    verdict = "verified" if checked["verified"] else "NOT VERIFIED"
    lines = [f"{checked['ledger']}: {verdict}"]
    marks = {True: "ok", False: "FAILS", None: "--"}
    shown = [s for s in checked["statements"] if s["holds"] is False or not quiet]
    lines += [f"  {marks[s['holds']]:<6} {s['name']}: {s['text']}" for s in shown]
    if not quiet:
        lines += [f"  not proved: {text}" for text in checked["not_proved"]]
    if not quiet or not checked["verified"]:
        emit("\n".join(map(visible, lines)))
