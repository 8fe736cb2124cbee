"""`--result_file FILE`: how a run ended and what it released, for programs, in public values alone.

The file tells of the last run with this name that ended, whatever its end: it is removed before a run starts and
written by rename when it ends, so after `kill -9` there is none, and none ever tells of an earlier run. A release that
is out already gets a file of the same form.

An error goes into the file only where it is public: of data files it says no more than the flag, and of an unexpected
fault no more than its kind, for what a library says of one may hold anything. Only a file that is absent or was written
for this purpose is ever touched; any other in its place is an error, or with `--overwrite` replaced when the run has
succeeded.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from dpbeam.errors import InputError, UnavailableError
from dpbeam.io.new_files import NewFile, check_not_output
from dpbeam.jobs.console import NothingToDo, failure_in_own_words, find_input_error, run_command, warn
from dpbeam.jobs.exit_codes import ExitCode
from dpbeam.version import __version__

FORM = 1
_LARGEST = 64 << 20
RELEASED, OUT_ALREADY, REFUSED, FAILED = "released", "already_released", "refused", "failed"
_STATUS = {ExitCode.REFUSED: REFUSED, ExitCode.FAILED: FAILED}
#: What every result of any version has.
_MARKS = {"command", "outputs", "items_released"}
#: Flags whose errors may name files that a pattern matches, or lines of them: these may follow the data.
_OF_DATA = {
    *("--input", "--agents", "--histogram", "--domain", "--public_items", "--supplies"),
    *("--input_format", "--input_layout", "--item_type", "--agent_type", "--tokenizer", "--text_layout"),
    *("--user_column", "--item_column", "--agent_column", "--value_column", "--demand_column"),
}
#: What is looked for on a command line that cannot be parsed.
_GUESSED = ("result_file", "output", "dataset", "release_id", "folder", "night")
#: What a result says of a release, by the names of the ledger.
_OF_LEDGER = ("method", "accounting", "epsilon", "delta", "parameters")


class ResultFile(NewFile):
    """The file, and whether this run may write it."""

    _ready = _replaces = False

    def claim(self, given: Mapping[str, Any], extras: Sequence[str] = ()) -> None:
        """Refuse a file that could not be written at the end, or that stands in the way.

        Args:
          given: flags, `output` among them.
          extras: of the output, as in `OutputTarget`.

        Raises:
          InputError: naming the flag.
        """
        check_not_output(self.flag, self, given["output"], extras)
        found = self._found()
        if found is not None and not _replaceable(found, given):
            raise InputError(
                f"--result_file: '{self}' exists and tells of another release; pass --overwrite to replace it, "
                "or another name"
            )
        self._replaces = found is not None
        self.check(overwrite=given.get("overwrite", False))
        self._ready = self._replaces or not os.path.lexists(self)

    def check(self, *, overwrite: bool, inputs: Iterable[str] = ()) -> None:
        """As of any other file, but that a result which nobody misses is replaced."""
        super().check(overwrite=overwrite or self._replaces, inputs=inputs)

    def clear(self) -> None:
        """The run starts: whatever an earlier one has written is gone."""
        if self._found() is not None:
            with contextlib.suppress(FileNotFoundError):
                os.remove(self)

    def tell(self, result: Mapping[str, Any]) -> None:
        """The run has ended, and its output is as it is: trouble is a warning, and leaves no earlier result."""
        try:
            self.write(f"{json.dumps(result, indent=2)}\n".encode(), overwrite=True)
        except (InputError, UnavailableError) as error:
            warn(str(error))
            with contextlib.suppress(OSError):
                self.clear()

    def write_end(self, command: str, given: Mapping[str, Any], code: ExitCode, error: str | None) -> None:
        """A run that has released nothing."""
        with contextlib.suppress(InputError):
            if not self._ready and "output" in given:
                self.claim(given)
        found = self._found()
        if self._ready if found is None else _replaceable(found, given):
            self.tell(describe(command, given, _STATUS[code], code, error=error))

    def _found(self) -> dict[str, Any] | None:
        """An earlier result; None where there is none, or something else."""
        try:
            if not stat.S_ISREG(os.lstat(self).st_mode) or os.path.getsize(self) > _LARGEST:
                return None
            with open(self, encoding="utf-8") as file:
                values = json.load(file)
        except (OSError, ValueError, RecursionError):
            return None
        return values if isinstance(values, dict) and set(values) >= _MARKS else None


def _replaceable(found: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    """Whether nobody misses an earlier result: it tells of no release, or of the same one."""
    if given.get("overwrite", False) or found.get("status", RELEASED) in (REFUSED, FAILED):
        return True
    for marks, names in (
        (found.get("budget") or found, ("dataset", "release_id")),
        (found.get("parameters") or {}, ("series", "night")),
    ):
        if all(name in given and marks.get(name) == given[name] for name in names):
            return True
    return False


def describe(
    command: str, given: Mapping[str, Any], status: str, code: ExitCode, **more: Any
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
        "dataset": given.get("dataset"),
        "release_id": given.get("release_id"),
        "charge": None,
        "budget": None,
        "outputs": [],
        "ledger": None,
        "items_released": None,
        "private": None,
        **dict.fromkeys(_OF_LEDGER),
    }
    if unknown := set(more) - set(result):
        raise ValueError(f"no fields of a result: {unknown}")
    return result | more


def of_release(
    ledger: Mapping[str, Any], ledger_path: str, outputs: Sequence[str], items: int
) -> dict[str, Any]:
    """What a ledger beside its output says, as fields of `describe`."""
    from dpbeam.accounting.ledger import KEY_FROM_OS

    return {
        "budget": ledger["parameters"].get("account"),
        "outputs": list(outputs),
        "ledger": ledger_path,
        "items_released": items,
        "private": ledger["key_source"] == KEY_FROM_OS,
        **{name: ledger[name] for name in _OF_LEDGER},
    }


Body = Callable[[dict[str, Any], list[str]], int]


def run_release(
    command: str,
    argv: list[str],
    parse: Callable[[], tuple[dict[str, Any], list[str]]],
    body: Body,
    place: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda given: {},
) -> int:
    """Run a command that releases; its result file tells how it ended.

    Args:
      argv: the command line, for what must be known where it cannot be parsed.
      parse: flags that are given, and Beam's.
      body: the command, with these.
      place: what flags say by way of a file: `output`, and what the release is known by. Raises nothing.

    Returns:
      The exit code.
    """
    known: dict[str, Any] = {}

    def run() -> int:
        given, beam_arguments = parse()
        if "result_file" in given:
            named = given["result_file"]
            given["result_file"] = ResultFile(named, named.flag, named.reads)
        known.update(given)
        return body(given, beam_arguments)

    def ended(code: ExitCode, error: BaseException | None) -> None:
        given = known or _guess(argv)
        given |= place(given)
        file = given.get("result_file")
        if file is None or error is None or given.get("dry_run", False):
            return
        if isinstance(error, NothingToDo):
            _write_existing(file, command, given, error.charge)
        else:
            file.write_end(command, given, code, _told(error, parsed=bool(known)))

    return run_command(command, run, verbose="--verbose" in argv, ended=ended)


def _guess(argv: Sequence[str]) -> dict[str, Any]:
    """Of a command line that cannot be parsed: the result file, and whether the run was to write any."""
    given: dict[str, Any] = {name: True for name in ("dry_run", "overwrite") if f"--{name}" in argv}
    for number, word in enumerate(argv):
        flag, equals, value = word.partition("=")
        name = flag.removeprefix("--")
        if name in _GUESSED and (equals or number + 1 < len(argv)):
            given[name] = value if equals else argv[number + 1]
    if "result_file" in given:
        try:
            given["result_file"] = ResultFile(given["result_file"], "--result_file")
        except InputError:  # which the command line has told
            del given["result_file"]
    return given


def _told(error: BaseException, *, parsed: bool) -> str:
    """An error in public words.

    Args:
      parsed: whether flags were in order; before that no data is looked at.
    """
    wrong = find_input_error(error)
    if wrong is None:
        return failure_in_own_words(error)
    flag = re.match(r"--\w+", wrong)
    if not parsed or (flag and flag[0] not in _OF_DATA):
        return wrong
    return f"{flag[0] if flag else 'the input'} is refused; the run's stderr says why"


def _write_existing(
    file: ResultFile, command: str, given: Mapping[str, Any], charge: Mapping[str, float] | None
) -> None:
    """The release was out before this run."""
    from dpbeam.io.output import count_released, ledger_path, read_ledger, shards_named
    from dpbeam.io.paths import local_path

    prefix, found = local_path(given["output"], "--output"), {}
    try:
        ledger = read_ledger(prefix) or {"parameters": {}}
        account = ledger["parameters"].get("account") or {}
        # It may have been moved away, or have made room for a later release.
        if account.get("release_id") == given["release_id"] and account.get("dataset") == given["dataset"]:
            shards = shards_named(prefix, ledger)
            found = of_release(ledger, ledger_path(prefix), shards, count_released(shards))
    except (OSError, ValueError) as error:
        warn(f"--result_file: the output '{prefix}' cannot be read: {error}")
    file.tell(describe(command, given, OUT_ALREADY, ExitCode.DONE, charge=charge, **found))
