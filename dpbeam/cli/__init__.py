"""The `dpbeam` command: `dpbeam SUB ...`, one module per subcommand."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence

from dpbeam.cli.loading import be_a_command
from dpbeam.families.registry import families
from dpbeam.jobs.exit_codes import ExitCode
from dpbeam.version import __version__

# Subcommand -> (module with main(argv), one line of help).
COMMANDS = {
    **{family.name: (family.command, family.summary) for family in families().values()},
    "plan": ("dpbeam.cli.plan", "thresholds and keep probabilities of a method and budget; needs no data"),
    "tune": (
        "dpbeam.cli.tune",
        "which method and settings to take: from public data (NOT PRIVATE), or from none",
    ),
    "methods": ("dpbeam.cli.methods", "methods of selection and their constants, for --set NAME=VALUE"),
    "check": ("dpbeam.cli.check", "whether a runner, its workers and the paths of a job are ready"),
    "budget": ("dpbeam.cli.budget", "accounts of what all runs on a dataset have spent"),
    "evaluate": ("dpbeam.cli.evaluate", "compare released items with the private data (NOT PRIVATE)"),
    "verify": ("dpbeam.cli.verify", "recompute the guarantee of a ledger and check its output"),
    "report": ("dpbeam.cli.report", "a page to sign, made from a ledger"),
    "export": ("dpbeam.cli.export", "a ledger as an event of dp_accounting"),
    "synth": ("dpbeam.cli.synth", "generate synthetic (user, item) data"),
    "clean": ("dpbeam.cli.clean", "remove what killed runs left behind"),
    "completion": ("dpbeam.cli.completion", "completion of commands and flags for bash or zsh"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the console command; returns the exit code."""
    if argv is None:
        be_a_command()
        if not sys.warnoptions:  # a library's word about a number is no message of ours
            warnings.simplefilter("ignore")
    argv = list(sys.argv[1:] if argv is None else argv)
    if argv and argv[0] in COMMANDS:
        return importlib.import_module(COMMANDS[argv[0]][0]).main(argv[1:])
    from dpbeam.errors import complain
    from dpbeam.jobs.console import tell

    if argv[:1] == ["--version"]:
        tell(f"dpbeam {__version__}")
    elif not argv or argv[0] in ("-h", "--help", "help"):
        tell(_usage())
    else:
        from dpbeam.cli.numbers import nearest

        close = nearest(argv[0], COMMANDS)
        fix = f"did you mean {close}?" if close else f"one of {', '.join(COMMANDS)}"
        complain(f"dpbeam: error: unknown command '{argv[0]}'; {fix}")
        return ExitCode.REFUSED
    return ExitCode.DONE if argv else ExitCode.REFUSED


def _usage() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {text}" for name, (_, text) in COMMANDS.items()]
    return "\n".join(
        [
            "usage: dpbeam COMMAND [flags]",
            "",
            *lines,
            "",
            "dpbeam COMMAND --help lists the flags; --version, --quiet, --verbose and --config go with every command.",
        ]
    )
