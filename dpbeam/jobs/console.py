"""What a command prints, and how it ends: one line for an error, and an exit code (`dpbeam.jobs.exit_codes`).

Two kinds of output: a command's *product* (a plan, a help text), without which it has failed, and *messages*, which
never fail a job: once output is committed, a full or closed terminal must not make an orchestrator spend the budget
again. A reader that closes the pipe early, as `head` does, has what it wanted.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping

from dpbeam.errors import InputError, RunnerError, UnavailableError, complain, visible
from dpbeam.jobs.exit_codes import ExitCode
from dpbeam.room import nearest_folder
from dpbeam.signals import deferring, forget_interrupt, interrupting

_SAYS_NOTHING = re.compile(r"\W*$|\s*at [\w.$/<>]+\(.*\)$|\s*\.\.\. \d+ more$")
_OS_ERROR = re.compile(r"\[Errno (\d+)\] [^\n:']+(?:: '([^'\n]+)')?")
_FULL = (errno.ENOSPC, errno.EDQUOT)


class OutputLostError(Exception):
    """The product of a command could not be printed."""


class NothingToDo(Exception):
    """What the command is asked for is done already; it ends with 0.

    Args:
      charge: what it has cost its account.
    """

    def __init__(self, charge: Mapping[str, float] | None = None):
        super().__init__()
        self.charge = charge


class _State:
    began = time.monotonic()
    command = ""
    verbose = False


def run_command(
    command: str,
    body: Callable[[], int],
    *,
    verbose: bool = False,
    ended: Callable[[ExitCode, BaseException | None], None] | None = None,
) -> int:
    """Run a subcommand and turn what it raises into an exit code.

    Args:
      ended: is told how the command ended, and what it raised.

    Returns:
      A value of `ExitCode`.
    """
    _State.command, _State.began = command, time.monotonic()
    set_verbosity(verbose=verbose)
    raised: BaseException | None = None
    try:
        with interrupting():
            return body()
    except SystemExit as end:  # argparse, after --help and --version
        return end.code if isinstance(end.code, int) else ExitCode.DONE
    except (Exception, KeyboardInterrupt) as error:
        raised = error
        forget_interrupt()
    code, message = _outcome(raised)
    if message:
        complain(f"dpbeam {_State.command}: error: {message}")
    if ended is not None:
        with deferring():
            _tell_end(ended, code, raised)
    return code


def _tell_end(
    ended: Callable[[ExitCode, BaseException | None], None], code: ExitCode, raised: BaseException
) -> None:
    """Trouble here changes nothing of how the command has ended."""
    try:
        ended(code, raised)
    except Exception as error:
        warn(f"how the run ended could not be written down: {type(error).__name__}: {_last_line(error)}")


def _outcome(error: BaseException) -> tuple[ExitCode, str]:
    """Exit code and one line for what a command has raised; the line of no error is empty."""
    if isinstance(error, NothingToDo):
        return ExitCode.DONE, ""
    if isinstance(error, (OutputLostError, UnavailableError)):
        return ExitCode.FAILED, str(error)
    if _interrupted(error):
        return ExitCode.FAILED, "interrupted"
    message = find_input_error(error)
    if message is not None:
        return ExitCode.REFUSED, message
    message = find_runner_error(error)
    if message is not None:
        return ExitCode.FAILED, f"{message}; nothing is published"
    message = _find(error, UnavailableError)
    if message is not None:
        return ExitCode.FAILED, message
    if _State.verbose:
        with contextlib.suppress(OSError, ValueError):
            traceback.print_exception(error)
    return _no_room(error) or (ExitCode.FAILED, _failure(error))


def _interrupted(error: BaseException) -> bool:
    # The text is as Beam's in-process runner passes it on.
    return isinstance(error, KeyboardInterrupt) or str(error).startswith("KeyboardInterrupt")


def failure_in_own_words(error: BaseException) -> str:
    """One line for a failure without a word of a library's, which may quote anything."""
    if _interrupted(error):
        return "interrupted"
    if type(error).__module__.partition(".")[0] == "dpbeam":
        return _last_line(error)
    return f"{type(error).__name__}; the run's stderr says more"


