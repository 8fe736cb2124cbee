"""`--result_file FILE`: how a run ended and what it released, for programs, in public values alone.

`result_file.py` says when it is written. A release that is out already gets a file of the same form.

An error goes into the file only where it is public: of data files it says no more than the flag, and of an unexpected
fault no more than its kind, for what a library says of one may hold anything.
"""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from dpbeam.errors import InputError
from dpbeam.jobs.console import NothingToDo, failure_in_own_words, find_input_error, run_command, warn
from dpbeam.jobs.exit_codes import ExitCode
from dpbeam.jobs.options import WRITTEN, Options
from dpbeam.jobs.result_file import FAILED, OUT_ALREADY, REFUSED, RELEASED, ResultFile
from dpbeam.version import __version__

__all__ = ["OUT_ALREADY", "RELEASED", "describe", "file_of", "of_release", "run_release"]

OptionsT = TypeVar("OptionsT", bound=Options)
FORM = 1
_STATUS = {ExitCode.REFUSED: REFUSED, ExitCode.FAILED: FAILED}
#: Flags whose errors may name files that a pattern matches, or lines of them: these may follow the data.
_OF_DATA = {
    "--input",
    "--agents",
    "--domain",
    "--public_items",
    "--supplies",
    "--input_format",
    "--input_layout",
    "--item_type",
    "--agent_type",
    "--tokenizer",
    "--text_layout",
    "--user_column",
    "--item_column",
    "--agent_column",
    "--value_column",
    "--demand_column",
}
#: What is looked for on a command line that cannot be parsed.
_GUESSED = ("result_file", "output", "dataset", "release_id", "folder", "night")
#: What a result says of a release, by the names of the ledger.
_OF_LEDGER = ("method", "accounting", "epsilon", "delta", "parameters")


def file_of(said: Mapping[str, Any]) -> ResultFile | None:
    """The file that is to tell how the run has ended."""
    return said.get("result_file")


def describe(
    command: str, said: Mapping[str, Any], status: str, code: ExitCode, **more: Any
) -> dict[str, Any]:
    """A result; what is not known is null, or an empty list.

    Args:
      more: of the fields below, those that are known.
    """
    result: dict[str, Any] = {
        "form": FORM,
        "software": f"dpbeam {__version__}",
        "command": command,
        "status": status,
        "exit_code": int(code),
        "meaning": code.meaning,
        "error": None,
        "dataset": said.get("dataset"),
        "release_id": said.get("release_id"),
        "charge": None,
        "budget": None,
        "outputs": [],
        "ledger": None,
        "items_released": None,
        "others": None,
        "private": None,
        **dict.fromkeys(_OF_LEDGER),
    }
    if unknown := set(more) - set(result):
        raise ValueError(f"no fields of a result: {unknown}")
    return result | more


def of_release(prefix: str, items: int | None = None) -> dict[str, Any]:
    """What the ledger of a finished output says, as fields of `describe`.

    Args:
      items: the number of released ones, where it is known already.

    Raises:
      OSError, ValueError: there is no ledger, or the output cannot be read.
    """
    from dpbeam.accounting.ledger import KEY_FROM_OS
    from dpbeam.io.output import count_released, ledger_path, read_ledger, shards_named

    ledger = read_ledger(prefix)
    if ledger is None:
        raise ValueError(f"no ledger at '{prefix}'")
    outputs = shards_named(prefix, ledger)
    return {
        "budget": ledger["parameters"].get("account"),
        "outputs": outputs,
        "ledger": ledger_path(prefix),
        "items_released": count_released(outputs) if items is None else items,
        "others": ledger.get("release", {}).get("others"),
        "private": ledger["key_source"] == KEY_FROM_OS,
        **{name: ledger[name] for name in _OF_LEDGER},
    }


def run_release(
    command: str,
    argv: list[str],
    parse: Callable[[], tuple[OptionsT, list[str]]],
    body: Callable[[OptionsT, list[str]], int],
    place: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda said: {},
) -> int:
    """Run a command that releases; its result file tells how it ended.

    Args:
      argv: the command line, for what must be known where it cannot be parsed.
      parse: flags that are said, and Beam's.
      body: the command, with these.
      place: what flags say by way of a file: `output`, and what the release is known by. Raises nothing.

    Returns:
      The exit code.
    """
    known: dict[str, Any] = {}

    def run() -> int:
        options, beam_arguments = parse()
        said = options.said
        if "result_file" in said:
            file = said["result_file"]
            said["result_file"] = ResultFile(file, file.flag, file.reads)
        known.update(said)
        return body(options, beam_arguments)

    def ended(code: ExitCode, error: BaseException | None) -> None:
        said = known or _guess(argv)
        said |= place(said)
        file = file_of(said)
        if file is None or error is None or said.get("dry_run", False):
            return
        if isinstance(error, NothingToDo):
            file.tell(_existing(command, said, error.charge))
            return
        told = _public_words(error, parsed=bool(known))
        file.tell_end(said, describe(command, said, _STATUS[code], code, error=told))

    return run_command(command, run, verbose="--verbose" in argv, ended=ended)


def _guess(argv: Sequence[str]) -> dict[str, Any]:
    """Of a command line that cannot be parsed: the file, and whether the run was to write any."""
    flags = [word.partition("=")[0].replace("-", "_") for word in argv]
    said: dict[str, Any] = {name: True for name in ("dry_run", "overwrite") if f"__{name}" in flags}
    for number, word in enumerate(argv):
        _, equals, value = word.partition("=")
        name = flags[number].removeprefix("__")
        if name in _GUESSED and (equals or number + 1 < len(argv)):
            said[name] = value if equals else argv[number + 1]
    if "result_file" in said:
        try:
            said["result_file"] = ResultFile(WRITTEN(said["result_file"]), "--result_file")
        except (InputError, ArgumentTypeError):  # which the command line has told
            del said["result_file"]
    return said


def _public_words(error: BaseException, *, parsed: bool) -> str:
    """An error in public words.

    Args:
      parsed: whether flags were in order; before that no data is looked at.
    """
    wrong = find_input_error(error)
    if wrong is None:
        return failure_in_own_words(error)
    flag = re.match(r"--\w+", wrong)  # by its text: errors of remote workers arrive as text
    if not parsed or (flag and flag[0] not in _OF_DATA):
        return wrong
    return f"{flag[0] if flag else 'the input'} is refused; the run's stderr says why"


def _existing(command: str, said: Mapping[str, Any], charge: Mapping[str, float] | None) -> dict[str, Any]:
    """The release was out before this run."""
    from dpbeam.io.new_files import output_named
    from dpbeam.io.output import read_ledger
    from dpbeam.io.paths import local_path

    prefix, released = output_named(local_path(said["output"], "--output"))[0], {}
    try:
        ledger = read_ledger(prefix) or {"parameters": {}}
        account = ledger["parameters"].get("account") or {}
        # It may have been moved away, or have made room for a later release.
        if account.get("release_id") == said["release_id"] and account.get("dataset") == said["dataset"]:
            released = of_release(prefix)
    except (OSError, ValueError) as error:
        warn(f"--result_file: the output '{prefix}' cannot be read: {error}")
    return describe(command, said, OUT_ALREADY, ExitCode.DONE, charge=charge, **released)
