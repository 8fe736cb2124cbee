"""`dpbeam report`: a page that a reviewer can sign, from a ledger and nothing private."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from dpbeam.cli.console import run_command, tell, visible, warn
from dpbeam.cli.exit_codes import ExitCode
from dpbeam.cli.flags import FlagParser
from dpbeam.errors import InputError, complain


def make_parser() -> FlagParser:
    text = (
        "Make one self-contained HTML page from the ledger of a run: guarantee, checks, noise and thresholds, "
        "known weaknesses, signatures. Holds nothing private. A ledger that does not verify gets none (exit code 1)."
    )
    parser = FlagParser("report", text, beam=False)
    parser.add_argument("ledger", nargs="?", metavar="LEDGER", help="PREFIX.ledger.json of a run")
    parser.add_argument("--output", metavar="FILE", help="the page (default: PREFIX.report.html)")
    parser.add_argument("--pdf", metavar="FILE", help="the page as PDF too; needs Chromium")
    parser.add_argument(
        "--prepared_by", metavar="NAME", help="who prepares the report; beside the first signature"
    )
    parser.add_switch("contents", "read the output too: digests and number of rows")
    parser.add_switch("ledger_alone", "do not look for the output")
    parser.add_switch("overwrite", "replace an earlier report")
    return parser


def main(argv: Sequence[str]) -> int:
    """Entry point; returns the exit code: 0 done, 1 the ledger does not verify, 2 wrong usage or input."""
    return run_command("report", lambda: _run(argv))


def _run(argv: Sequence[str]) -> int:
    given, _ = make_parser().parse(argv)
    path = given.get("ledger")
    if path is None:
        raise InputError("name the ledger of a run: PREFIX.ledger.json")
    if given.get("contents", False) and given.get("ledger_alone", False):
        raise InputError("--contents and --ledger_alone exclude each other")
    from dpbeam.io.paths import is_local, local_path
    from dpbeam.io.released import LEDGER_SUFFIX, check_outputs, read_ledger_text
    from dpbeam.review.page import render
    from dpbeam.review.pdf import print_to_pdf
    from dpbeam.review.verification import check_ledger

    prefix = local_path(path, "LEDGER").removesuffix(LEDGER_SUFFIX)
    if "output" not in given and not is_local(prefix):
        raise InputError("--output: name a file of this machine")
    page_file = _new_file("--output", given.get("output", f"{prefix}.report.html"), path, given)
    pdf_file = _new_file("--pdf", given["pdf"], path, given) if "pdf" in given else None
    if pdf_file is not None and os.path.realpath(pdf_file) == os.path.realpath(page_file):
        raise InputError("--pdf: name another file than --output")
    text = read_ledger_text(path)
    try:
        ledger, statements = check_ledger(text)
    except ValueError as error:
        raise InputError(f"'{path}': {error}") from None
    if ledger is not None and not given.get("ledger_alone", False):
        statements += check_outputs(path, ledger, contents=given.get("contents", False))
    # A fixed key fails too, and gets a page that says so above all else.
    wrong = [s for s in statements if s.holds is False and s.name != "key"]
    if ledger is None or wrong:
        complain(f"dpbeam report: error: '{path}' does not verify: {wrong[0].name}: {visible(wrong[0].text)}")
        return ExitCode.FAILED
    name = os.path.basename(prefix)
    page = render(text, ledger, statements, name=name, prepared_by=given.get("prepared_by", ""))
    printed = None if pdf_file is None else print_to_pdf(page)
    _write("--output", page_file, page.encode("utf-8"))
    if pdf_file is not None and printed is not None:
        _write("--pdf", pdf_file, printed)
    if not ledger.private:
        warn("NOT PRIVATE: the run had a fixed key, and the report says so")
    if not given.get("quiet", False):
        tell("report: " + ", ".join(filter(None, (page_file, pdf_file))))
    return 0


def _new_file(flag: str, name: str, ledger: str, given: dict[str, Any]) -> str:
    """A file of this machine that may be written.

    Raises:
      InputError: naming the flag.
    """
    from dpbeam.io.paths import is_local, local_path

    path = local_path(name, flag)
    if not is_local(path):
        raise InputError(f"{flag}: '{name}' must be a file of this machine")
    folder = os.path.dirname(os.path.abspath(path))
    if not path or os.path.isdir(path):
        raise InputError(f"{flag}: '{name}' is a folder; give the name of a file")
    if os.path.realpath(path) == os.path.realpath(ledger):
        raise InputError(f"{flag}: '{name}' is the ledger; name another file")
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"{flag}: cannot write '{name}': '{folder}' is no folder that can be written")
    if os.path.lexists(path) and not given.get("overwrite", False):
        raise InputError(f"{flag}: '{name}' exists; pass --overwrite to replace it, or another name")
    return path


def _write(flag: str, path: str, data: bytes) -> None:
    """All or nothing, by rename."""
    part = f"{path}.part-{os.getpid()}"
    try:
        with open(part, "wb") as file:
            file.write(data)
        os.replace(part, path)
    except OSError as error:
        if os.path.lexists(part):
            os.remove(part)
        raise InputError(f"{flag}: cannot write '{path}': {error.strerror}") from None
