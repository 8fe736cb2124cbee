"""What a path says before anything is opened: its filesystem and compression, the files that it means here.

Needs no Beam for paths of this machine, so that a wrong flag is refused at once. Such a path may begin with `~` and may
be a `file://` URL; `-` and pipes are read once, and so have to be copied where workers read them (`dpbeam.io.spool`).
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
import stat
from typing import NamedTuple
from urllib.parse import unquote

from dpbeam.errors import DataError, InputError, SettingError, visible
from dpbeam.storage import FileSystems

STDIN = "-"
_IN_FOLDER = "**/[!_.]*"
_IN_STORE = "[!_.]**"  # where ** goes through slashes
_IN_FOLDERS = (_IN_FOLDER, _IN_STORE)
WILDCARDS = "*?["


class Compression(NamedTuple):
    """One way to compress a file as a whole; `magic` is a pattern."""

    name: str
    suffix: str
    magic: bytes

    def begins(self, head: bytes) -> bool:
        """Whether a file of these first 16 bytes, or fewer where it has no more, is compressed so."""
        return re.match(self.magic, head, re.DOTALL) is not None


COMPRESSIONS = (
    Compression("gzip", "gz", rb"\x1f\x8b"),
    Compression("zstd", "zst", rb"\x28\xb5\x2f\xfd"),
    # Its three letters may begin a text: what follows is the size, and the first block or the end.
    Compression("bz2", "bz2", rb"BZh[1-9](?:1AY&SY|\x17\x72\x45\x38\x50\x90)"),
    Compression("xz", "xz", rb"\xfd7zXZ\0"),
)
_UNREADABLE = ("zip", "lz4", "7z", "snappy")
# Major numbers of terminals on Linux: tty, console, ptmx, pts.
_TERMINALS = (4, 5, *range(136, 144))
_FILE_URL = re.compile(r"file:(?://([^/]*))?(/(?:[^/].*)?)", re.IGNORECASE | re.DOTALL)
_DESCRIPTOR = re.compile(r"/dev/stdin|/dev/fd/\d+|/proc/(self|\d+)/fd/\d+")
# Left beside data by other engines; never data.
_MARKERS = frozenset({"_SUCCESS", "_metadata", "_common_metadata"})


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


def literal(path: str) -> str:
    """A path as a pattern, which means it alone on this machine; elsewhere as it is."""
    return glob.escape(path) if scheme_of(path) is None else path


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


def is_wild(pattern: str) -> bool:
    """Whether a pattern has wildcards and is not itself the name of a file."""
    named = scheme_of(pattern) is None and os.path.isfile(pattern)
    return any(c in pattern for c in WILDCARDS) and not named


def local_files(pattern: str) -> list[str]:
    """Files of this machine that a pattern means."""
    return [path for path, _ in files_of(pattern)]


def is_data(path: str, pattern: str) -> bool:
    """Whether a file that a wildcard matched is data: no leading dot, as in a shell, and no marker of Hadoop's; in a
    folder of the input no leading underscore either, as to other tools."""
    name = name_of(path)
    if pattern.endswith(_IN_FOLDERS):
        folder = _folder_of(pattern)
        below = (
            os.path.relpath(path, folder).split(os.sep)
            if scheme_of(path) is None
            else path[len(folder) + 1 :].split("/")
        )
        return bool(below[-1]) and not any(part.startswith((".", "_")) for part in below)
    hidden = name.startswith(".") and not name_of(pattern).startswith(".")
    return not hidden and name not in _MARKERS


def of_folder(path: str) -> str:
    """The pattern of the files in a folder, here or on a store, and in those below it; other paths as they are.

    A path on a store is a folder where no file has that name and some have names below it.
    """
    if is_folder(path):
        return os.path.join(literal(path), _IN_FOLDER)
    if scheme_of(path) is None or is_wild(path):
        return path
    folder = path.rstrip("/")
    try:
        with contextlib.suppress(IsADirectoryError):  # on HDFS
            # The mark that consoles make of a folder has a slash at its end.
            if path == folder and FileSystems.match(path):
                return path
        on_store = FileSystems.match(f"{folder}/**", 1)
    except (OSError, ValueError, ImportError):
        return path  # who looks up its files says what is wrong
    return f"{folder}/{_IN_STORE}" if on_store else path


def in_folder_of_store(pattern: str) -> list[str]:
    """The files of a pattern that `of_folder` gives for a folder on a store; none of other patterns."""
    return [path for path, _ in files_of(pattern)] if pattern.endswith(_IN_STORE) else []


def files_of(pattern: str) -> list[tuple[str, int]]:
    """(path, size in bytes) of the files that a pattern means.

    Raises: OSError, ValueError or ImportError: they cannot be looked up.
    """
    wild = is_wild(pattern)
    return [
        (path, size)
        for path, size in FileSystems.match(pattern).items()
        if not wild or is_data(path, pattern)
    ]


def left_out(pattern: str) -> int:
    """How many files `of_folder` leaves out for their names, or for those of their folders; 0 of other patterns."""
    if not pattern.endswith(_IN_FOLDERS):
        return 0
    if scheme_of(pattern) is not None:
        all_files = [
            path for path in FileSystems.match(f"{_folder_of(pattern)}/**") if not path.endswith("/")
        ]
        return len(all_files) - len(files_of(pattern))
    every = sum(len(files) for _, _, files in os.walk(_folder_of(pattern)))
    return every - len(local_files(pattern))


def _folder_of(pattern: str) -> str:
    if scheme_of(pattern) is not None:
        return pattern.removesuffix(_IN_STORE).rstrip("/")
    return re.sub(r"\[([*?[])\]", r"\1", pattern.removesuffix(_IN_FOLDER)).rstrip(os.sep) or os.sep


def no_file(pattern: str, flag: str) -> InputError:
    """The error for a pattern without files."""
    if pattern.endswith(_IN_FOLDERS):
        return DataError(f"{flag}: the folder '{_folder_of(pattern)}' holds no file to read")
    what = "no file matches" if is_wild(pattern) else "no such file:"
    return DataError(f"{flag}: {what} '{pattern}'")


def check_no_folder(pattern: str, flag: str) -> None:
    """Refuse a folder where files are named. Raises InputError."""
    if is_folder(pattern):
        example = os.path.join(pattern, "*")
        raise DataError(f"{flag}: '{pattern}' is a folder; name its files, for example '{example}'")


def compression_of(path: str) -> str | None:
    """The name of a file's compression, or None, by extension. Raises InputError for one that is not read."""
    extension = name_of(path).rpartition(".")[2].lower()
    if extension in _UNREADABLE:
        ours = ", ".join(compression.name for compression in COMPRESSIONS)
        raise DataError(
            f"{path}: .{extension} files are not read; compress with one of {ours}, or not at all"
        )
    return next((way.name for way in COMPRESSIONS if path.lower().endswith(f".{way.suffix}")), None)


def without_compression(path: str) -> str:
    """A path without the extension of a compression."""
    stem, dot, extension = path.rpartition(".")
    return stem if dot and any(extension.lower() == way.suffix for way in COMPRESSIONS) else path


def name_of(path: str) -> str:
    """The last part of a path or URL."""
    return path.rpartition("/")[2]
