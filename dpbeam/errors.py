"""Errors that a user of dpbeam can fix, and how a line reaches the user."""

import contextlib
import sys


class InputError(ValueError):
    """Wrong usage or bad input; the message is one line that names the flag, file, column or value.

    The command line prints the message alone and exits with status 2. The message never contains
    values of the private data: it names files, columns, line numbers and types only.
    """

    def __init__(self, message: str):
        super().__init__(" ".join(str(message).split()))


class UnavailableError(RuntimeError):
    """What is needed does not answer now; the same command may find it a minute later.

    The command line prints the message alone, one line that names the flag or the file, and exits with status 1.
    """


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