def _no_room(error: BaseException) -> tuple[ExitCode, str] | None:
    """Exit code and line where a disk is full, or a file may not be as large as a run needs it."""
    for seen in _chain(error):
        match = _OS_ERROR.search(str(seen))
        if match is None or int(match[1]) not in (*_FULL, errno.EFBIG):
            continue
        place = f", in '{nearest_folder(os.path.dirname(match[2]))}'" if match[2] else ""
        said = f"{os.strerror(int(match[1]))}{place}"
        if int(match[1]) == errno.EFBIG:
            return ExitCode.REFUSED, f"{said}; raise the limit on the size of a file (ulimit -f)"
        return ExitCode.FAILED, f"{said}; make room, or give another --temp_location or --output"
    return None


def _failure(error: BaseException) -> str:
    """One line for what is nobody's wrong input."""
    hint = "" if _State.verbose else " (--verbose shows the whole trace)"
    if type(error).__module__.partition(".")[0] == "dpbeam":
        return _last_line(error)
    return f"{type(error).__name__}: {_last_line(error)}{hint}"


def find_input_error(error: BaseException) -> str | None:
    """The message of an InputError that a worker raised, out of whatever the runner wrapped it in."""
    return _find(error, InputError)


def find_runner_error(error: BaseException) -> str | None:
    """The message of a RunnerError, likewise."""
    return _find(error, RunnerError)


def _find(error: BaseException, kind: type[Exception]) -> str | None:
    """The message of the first error of a kind: itself among the causes, or the line of a trace that names its class.

    Runners pass on what a worker raised as the text of its trace. There an error is a line of its own, its class with
    its module before the message; so words of a message, or of a library, are not taken for it.
    """
    heads = tuple(f"{one.__module__}.{one.__qualname__}: " for one in _with_subclasses(kind))
    for seen in _chain(error):
        if isinstance(seen, kind):
            return _without_step(str(seen))
        for line in str(seen).splitlines():
            if line.startswith(heads):
                return _without_step(line.partition(": ")[2])
    return None


def _with_subclasses(kind: type[Exception]) -> list[type[Exception]]:
    return [kind, *(deeper for below in kind.__subclasses__() for deeper in _with_subclasses(below))]


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _without_step(message: str) -> str:
    """A message less the step that Beam appends to what a DoFn raised."""
    return re.sub(r" ?\[while running '[^']*'\].*$", "", message).rstrip()


def _last_line(error: BaseException) -> str:
    """The last line that says something: of a trace of Java's the last cause."""
    lines = [line.strip() for line in str(error).splitlines() if not _SAYS_NOTHING.match(line)]
    return lines[-1] if lines else "no message"


def elapsed() -> float:
    """Seconds since the command began, its imports included."""
    return time.monotonic() - _State.began


def warn(text: str) -> None:
    """One line on stderr, also under --quiet."""
    complain(f"dpbeam {_State.command}: warning: {text}")


def emit(text: str) -> None:
    """Print the product of a command.

    Raises:
      OutputLostError: it cannot be written; not where the reader has closed the pipe.
    """
    if sys.stdout is None:
        raise OutputLostError("standard output is closed")
    error = _put(text)
    if error is not None and not isinstance(error, BrokenPipeError):
        raise OutputLostError(f"cannot write to standard output: {error.strerror}")


def tell(text: str) -> None:
    """Print a message; whatever is wrong with stdout is a warning at most."""
    error = _put("\n".join(map(visible, text.split("\n"))))
    if error is not None and not isinstance(error, BrokenPipeError):
        warn(f"cannot write to standard output: {error.strerror}")


def _put(text: str) -> OSError | None:
    try:
        try:
            print(text, flush=True)
        except UnicodeEncodeError as error:
            print(text.encode(error.encoding, "replace").decode(error.encoding), flush=True)
    except OSError as error:
        # What is left in the buffer would fail again at the end of the program.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return error
    return None


def set_verbosity(*, verbose: bool) -> None:
    """Keep Beam's log and stack traces off the terminal unless asked for."""
    _State.verbose = verbose
    root = logging.getLogger()
    if not root.handlers:
        logging.basicConfig(stream=sys.stderr)
    root.setLevel(logging.INFO if verbose else logging.CRITICAL)
