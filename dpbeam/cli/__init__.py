"""The `dpbeam` command: `dpbeam SUB ...`, one module per subcommand."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from dpbeam import __version__

# Subcommand -> (module with main(argv), one line of help).
COMMANDS = {
    "select": ("dpbeam.cli.select", "release the items that many users hold"),
    "top-k": ("dpbeam.cli.top_k", "the k items that most users hold, in order"),
    "plan": ("dpbeam.cli.plan", "thresholds and keep probabilities of a method and budget; needs no data"),
    "check": ("dpbeam.cli.check", "whether a runner, its workers and the paths of a job are ready"),
    "evaluate": ("dpbeam.cli.evaluate", "compare released items with the private data (NOT PRIVATE)"),
    "synth": ("dpbeam.cli.synth", "generate synthetic (user, item) data"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the console command; returns the exit code."""
    argv = list(sys.argv[1:] if argv is None else argv)
    if argv[:1] == ["--version"]:
        print(f"dpbeam {__version__}")
        return 0
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(_usage())
        return 0 if argv else 2
    if argv[0] not in COMMANDS:
        print(f"dpbeam: error: unknown command '{argv[0]}'; one of {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    return importlib.import_module(COMMANDS[argv[0]][0]).main(argv[1:])


def _usage() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {text}" for name, (_, text) in COMMANDS.items()]
    return "\n".join(
        ["usage: dpbeam COMMAND [flags]", "", *lines, "", "dpbeam COMMAND --help lists the flags."]
    )
