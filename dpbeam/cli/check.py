"""`dpbeam check`: is a runner ready for a job, and if not, what to mend."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from dpbeam.cli.console import emit, run_command
from dpbeam.cli.exit_codes import ExitCode
from dpbeam.cli.flags import FlagParser


def make_parser() -> FlagParser:
    parser = FlagParser("check", "Whether jars, Java, cluster, workers and paths are ready for a job.")
    parser.add_argument(
        "--input", nargs="+", action="extend", metavar="PATTERN", help="what the job will read"
    )
    parser.add_argument("--output", metavar="PREFIX", help="where the job will write")
    return parser


def main(argv: Sequence[str]) -> int:
    """Entry point; returns 0 if a job could start, 1 if not."""
    return run_command("check", lambda: _run(argv))


def _run(argv: Sequence[str]) -> int:
    given, beam_arguments = make_parser().parse(argv)
    from rich.table import Table

    from dpbeam.cli.job import use_stores
    from dpbeam.cli.tables import show
    from dpbeam.runners.check import Path, preflight

    use_stores(beam_arguments)
    paths = [Path("--input", pattern, "input") for pattern in given.get("input", ())]
    if "output" in given:
        paths.append(Path("--output", given["output"], "output"))
    rows = preflight(beam_arguments, paths)
    table = Table("", box=None, pad_edge=False)
    for column in ("what", "found", "mend"):
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row({"ok": "ok", "warn": "warn", "refuse": "NO"}[row.level], row.what, row.found, row.mend)
    show(lambda console: console.print(table, highlight=False), shutil.get_terminal_size((110, 0)).columns)
    ready = all(row.ok for row in rows)
    emit("ready" if ready else "not ready: mend the lines marked NO")
    return ExitCode.DONE if ready else ExitCode.FAILED
