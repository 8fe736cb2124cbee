"""`dpbeam check`: is a runner ready for a job, and if not, what to fix."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dpbeam.cli.flags import FlagParser
from dpbeam.cli.settings import input_spec
from dpbeam.errors import InputError, UnavailableError, visible
from dpbeam.jobs.console import emit, run_command
from dpbeam.jobs.exit_codes import ExitCode
from dpbeam.jobs.options import FOLDER, WRITTEN_PREFIX, InputOptions, flag, switch

if TYPE_CHECKING:
    from dpbeam.runners.check import Row

#: Flags that say nothing of what is in the input: without others its files are matched and not opened.
_OF_NO_INPUT = {"input", "output", "overwrite", "quiet", "verbose"}


class CheckOptions(InputOptions):
    """What the job will be given."""

    overwrite: bool = switch("as the job will have it")
    output: str | None = flag("PREFIX", "where the job will write", type=WRITTEN_PREFIX, common=True)
    folder: str | None = flag(
        "DIR", "private folder of the series that the job is a night of", type=FOLDER, common=True
    )


def make_parser() -> FlagParser[CheckOptions]:
    return FlagParser(
        "check", "Whether jars, Java, cluster, workers and paths are ready for a job.", CheckOptions
    )


def main(argv: Sequence[str]) -> int:
    """Entry point; returns 0 if a job could start, 1 if not."""
    return run_command("check", lambda: _run(argv))


def _as_the_command(options: CheckOptions) -> list[Row]:
    """Input and output looked at as every command does, by the same code; of a table its files are its own."""
    from dpbeam.io.files import check_names, match_files
    from dpbeam.io.formats import table_format
    from dpbeam.io.output import OutputTarget
    from dpbeam.io.paths import is_pipe, local_path
    from dpbeam.io.sources import preflight
    from dpbeam.runners.check import Row

    files: list[str] = []
    patterns = options.input or ()
    told = len(options.said.keys() - _OF_NO_INPUT) > 0

    def find() -> None:
        # A pipe that is looked into is empty when the job comes.
        if told and not any(is_pipe(local_path(pattern, "--input")) for pattern in patterns):
            files.extend(file.path for file in preflight(input_spec(options)).files)
        else:
            files_of = [pattern for pattern in patterns if not table_format(pattern)]
            matched = match_files(files_of, pipes=True)
            check_names(matched, "--input")
            files.extend(file.path for file in matched)

    def look() -> None:
        if options.output is not None:
            target = OutputTarget.asked(options.output, None, overwrite=options.overwrite)
            target.check(path for path in files if not is_pipe(path))

    rows = []
    for what, try_it in (("files of --input", find), ("files of --output", look)):
        if what.rpartition("--")[2] not in options.said:
            continue
        try:
            try_it()
            rows.append(Row(what, "ok", "as the command wants them"))
        except (InputError, UnavailableError) as error:
            passing = isinstance(error, UnavailableError)
            rows.append(Row(what, "refuse", str(error), "the command would end with this", passing=passing))
    return rows


def _run(argv: Sequence[str]) -> int:
    options, beam_arguments = make_parser().parse(argv)
    from rich.table import Table

    from dpbeam.cli.series_output import folder_of
    from dpbeam.cli.tables import show
    from dpbeam.io.formats import files_to_see
    from dpbeam.jobs.beam_flags import refused_by_beam
    from dpbeam.jobs.engine import pipeline_options, use_stores
    from dpbeam.runners.check import Path, preflight

    use_stores(beam_arguments)
    refused_by_beam(lambda: pipeline_options(beam_arguments).get_all_options())
    seen = [path for pattern in options.said.get("input", ()) for path in files_to_see(pattern)]
    paths = [Path("--input", path, "input") for path in seen]
    if options.output is not None:
        paths.append(Path("--output", options.output, "output"))
    if options.folder is not None:
        paths.append(Path("--folder", folder_of(options.folder).path, "temp"))
    rows = [*preflight(beam_arguments, paths), *_as_the_command(options)]
    table = Table("", box=None, pad_edge=False)
    for column in ("what", "found", "fix"):
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(
            {"ok": "ok", "warn": "warn", "refuse": "NO"}[row.level],
            *map(visible, (row.what, row.finding, row.fix)),
        )
    show(lambda console: console.print(table, highlight=False), shutil.get_terminal_size((110, 0)).columns)
    ready = all(row.ok for row in rows)
    emit("ready" if ready else "not ready: fix the lines marked NO")
    return ExitCode.DONE if ready else ExitCode.FAILED
