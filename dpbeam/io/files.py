"""Access to files: matching patterns, opening, decompressing, atomic writing; always through `dpbeam.storage`.

Faults that a user can fix become InputErrors that name the file.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
from collections.abc import Callable, Iterable
from typing import BinaryIO, cast

from dpbeam.disk import naming_file
from dpbeam.errors import DataError, SetupError
from dpbeam.io.formats import formats
from dpbeam.io.formats.base import InputFile
from dpbeam.io.paths import STDIN, absolute, check_no_device, check_text, is_pipe, local_path, scheme_of
from dpbeam.io.patterns import check_no_folder, files_of, literal, no_file
from dpbeam.storage import FileSystems
from dpbeam.storage.files import PLAIN, Put
from dpbeam.storage.reasons import is_passing, missing_filesystem, reason, refusal


def match_files(patterns: Iterable[str], flag: str = "--input", *, pipes: bool = False) -> list[InputFile]:
    """All files that the patterns match, by path; a file comes once, whatever names it has.

    Args:
      pipes: let stdin (`-`) and pipes through, which can be read once only and have no size.

    Raises:
      InputError: a pattern matches nothing, names a folder, or its storage cannot be reached.
    """
    return match_distinct(patterns, flag, pipes=pipes)[0]


def match_distinct(
    patterns: Iterable[str], flag: str = "--input", *, pipes: bool = False
) -> tuple[list[InputFile], list[tuple[str, str]]]:
    """As `match_files`, and for each further name of a file (that name, the one that is read).

    Where a row, line or file is a user, a file under two names would count each of them twice. Of several names
    the first by path is read, whatever the order of the patterns.
    """
    by_path: dict[str, InputFile] = {}
    for pattern in patterns:
        for file in _match(local_path(pattern, flag), flag, pipes):
            by_path[file.path] = file
    _refuse_files_of_tables([file.path for file in by_path.values() if file.size], flag)  # no pipes
    first: dict[object, InputFile] = {}
    again = []
    for file in sorted(by_path.values()):
        known = first.setdefault(identity(file.path), file)
        if known is not file:
            again.append((file.path, known.path))
    return list(first.values()), again


def check_names(files: Iterable[InputFile], flag: str) -> None:
    """Refuse files whose names are no UTF-8, which no worker could be told. Raises InputError."""
    for file in files:
        check_text(file.path, flag, "; rename it")


def identity(path: str) -> object:
    """Equal for two names of one file: links, `./` and `..` on this machine, spellings of one URL elsewhere.

    None for a local path that does not exist.
    """
    if scheme_of(path) is not None:
        return _canonical_url(path)
    try:
        status = os.stat("/dev/stdin" if path == STDIN else path)
    except (OSError, ValueError):
        return None
    # Some network filesystems number no files.
    return (status.st_dev, status.st_ino) if status.st_ino else os.path.realpath(path)


def _canonical_url(path: str) -> str:
    scheme, _, rest = path.strip().partition("://")
    if scheme.lower() == "hdfs":  # has folders; an object store's names are exact
        rest = posixpath.normpath("/" + rest).lstrip("/")
    return f"{scheme.lower()}://{rest}"


def _match(pattern: str, flag: str, pipes: bool) -> list[InputFile]:
    check_no_folder(pattern, flag)
    if is_pipe(pattern):
        if not pipes:
            raise DataError(f"{flag}: '{pattern}' is a pipe; name a file")
        check_no_device(pattern, flag)
        return [InputFile(pattern, 0)]
    missing = missing_filesystem(pattern)
    if missing:
        raise SetupError(f"{flag}: cannot look up '{pattern}': {missing}")
    try:
        files = [InputFile(path, size) for path, size in files_of(pattern)]
    except (OSError, ValueError, ImportError) as error:
        raise refusal(DataError, f"{flag}: cannot look up '{pattern}': {reason(error)}", error) from None
    if not files:
        raise no_file(pattern, flag)
    return files


def _refuse_files_of_tables(paths: Iterable[str], flag: str) -> None:
    """Refuse files that lie in a table's folder: which of them are live, the table alone knows.

    Raises:
      InputError: naming the table, and how to read it.
    """
    tables = [format for format in formats() if format.is_table]
    looked_at = set()
    for folder in sorted({posixpath.dirname(absolute(path)) for path in paths}):
        while folder not in looked_at and not folder.endswith(":/"):
            looked_at.add(folder)
            for table in tables:
                if _any_file(posixpath.join(literal(folder), table.mark)):
                    raise DataError(
                        f"{flag}: '{folder}' is the folder of a table, whose files hold deleted and replaced rows too; "
                        f"read it as --input {table.spelling.format(folder=folder)}"
                    )
            folder = posixpath.dirname(folder)


def _any_file(pattern: str) -> bool:
    """Whether a pattern matches a file. Raises UnavailableError where the store does not answer."""
    try:
        return bool(FileSystems.match(pattern, 1))
    except (OSError, ValueError) as error:
        if is_passing(error):
            raise refusal(DataError, f"--input: cannot look up '{pattern}': {reason(error)}", error) from None
        return False


def write_atomically(path: str, write: Callable[[BinaryIO], object], how: Put = PLAIN) -> None:
    """Write a file that appears whole or not at all; an existing one is replaced."""
    new = FileSystems.put(path, how)
    with naming_file(path), new as file:
        write(cast(BinaryIO, file))


def delete_quietly(paths: list[str]) -> None:
    """Delete files or folders, those that can be."""
    for path in paths:
        with contextlib.suppress(OSError):
            FileSystems.delete([path])
