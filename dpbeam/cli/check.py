"""`dpbeam check`: is a runner ready for a job, and if not, what to fix."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dpbeam.cli.flags import WRITTEN_PREFIX, FlagParser, add_input_flags
from dpbeam.cli.settings import input_spec
from dpbeam.errors import InputError, UnavailableError, visible
from dpbeam.jobs.console import emit, run_command
from dpbeam.jobs.exit_codes import ExitCode

if TYPE_CHECKING:
    from dpbeam.runners.check import Row

#: Flags that say nothing of what is in the input: without others its files are matched and not opened.
_OF_NO_INPUT = {"input", "output", "overwrite", "quiet", "verbose"}


def make_parser() -> FlagParser:
    parser = FlagParser("check", "Whether jars, Java, cluster, workers and paths are ready for a job.")
    add_input_flags(parser)
    parser.add_switch("overwrite", "as the job will have it")
    parser.add_argument("--output", metavar="PREFIX", type=WRITTEN_PREFIX, help="where the job will write")
    return parser


def main(argv: Sequence[str]) -> int:
    """Entry point; returns 0 if a job could start, 1 if not."""
    return run_command("check", lambda: _run(argv))


def _as_the_command(given: dict[str, Any]) -> list[Row]:
    """Input and output looked at as every command does, by the same code; of a table its files are its own."""
    from dpbeam.io.files import match_files
    from dpbeam.io.output import OutputTarget
    from dpbeam.io.paths import is_pipe, local_path, table_format
    from dpbeam.io.sources import preflight
    from dpbeam.runners.check import Row

    files: list[str] = []
    patterns = given.get("input", ())
    told = len(given.keys() - _OF_NO_INPUT) > 0

    def find() -> None:
        # A pipe that is looked into is empty when the job comes.
        if told and not any(is_pipe(local_path(pattern, "--input")) for pattern in patterns):
            files.extend(file.path for file in preflight(input_spec(given)).files)
        else:
            files_of = [pattern for pattern in patterns if not table_format(pattern)]
            files.extend(file.path for file in match_files(files_of, pipes=True))

    def look() -> None:
        if "output" in given:
            target = OutputTarget(given["output"], overwrite=given.get("overwrite", False))
            target.check(path for path in files if not is_pipe(path))

    rows = []
    for what, try_it in (("files of --input", find), ("files of --output", look)):
        if what.rpartition("--")[2] not in given:
            continue
        try:
            try_it()
            rows.append(Row(what, "ok", "as the command wants them"))
        except (InputError, UnavailableError) as error:
            passing = isinstance(error, UnavailableError)
            rows.append(Row(what, "refuse", str(error), "the command would end with this", passing=passing))
    return rows


def _run(argv: Sequence[str]) -> int:
    given, beam_arguments = make_parser().parse(argv)
    from rich.table import Table

    from dpbeam.cli.tables import show
    from dpbeam.io.paths import files_to_see
    from dpbeam.jobs.job import use_stores
    from dpbeam.runners.check import Path, preflight

    use_stores(beam_arguments)
    seen = [path for pattern in given.get("input", ()) for path in files_to_see(pattern)]
    paths = [Path("--input", path, "input") for path in seen]
    if "output" in given:
        paths.append(Path("--output", given["output"], "output"))
    rows = [*preflight(beam_arguments, paths), *_as_the_command(given)]
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
