"""`dpbeam report`: a page that a reviewer can sign, from a ledger and nothing private."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from dpbeam.cli.flags import FlagParser, entry_point
from dpbeam.errors import SettingError, complain
from dpbeam.io.new_files import LEDGER_SUFFIX, NewFile
from dpbeam.jobs.console import warn
from dpbeam.jobs.exit_codes import ExitCode
from dpbeam.jobs.options import READ, WRITTEN, Options, flag, switch

if TYPE_CHECKING:
    from dpbeam.accounting.ledger import Ledger


class ReportOptions(Options):
    """Which ledger, and what goes into its page."""

    ledger: str | None = flag("LEDGER", "PREFIX.ledger.json of a run", type=READ, nargs="?", positional=True)
    output: NewFile | None = flag("FILE", "the page (default: PREFIX.report.html)", type=WRITTEN)
    registry: NewFile | None = flag(
        "FILE",
        "also write a draft for the registry of deployments (registry.opendp.org), as YAML",
        type=WRITTEN,
    )
    prepared_by: str = flag("NAME", "who prepares the report; beside the first signature", value="")
    contents: bool = switch("read the output, for digests and number of rows (default)", value=True)
    ledger_alone: bool = switch("do not look for the output")
    overwrite: bool = switch("replace an earlier report")


def make_parser() -> FlagParser[ReportOptions]:
    text = (
        "Make one self-contained HTML page from the ledger of a run: guarantee, checks, noise and thresholds, "
        "known weaknesses, signatures. Holds nothing private. A ledger that does not verify gets none (exit code 1)."
    )
    return FlagParser("report", text, ReportOptions, beam=False)


@entry_point("report", make_parser)
def main(options: ReportOptions) -> int:
    path = options.ledger
    if path is None:
        raise SettingError("name the ledger of a run: PREFIX.ledger.json")
    if options.said.get("contents") and options.ledger_alone:
        raise SettingError("--contents and --ledger_alone exclude each other")
    from dpbeam.io.paths import local_path, scheme_of
    from dpbeam.io.released import check_outputs, read_and_check, refutation
    from dpbeam.review.page import render

    prefix = local_path(path, "LEDGER").removesuffix(LEDGER_SUFFIX)
    if options.output is None and scheme_of(prefix) is not None:
        raise SettingError("--output: name a file of this machine")
    overwrite = options.overwrite
    page_file = (
        options.output if options.output is not None else NewFile(f"{prefix}.report.html", "--output", [path])
    )
    page_file.check(overwrite=overwrite)
    if options.registry is not None:
        options.registry.check_apart(page_file)
        options.registry.check(overwrite=overwrite, inputs=[path])
    text, ledger, statements = read_and_check(path)
    if ledger is not None and not options.ledger_alone:
        statements += check_outputs(path, ledger, contents=options.contents)
    if (wrong := refutation(path, statements)) or ledger is None:
        complain(f"dpbeam report: error: {wrong}")
        return ExitCode.FAILED
    name = os.path.basename(prefix)
    page = render(text, ledger, statements, name=name, prepared_by=options.prepared_by)
    if options.registry is not None and not ledger.private:
        raise SettingError("--registry: the run had a fixed key, so there is no guarantee to register")
    page_file.write(page.encode("utf-8"), overwrite=overwrite)
    if options.registry is not None:
        _write_entry(ledger, name, options.registry, options)
    if not ledger.private:
        warn("NOT PRIVATE: the run had a fixed key, and the report says so")
    options.say(f"report: {page_file}")
    return 0


def _write_entry(ledger: Ledger, name: str, file: NewFile, options: ReportOptions) -> None:
    from dpbeam.review.disclosure import entry_text, registry_entry, to_be_stated

    entry = registry_entry(ledger, name)
    file.write(entry_text(entry).encode(), overwrite=options.overwrite)
    options.say(f"registry: {file}; a person must state {', '.join(to_be_stated(entry))}")
