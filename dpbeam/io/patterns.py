"""Which files a pattern or a folder means, on this machine and on a store, before anything is opened."""

from __future__ import annotations

import contextlib
import glob
import os
import re

from dpbeam.errors import DataError, InputError
from dpbeam.io.paths import is_folder, name_of, scheme_of
from dpbeam.storage import FileSystems

_IN_FOLDER = "**/[!_.]*"
_IN_STORE = "[!_.]**"  # where ** goes through slashes
_IN_FOLDERS = (_IN_FOLDER, _IN_STORE)
WILDCARDS = "*?["
# Left beside data by other engines; never data.
_MARKERS = frozenset({"_SUCCESS", "_metadata", "_common_metadata"})


def literal(path: str) -> str:
    """A path as a pattern, which means it alone on this machine; elsewhere as it is."""
    return glob.escape(path) if scheme_of(path) is None else path


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
