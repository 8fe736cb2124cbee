"""`dpbeam report`: a page that a reviewer can sign, from a ledger and nothing private."""

from __future__ import annotations

import os
from collections.abc import Sequence

from dpbeam.cli.flags import READ, WRITTEN, FlagParser
from dpbeam.cli.verify import read_and_check, refused
from dpbeam.errors import InputError
from dpbeam.io.new_files import LEDGER_SUFFIX, NewFile
from dpbeam.jobs.console import run_command, tell, warn
from dpbeam.jobs.exit_codes import ExitCode


def make_parser() -> FlagParser:
    text = (
        "Make one self-contained HTML page from the ledger of a run: guarantee, checks, noise and thresholds, "
        "known weaknesses, signatures. Holds nothing private. A ledger that does not verify gets none (exit code 1)."
    )
    parser = FlagParser("report", text, beam=False)
    parser.add_argument("ledger", nargs="?", metavar="LEDGER", type=READ, help="PREFIX.ledger.json of a run")
    parser.add_argument(
        "--output", metavar="FILE", type=WRITTEN, help="the page (default: PREFIX.report.html)"
    )
    parser.add_argument("--pdf", metavar="FILE", type=WRITTEN, help="the page as PDF too; needs Chromium")
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
    from dpbeam.io.released import check_outputs
    from dpbeam.review.page import render
    from dpbeam.review.pdf import print_to_pdf

    prefix = local_path(path, "LEDGER").removesuffix(LEDGER_SUFFIX)
    if "output" not in given and not is_local(prefix):
        raise InputError("--output: name a file of this machine")
    overwrite = given.get("overwrite", False)
    page_file = given["output"] if "output" in given else NewFile(f"{prefix}.report.html", "--output", [path])
    pdf_file = given.get("pdf")
    for file in filter(None, (page_file, pdf_file)):
        file.check(overwrite=overwrite)
    if pdf_file is not None and os.path.realpath(pdf_file) == os.path.realpath(page_file):
        raise InputError("--pdf: name another file than --output")
    text, ledger, statements = read_and_check(path)
    if ledger is not None and not given.get("ledger_alone", False):
        statements += check_outputs(path, ledger, contents=given.get("contents", False))
    if refused("report", path, statements) or ledger is None:
        return ExitCode.FAILED
    name = os.path.basename(prefix)
    page = render(text, ledger, statements, name=name, prepared_by=given.get("prepared_by", ""))
    printed = None if pdf_file is None else print_to_pdf(page)
    page_file.write(page.encode("utf-8"), overwrite=overwrite)
    if pdf_file is not None and printed is not None:
        pdf_file.write(printed, overwrite=overwrite)
    if not ledger.private:
        warn("NOT PRIVATE: the run had a fixed key, and the report says so")
    if not given.get("quiet", False):
        tell("report: " + ", ".join(filter(None, (page_file, pdf_file))))
    return 0
