"""Errors that a user of dpbeam can fix, and how a line reaches the user."""

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

#: Stand before the name of a parameter, before advice, and before the name of a method's constant. Unicode has no
#: such characters, so texts of users hold none.
_MARK, _ADVICE, _CONSTANT = "\ufdd0", "\ufdd1", "\ufdd2"


def param(name: str) -> str:
    """The name of a parameter within the message of an error.

    The message of `SettingError(f"{param('k')} must be positive")` is "--k must be positive" for a command and
    "k must be positive" for a caller in Python.
    """
    return f"{_MARK}{name}"


def constant(name: str) -> str:
    """The name of a method's constant in the message of an error: "--set rounds" for a command, "rounds" in Python."""
    return f"{_CONSTANT}{name}"


def advice(text: str) -> str:
    """The end of the message of an error, from its comma or semicolon on, that advises a flag of the input.

    What is read with no such flag, as a list, leaves it out (`InputError.problem`).
    """
    return f"{_ADVICE}{text}"


class _NamesParameters(Exception):
    """An error whose message names parameters as flags, or as arguments.

    Attributes:
      template: the message with the marks of `param`, `constant` and `advice`; an error that quotes this one quotes it.
    """

    def __init__(self, message: str):
        self.template = message
        super().__init__(_as_flags(message.replace(_ADVICE, "")))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.template,), self.__dict__

    @property
    def problem(self) -> str:
        """The message without the advice."""
        return _as_flags(self.template.partition(_ADVICE)[0])

    def of_arguments(self) -> str:
        """The message for a caller in Python: names without dashes."""
        return self.template.translate(dict.fromkeys(map(ord, (_MARK, _ADVICE, _CONSTANT))))


def _as_flags(text: str) -> str:
    return text.replace(_MARK, "--").replace(_CONSTANT, "--set ")


class InputError(_NamesParameters, ValueError):
    """Wrong usage or bad input; the message is one line that names the flag, file, column or value.

    The command line prints the message alone and exits with status 2. The message never contains
    values of the private data: it names files, columns, line numbers and types only.

    Each is raised as one of its kinds below. The kind says what has to change before the same call can succeed; where
    a setting and the data contradict each other, it is `DataError`.
    """

    def __init__(self, message: str):
        super().__init__(" ".join(str(message).split()))


class SettingError(InputError):
    """A flag, an argument or a file of settings: it is missing, out of range, or does not go with another one."""


class DataError(InputError):
    """What is read, of users or public: a file, column or row is not there, malformed, or not what settings say."""


class BudgetError(InputError):
    """The account of budget: there is none, its limit would be passed, or it knows the release as another one."""


class StoreError(InputError):
    """A place for files that dpbeam writes: not writable, taken, gone, or changed since by something else."""


class SetupError(InputError):
    """The machine: a package, filesystem, folder key or part of an engine that the call needs is not there."""


class UnavailableError(_NamesParameters, RuntimeError):
    """What is needed does not answer now; the same command may find it a minute later.

    The command line prints the message alone, one line that names the flag or the file, and exits with status 1.
    """


class RunnerError(RuntimeError):
    """A runner has lost or doubled a part of the run, which so is not the one that was planned.

    The command line prints the message alone, one line that names what is missing and no number of it, and exits with
    status 1.
    """


def template_of(error: BaseException) -> str:
    """The text of any error, to be quoted in another: parameters stay marked."""
    return error.template if isinstance(error, _NamesParameters) else str(error)


@contextlib.contextmanager
def naming_arguments() -> Iterator[None]:
    """Errors within name arguments, not flags."""
    try:
        yield
    except (InputError, UnavailableError) as error:
        raise type(error)(error.of_arguments()) from None


def visible(text: str) -> str:
    """A line as it may go to a terminal: control characters of names and values would command it."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode("ascii") for c in text
    )


def complain(line: str) -> None:
    """A line on stderr, which may be full or gone: what cannot be said stops nothing."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            print(visible(line), file=sys.stderr, flush=True)
