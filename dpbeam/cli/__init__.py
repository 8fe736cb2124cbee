"""The `dpbeam` command: `dpbeam SUB ...`, one module per subcommand."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points

from dpbeam.cli.loading import be_a_command
from dpbeam.families.registry import families
from dpbeam.jobs.exit_codes import ExitCode
from dpbeam.version import __version__


def of_families() -> dict[str, tuple[str, str]]:
    """The commands of all families, as in COMMANDS."""
    return {
        name: (kind.command or f"dpbeam.cli.{name.replace('-', '_')}", kind.summary)
        for name, kind in families().items()
    }


#: Subcommand -> (module with main(argv) and make_parser(), one line of help).
COMMANDS = {
    **of_families(),
    "plan": ("dpbeam.cli.plan", "thresholds and keep probabilities of a method and budget; needs no data"),
    "methods": ("dpbeam.cli.methods", "methods of selection and their constants, for --set NAME=VALUE"),
    "check": ("dpbeam.cli.check", "whether a runner, its workers and the paths of a job are ready"),
    "budget": ("dpbeam.cli.budget", "accounts of what all runs on a dataset have spent"),
    "verify": ("dpbeam.cli.verify", "recompute the guarantee of a ledger and check its output"),
    "report": ("dpbeam.cli.report", "a page to sign, made from a ledger"),
    "export": ("dpbeam.cli.export", "a ledger as an event of dp_accounting"),
    "clean": ("dpbeam.cli.clean", "remove what killed runs left behind"),
    "completion": ("dpbeam.cli.completion", "completion of commands and flags for bash or zsh"),
}
#: Group of entry points, each a dictionary like COMMANDS, by which other distributions add commands.
ENTRY_POINTS = "dpbeam.commands"
#: Command -> the distribution that adds it.
ADDED_BY = {"tune": "dpbeam-lab", "evaluate": "dpbeam-lab", "synth": "dpbeam-lab"}


def commands() -> dict[str, tuple[str, str]]:
    """COMMANDS, and what is installed besides; none of those replaces one of dpbeam's own."""
    added: dict[str, tuple[str, str]] = {}
    for entry in entry_points(group=ENTRY_POINTS):
        added |= entry.load()
    return COMMANDS | {name: command for name, command in added.items() if name not in COMMANDS}


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the console command; returns the exit code."""
    if argv is None:
        be_a_command()
        if not sys.warnoptions:  # a library's word about a number is no message of ours
            warnings.simplefilter("ignore")
    argv = list(sys.argv[1:] if argv is None else argv)
    known = COMMANDS if argv and argv[0] in COMMANDS else commands()
    if argv and argv[0] in known:
        return importlib.import_module(known[argv[0]][0]).main(argv[1:])
    from dpbeam.errors import complain
    from dpbeam.jobs.console import tell

    if argv[:1] == ["--version"]:
        tell(f"dpbeam {__version__}")
    elif not argv or argv[0] in ("-h", "--help", "help"):
        tell(_usage(known))
    elif argv[0] in ADDED_BY:
        complain(f"dpbeam {argv[0]}: error: this command needs the lab: pip install {ADDED_BY[argv[0]]}")
        return ExitCode.REFUSED
    else:
        from dpbeam.cli.numbers import nearest

        close = nearest(argv[0], known)
        fix = f"did you mean {close}?" if close else f"one of {', '.join(known)}"
        complain(f"dpbeam: error: unknown command '{argv[0]}'; {fix}")
        return ExitCode.REFUSED
    return ExitCode.DONE if argv else ExitCode.REFUSED


def _usage(known: Mapping[str, tuple[str, str]]) -> str:
    width = max(map(len, known))
    lines = [f"  {name:<{width}}  {text}" for name, (_, text) in known.items()]
    return "\n".join(
        [
            "usage: dpbeam COMMAND [flags]",
            "",
            *lines,
            "",
            "dpbeam COMMAND --help lists the flags; --version, --quiet, --verbose and --config go with every command.",
        ]
    )
