"""`dpbeam export`: what a ledger states, for the accountants of other libraries."""

from __future__ import annotations

import json

from dpbeam.cli.flags import FlagParser, entry_point
from dpbeam.errors import SettingError, complain
from dpbeam.io.new_files import NewFile
from dpbeam.jobs.console import emit, warn
from dpbeam.jobs.exit_codes import ExitCode
from dpbeam.jobs.options import READ, WRITTEN, Options, flag, switch


class ExportOptions(Options):
    """Which ledger, and where its event goes."""

    ledger: str | None = flag("LEDGER", "PREFIX.ledger.json of a run", type=READ, nargs="?", positional=True)
    output: NewFile | None = flag("FILE", "write a file instead of printing", type=WRITTEN)
    overwrite: bool = switch("replace an earlier file")


def make_parser() -> FlagParser[ExportOptions]:
    text = (
        "Print the ledger of a run as an event of the library dp_accounting, as JSON, with the delta that no event "
        "holds. A ledger that does not verify gets none (exit code 1)."
    )
    return FlagParser("export", text, ExportOptions, beam=False)


@entry_point("export", make_parser)
def main(options: ExportOptions) -> int:
    path = options.ledger
    if path is None:
        raise SettingError("name the ledger of a run: PREFIX.ledger.json")
    from dpbeam.accounting.dp_event import export_event
    from dpbeam.io.released import read_and_check, refutation

    file, overwrite = options.output, options.overwrite
    if file is not None:
        file.check(overwrite=overwrite)
    _, ledger, statements = read_and_check(path)
    if (wrong := refutation(path, statements)) or ledger is None:
        complain(f"dpbeam export: error: {wrong}")
        return ExitCode.FAILED
    exported = json.dumps(export_event(ledger).to_dict(), indent=2, ensure_ascii=False, allow_nan=False)
    if not ledger.private:
        warn("NOT PRIVATE: the run had a fixed key, and the event says so")
    if file is None:
        emit(exported)
    else:
        file.write(f"{exported}\n".encode(), overwrite=overwrite)
        options.say(f"event: {file}")
    return ExitCode.DONE
