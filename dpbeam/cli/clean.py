"""`dpbeam clean`: remove what killed runs left behind, and nothing that a living run needs."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence

from dpbeam.cli.flags import FOLDER, WRITTEN_PREFIX, FlagParser
from dpbeam.cli.loading import importing
from dpbeam.jobs.console import run_command, tell


def make_parser() -> FlagParser:
    text = "Remove run folders and staged output of runs that were killed. Living runs keep theirs."
    parser = FlagParser("clean", text, beam=False)
    parser.add_argument(
        "--temp_location",
        metavar="DIR",
        type=FOLDER,
        help="where run folders lie (default: the system's temporary folder)",
    )
    parser.add_argument(
        "--output",
        metavar="PREFIX",
        type=WRITTEN_PREFIX,
        help="a prefix of outputs, for what was staged beside it",
    )
    parser.add_switch("force", "also folders of other machines, and those that do not name their process")
    parser.add_switch("dry_run", "list them, remove nothing")
    return parser


def main(argv: Sequence[str]) -> int:
    """Entry point; returns 0, or 1 where a folder could not be removed."""
    return run_command("clean", lambda: _run(argv))


def _run(argv: Sequence[str]) -> int:
    given, _ = make_parser().parse(argv)
    with importing():  # Beam, now that its log is quiet
        from dpbeam.engine.beam import owner
        from dpbeam.jobs.leftovers import leftovers
    removable = {"gone", "elsewhere", "unknown"} if given.get("force", False) else {"gone"}
    failed = removed = 0
    for folder, state in leftovers(given.get("temp_location") or tempfile.gettempdir(), given.get("output")):
        line = f"{folder}: {_WORDS[state]}"
        if state not in removable:
            line += "; left as it is" + ("" if state == "alive" else ", --force removes it")
        elif given.get("dry_run", False):
            line += "; would be removed"
        elif owner.remove(folder):
            removed += 1
            line += "; removed"
        else:
            failed += 1
            line += "; cannot be removed"
        if not given.get("quiet", False):
            tell(line)
    if not given.get("quiet", False):
        tell(f"{removed} folders removed")
    return 1 if failed else 0


_WORDS = {
    "gone": "its process is gone",
    "alive": "its process lives",
    "elsewhere": "made on another machine",
    "unknown": "does not name its process",
}
