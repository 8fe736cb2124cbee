"""`dpbeam completion bash|zsh`: a script that completes commands, flags and files."""

from __future__ import annotations

import argparse
import importlib

from dpbeam.cli.flags import FlagParser, entry_point
from dpbeam.errors import SettingError
from dpbeam.jobs.console import emit
from dpbeam.jobs.options import Options, flag

SHELLS = ("bash", "zsh")
# Beam has 180 flags; these are the ones that a person types.
_OF_BEAM = (
    "runner",
    "temp_location",
    "direct_num_workers",
    "flink_master",
    "spark_master_url",
    "prism_location",
)
_FILES = ("FILE", "FILE.yaml", "KEYFILE", "LEDGER", "PATTERN", "PREFIX")
_FOLDERS = ("DIR",)


class CompletionOptions(Options):
    """Which shell."""

    shell: str | None = flag("SHELL", "bash or zsh", nargs="?", positional=True)


def make_parser() -> FlagParser[CompletionOptions]:
    text = "Print a completion script: source <(dpbeam completion bash), or for zsh a file _dpbeam in $fpath."
    return FlagParser("completion", text, CompletionOptions, beam=False)


@entry_point("completion", make_parser)
def main(options: CompletionOptions) -> int:
    shell = options.shell
    if shell not in SHELLS:
        raise SettingError(f"give the shell: {' or '.join(SHELLS)}" + (f", got '{shell}'" if shell else ""))
    import shtab

    emit(shtab.complete(_all_commands(), shell).rstrip("\n"))
    return 0


def _all_commands() -> argparse.ArgumentParser:
    """One parser with every command below it, as shtab wants it."""
    import shtab

    from dpbeam.cli import commands

    root = argparse.ArgumentParser(prog="dpbeam")
    root.add_argument("--version", action="version")
    below = root.add_subparsers()
    for name, (module, text) in commands().items():
        flags = importlib.import_module(module).make_parser()
        parser = below.add_parser(
            name, parents=[flags], add_help=False, help=text, description=text, conflict_handler="resolve"
        )
        if flags.beam:
            for flag in _OF_BEAM:
                parser.add_argument(f"--{flag}", help="of Beam")
        for action in parser._actions:
            if action.metavar in _FILES:
                setattr(action, "complete", shtab.FILE)  # noqa: B010  (shtab looks for it, argparse has none)
            elif action.metavar in _FOLDERS:
                setattr(action, "complete", shtab.DIRECTORY)  # noqa: B010
            elif action.metavar == "SHELL":
                action.choices = SHELLS
    return root
