"""What a path says before anything is opened: its filesystem, and whether it is a folder, a pipe or a device.

Needs no Beam for paths of this machine, so that a wrong flag is refused at once. Such a path may begin with `~` and may
be a `file://` URL; `-` and pipes are read once, and so have to be copied where workers read them (`dpbeam.io.spool`).
"""

from __future__ import annotations

import os
import re
import stat
from urllib.parse import unquote

from dpbeam.errors import DataError, SettingError, visible
from dpbeam.storage import FileSystems

STDIN = "-"
# Major numbers of terminals on Linux: tty, console, ptmx, pts.
_TERMINALS = (4, 5, *range(136, 144))
_FILE_URL = re.compile(r"file:(?://([^/]*))?(/(?:[^/].*)?)", re.IGNORECASE | re.DOTALL)
_DESCRIPTOR = re.compile(r"/dev/stdin|/dev/fd/\d+|/proc/(self|\d+)/fd/\d+")

scheme_of = FileSystems.get_scheme


def absolute(path: str) -> str:
    """A local path from the root, for whoever looks from another folder, as workers do; others as they are."""
    return os.path.abspath(path) if scheme_of(path) is None else path


def resolved(path: str) -> str:
    """A local path from the root without links; others as they are."""
    return os.path.realpath(path) if scheme_of(path) is None else path


def is_folder(path: str) -> bool:
    """Whether a path is a folder of this machine."""
    return scheme_of(path) is None and os.path.isdir(path)


def local_path(path: str, flag: str) -> str:
    """A path with `~` expanded and `file://` taken off; other paths as they are.

    Raises:
      InputError: a `file://` URL of another machine, or a relative one.
    """
    if path.lower().startswith("file:/"):
        url = _FILE_URL.fullmatch(path)
        if url is None or url[1] not in (None, "", "localhost"):
            raise SettingError(f"{flag}: '{path}': a file URL names this machine: file:///folder/name")
        return unquote(url[2])
    return os.path.expanduser(path) if path.startswith("~") else path


def check_text(text: str, flag: str, fix: str = "") -> None:
    """Refuse what is no text, such as a file's name that is no UTF-8: workers and the ledger get it as one.

    Args:
      fix: what to do about it, for the message.

    Raises:
      InputError: showing such bytes as \\xNN.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        shown = visible(text).replace(r"\udc", r"\x")  # of each byte that is none Python makes this
        raise SettingError(f"{flag}: '{shown}' is not valid UTF-8{fix}") from None


def is_pipe(path: str) -> bool:
    """Whether a path can be read once only: stdin, a pipe, a device or a socket."""
    if path == STDIN or scheme_of(path) is not None:
        return path == STDIN
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return False
    # A file behind /dev/stdin or /dev/fd/N goes by that name in this process alone.
    own = _DESCRIPTOR.fullmatch(os.path.abspath(path)) is not None
    return own or not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def check_no_device(path: str, flag: str) -> None:
    """Refuse a device that never ends, such as /dev/zero; a terminal and /dev/null do. Raises InputError."""
    try:
        state = os.fstat(0) if path == STDIN else os.stat(path)
    except (OSError, ValueError):
        return
    mode, null = state.st_mode, os.stat(os.devnull)
    ends = stat.S_ISCHR(mode) and (state.st_rdev == null.st_rdev or os.major(state.st_rdev) in _TERMINALS)
    if stat.S_ISBLK(mode) or stat.S_ISSOCK(mode) or (stat.S_ISCHR(mode) and not ends):
        raise DataError(f"{flag}: '{path}' is a device; name a file")


def name_of(path: str) -> str:
    """The last part of a path or URL."""
    return path.rpartition("/")[2]
