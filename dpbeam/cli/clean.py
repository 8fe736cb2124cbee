"""`dpbeam clean`: remove what killed runs left behind, and nothing that a living run needs."""

from __future__ import annotations

import os
import shlex
import tempfile
import time
from collections.abc import Sequence

from dpbeam.cli.flags import FOLDER, WRITTEN_PREFIX, FlagParser
from dpbeam.engine.beam import owner
from dpbeam.io.paths import is_local
from dpbeam.jobs.console import run_command, tell, warn

_BEAM_FOLDER = "beam-pipeline-temp"
_OLD_SECONDS = 24 * 3600


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


def leftovers(temp_location: str, output: str | None) -> list[tuple[str, str]]:
    """(folder, state) of all folders that a killed command leaves; states as of `owner.state_of`."""
    known = _of_runs(temp_location, output)
    of_evaluations = owner.folders(temp_location, owner.EVALUATION_FOLDER)
    known += [(folder, owner.state_of(folder)) for folder in of_evaluations]
    return known + [(folder, _state_of_beams(folder)) for folder in _of_beam(temp_location)]


def _of_runs(temp_location: str, output: str | None) -> list[tuple[str, str]]:
    """Those of `leftovers` that hold private data of runs."""
    stems = (owner.RUN_FOLDER, owner.STAGING)
    found = [path for stem in stems for path in owner.folders(temp_location, stem)]
    if output:
        parent, stem = os.path.split(output)
        found += owner.folders(parent, f"{stem}.staging-")
    return [(folder, owner.state_of(folder)) for folder in found]


def _of_beam(temp_location: str) -> list[str]:
    """Folders that Beam makes for each run and leaves empty when it is killed."""
    if not is_local(temp_location):
        return []
    return [path for path in owner.folders(temp_location, _BEAM_FOLDER) if not os.listdir(path)]


def _state_of_beams(folder: str) -> str:
    """They name no process; one that is a day old and still empty is no living run's."""
    return "gone" if time.time() - os.stat(folder).st_mtime > _OLD_SECONDS else "unknown"


def warn_of_leftovers(temp_location: str, output: str) -> None:
    """Name what killed runs left, private data among it, and how to remove it."""
    gone = [folder for folder, state in _of_runs(temp_location, output) if state == "gone"]
    if gone:
        more = f" and {len(gone) - 1} more" if len(gone) > 1 else ""
        warn(
            f"a killed run left {gone[0]}{more}, which may hold private data; remove it: dpbeam clean "
            f"--temp_location={shlex.quote(temp_location)} --output={shlex.quote(output)}"
        )


_WORDS = {
    "gone": "its process is gone",
    "alive": "its process lives",
    "elsewhere": "made on another machine",
    "unknown": "does not name its process",
}
