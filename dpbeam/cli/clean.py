"""`dpbeam clean`: remove what killed runs left behind, and nothing that a living run needs."""

from __future__ import annotations

import tempfile

from dpbeam.cli.flags import FlagParser, entry_point
from dpbeam.cli.loading import importing
from dpbeam.errors import SetupError
from dpbeam.io.new_files import output_named
from dpbeam.io.paths import local_path
from dpbeam.jobs.options import FOLDER, WRITTEN_PREFIX, Options, flag, switch


class CleanOptions(Options):
    """Where to look, and what to remove."""

    temp_location: str | None = flag(
        "DIR", "where run folders lie (default: the system's temporary folder)", type=FOLDER
    )
    output: str | None = flag(
        "PREFIX", "a prefix of outputs, for what was staged beside it", type=WRITTEN_PREFIX
    )
    force: bool = switch(
        "also folders of other machines, those that do not name their process, and releases that an account may have "
        "paid for"
    )
    dry_run: bool = switch("list them, remove nothing")


def make_parser() -> FlagParser[CleanOptions]:
    text = "Remove run folders and staged output of runs that were killed. Living runs keep theirs."
    return FlagParser("clean", text, CleanOptions, beam=False)


@entry_point("clean", make_parser)
def main(options: CleanOptions) -> int:
    output = None if options.output is None else output_named(local_path(options.output, "--output"))[0]
    with importing():  # Beam, now that its log is quiet
        from dpbeam.engine.beam import owner
        from dpbeam.io.lock import remove_stale
        from dpbeam.jobs.leftovers import leftovers
        from dpbeam.storage.reasons import missing_filesystem
    for name, path in (("temp_location", options.temp_location), ("output", output)):
        if path is not None and (missing := missing_filesystem(path)):
            raise SetupError(f"--{name}: cannot look up '{path}': {missing}")
    removable = _WORDS.keys() - {"alive"} if options.force else {"gone"}
    failed = removed = 0
    for folder, state in leftovers(options.temp_location or tempfile.gettempdir(), output):
        line = f"{folder}: {_WORDS[state]}"
        if state not in removable:
            line += "; left as it is" + ("" if state == "alive" else ", --force removes it")
        elif options.dry_run:
            line += "; would be removed"
        elif owner.remove(folder) is None:
            removed += 1
            line += "; removed"
        else:
            failed += 1
            line += "; cannot be removed"
        options.say(line)
    if output is not None and not options.dry_run:
        remove_stale(output)
    options.say(f"{removed} folders removed")
    return 1 if failed else 0


_WORDS = {
    "gone": "its process is gone",
    "alive": "its process lives",
    "elsewhere": "made on another machine, or by a pipeline",
    "unknown": "does not name its process",
    "paid": "its process is gone, and an account may have paid for the release in it: its command, given again, "
    "finishes or removes it",
}
