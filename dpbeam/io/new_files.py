"""The one guard of every file that a command writes besides releases: counts, result, report, plots, configs.

A file appears whole, by rename. Without `--overwrite` nothing that exists is touched; with it neither a link, a device
or a folder, nor what the command reads, nor what a ledger stands for: that is a release, and only a run replaces it.
None is made in the private folder of a series.
Needs no Beam: a run that is stopped while Beam is imported still says how it ended.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import json
import os
import re
import stat
from collections.abc import Iterable, Sequence

from dpbeam.errors import InputError, SettingError, StoreError, UnavailableError
from dpbeam.io.lock import LOCK_SUFFIX
from dpbeam.io.paths import STDIN, absolute, is_folder, is_pipe, local_path, scheme_of
from dpbeam.io.patterns import is_wild
from dpbeam.storage import FileSystems
from dpbeam.storage.files import NotOnceError, Put

LEDGER_SUFFIX = ".ledger.json"
COMMIT_SUFFIX = ".commit.json"
#: Formats of the output -> the extensions of its files.
OUTPUT_FORMATS = {"parquet": "parquet", "text": "txt", "csv": "csv", "jsonl": "jsonl"}
#: After the prefix of shards that hold more than may be published.
NOT_PUBLIC = ".not_for_publication"
#: The first and the last file of `dpbeam.series.store`.
_OF_SERIES = ("series.json", "key")
#: What is said of a file of which `is_anothers` is true.
ANOTHERS = "belongs to another user, and in its folder only they may replace it; give another name"
_SHARD = re.compile(r"(.*)-\d{5}-of-\d{5}\.[a-z]+", re.DOTALL)
_LARGEST_LEDGER = 64 << 20
#: The most bytes that a file of an output adds to its prefix, while it is written: `.tmp-`, 32 digits, `.commit.json`.
_REST_OF_NAME = 50
_REST_OF_PATH = 110
#: What may go well a minute later.
_PASSING = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.EAGAIN)


class NewFile(str):
    """The path of a file that a flag names for writing.

    Args:
      path: as given; `~` and `file://` are resolved.
      flag: with dashes, for messages.
      reads: files and patterns that the same command reads.

    Raises:
      InputError: it is no path of this machine.
    """

    flag: str
    reads: tuple[str, ...]

    def __new__(cls, path: str, flag: str, reads: Iterable[str] = ()) -> NewFile:
        resolved = local_path(path, flag)
        if "\0" in resolved:
            raise SettingError(f"{flag}: a path holds no NUL character")
        if scheme_of(resolved) is not None:
            raise SettingError(f"{flag}: '{path}' must be a file of this machine")
        made = super().__new__(cls, resolved)
        made.flag, made.reads = flag, tuple(reads)
        return made

    def check(self, *, overwrite: bool, inputs: Iterable[str] = ()) -> None:
        """Refuse a file that must not be replaced, or could not be written.

        Args:
          overwrite: an earlier file may be replaced.
          inputs: files that are read, besides `reads`.

        Raises:
          InputError: naming the flag.
        """
        if self == STDIN:
            raise StoreError(f"{self.flag}: '{self}' is no file; give the name of one")
        if not self or self.endswith(os.sep):
            raise StoreError(f"{self.flag}: '{self}' is a folder; give the name of a file")
        mode = self._mode()
        if mode is not None:
            self._check_existing(mode, overwrite, inputs)
        self._check_release()
        self._check_series()
        self._check_folder()

    def check_apart(self, other: NewFile) -> None:
        """Refuse one file for two flags. Raises InputError naming them."""
        if os.path.realpath(self) == os.path.realpath(other):
            raise SettingError(f"{self.flag}: name another file than {other.flag}")

    def _mode(self) -> int | None:
        """Of what lies there, links not followed; None where there is nothing."""
        try:
            return os.lstat(self).st_mode
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:  # too long a name, a loop of links
            why = getattr(error, "strerror", None) or str(error)
            raise StoreError(f"{self.flag}: cannot write '{self}': {why}") from None

    def _check_existing(self, mode: int, overwrite: bool, inputs: Iterable[str]) -> None:
        if stat.S_ISDIR(mode):
            raise StoreError(f"{self.flag}: '{self}' is a folder; give the name of a file")
        if any(map(self._is_same, (*inputs, *_files_of(self.reads)))):
            raise StoreError(f"{self.flag}: '{self}' is an input of this run; name another file")
        if overwrite and is_anothers(self):
            raise StoreError(f"{self.flag}: '{self}' {ANOTHERS}")
        if not overwrite:
            raise StoreError(f"{self.flag}: '{self}' exists; pass --overwrite to replace it, or another name")
        if not stat.S_ISREG(mode):
            what = "a link" if stat.S_ISLNK(mode) else "no regular file"
            raise StoreError(f"{self.flag}: '{self}' is {what}, which is never replaced; name another file")

    def _is_same(self, other: str) -> bool:
        try:
            return os.path.samefile(self, other)
        except (OSError, ValueError):
            return False

    def _check_release(self) -> None:
        ledger = ledger_that_names(self)
        if ledger is not None:
            raise StoreError(f"{self.flag}: '{self}' belongs to the release of '{ledger}'; name another file")

    def _check_series(self) -> None:
        """Where one file is lost, a window that is paid for is."""
        folder = os.path.dirname(os.path.realpath(self))
        while folder != (above := os.path.dirname(folder)):
            if all(os.path.lexists(os.path.join(folder, name)) for name in _OF_SERIES):
                raise StoreError(
                    f"{self.flag}: '{self}' lies in '{folder}', the private folder of a series; name another place"
                )
            folder = above

    def _check_folder(self) -> None:
        """The folder, or the first above it that exists, must let files be made."""
        folder = os.path.dirname(os.path.abspath(self))
        while not os.path.lexists(folder):
            folder = os.path.dirname(folder)
        if not os.path.isdir(folder) or not os.access(folder, os.W_OK | os.X_OK):
            raise StoreError(
                f"{self.flag}: cannot write '{self}': '{folder}' is no folder that can be written"
            )

    def write(self, data: bytes, *, overwrite: bool, private: bool = False) -> None:
        """Write all of it, or nothing; a power cut later takes none of it.

        Args:
          overwrite: replace a file; otherwise one that has appeared since `check` is an error.
          private: only its owner may read it, whatever the umask.

        Raises:
          InputError, UnavailableError: naming the flag.
        """
        folder = os.path.dirname(os.path.abspath(self))
        try:
            FileSystems.make_folder(folder)
            self._put(data, overwrite, private)
            FileSystems.flush(folder, above=True)
        except OSError as error:
            kind = UnavailableError if error.errno in _PASSING else StoreError
            raise kind(f"{self.flag}: cannot write '{self}': {error.strerror}") from None

    def _put(self, data: bytes, overwrite: bool, private: bool) -> None:
        if not overwrite:
            with contextlib.suppress(NotOnceError):
                if not FileSystems.put_once(self, data, private=private):
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self)
                return
            if os.path.lexists(self):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self)
        with FileSystems.put(self, Put(private=private)) as file:
            file.write(data)


def is_anothers(path: str) -> bool:
    """Whether a file of this machine is another user's, in a folder where only its owner may replace it, as in /tmp."""
    if scheme_of(path) is not None:
        return False
    folder, user = os.stat(os.path.dirname(os.path.abspath(path))), os.geteuid()
    sticky = bool(folder.st_mode & stat.S_ISVTX)
    return sticky and user not in (0, folder.st_uid, os.lstat(path).st_uid)


def check_prefix(prefix: str) -> None:
    """Refuse an output that is no prefix of file names: standard output, a device, bytes that are no text, too long.

    Raises:
      InputError: naming the flag.
    """
    try:
        prefix.encode()
    except UnicodeEncodeError:
        raise SettingError(f"--output: '{prefix}' is not valid UTF-8; give another name") from None
    if scheme_of(prefix) is None:
        folder, name = os.path.split(os.fsencode(absolute(prefix)))
        names = [*folder.split(b"/"), name + b" " * _REST_OF_NAME]
        if max(map(len, names)) > os.pathconf(os.sep, "PC_NAME_MAX"):
            raise _too_long(prefix, os.pathconf(os.sep, "PC_NAME_MAX"), "name")
        # In the staging folder, whose name holds the prefix too.
        if len(folder) + 2 * len(name) + _REST_OF_PATH >= os.pathconf(os.sep, "PC_PATH_MAX"):
            raise _too_long(prefix, os.pathconf(os.sep, "PC_PATH_MAX"), "path")
    if is_pipe(prefix) and not is_folder(prefix):
        raise SettingError(f"--output: '{prefix}' is no prefix of file names; give a name such as out/items")


def output_named(output: str) -> tuple[str, str | None]:
    """The prefix of an output, and its format where `--output` is the name of the one file that it is to be."""
    folder, name = os.path.split(output)
    for format, extension in OUTPUT_FORMATS.items():
        stem = name.removesuffix(f".{extension}")
        if stem not in ("", name):
            return os.path.join(folder, stem), format
    return output, None


def _too_long(prefix: str, limit: int, what: str) -> InputError:
    return SettingError(
        f"--output: '{prefix[:60]}...' is too long: with what the names of its files add, it passes the {limit} bytes "
        f"of a {what}"
    )


def check_not_output(flag: str, path: str, output: str, extras: Sequence[str] = ()) -> None:
    """Refuse another file of a run that would be part of its output.

    Args:
      output: a prefix, or the name of one file.
      extras: names of further files of the output, `PREFIX.NAME`.

    Raises:
      InputError: naming the flag.
    """
    if scheme_of(output) is not None:
        return
    prefix, one_file = output_named(output)
    rest = os.path.realpath(path).removeprefix(os.path.realpath(prefix))
    further = extras if one_file is None else (*extras, OUTPUT_FORMATS[one_file])
    ours = (LEDGER_SUFFIX, COMMIT_SUFFIX, LOCK_SUFFIX, *(f".{name}" for name in further))
    if rest in ours or ((shard := _SHARD.fullmatch(rest)) and shard[1] in ("", NOT_PUBLIC)):
        raise SettingError(f"{flag}: '{path}' is a file of --output; name another one")


def ledger_that_names(path: str) -> str | None:
    """The ledger that a file is, or that stands for it; None where it belongs to no release."""
    folder, name = os.path.split(os.path.abspath(path))
    if name.endswith((LEDGER_SUFFIX, COMMIT_SUFFIX)):
        return path if os.path.lexists(path) else None
    shard = _SHARD.fullmatch(name)
    if shard is not None:
        ledger = os.path.join(folder, shard[1].removesuffix(NOT_PUBLIC) + LEDGER_SUFFIX)
        return ledger if os.path.lexists(ledger) else None
    for end in (place for place, letter in enumerate(name) if letter == "."):
        ledger = os.path.join(folder, name[:end] + LEDGER_SUFFIX)
        if name[end + 1 :] in _names(ledger):
            return ledger
    return None


def _names(ledger: str) -> Sequence[str]:
    """What follows the prefix and a dot in the names of files that a ledger stands for, ledger and shards apart."""
    try:
        if not os.path.isfile(ledger) or os.path.getsize(ledger) > _LARGEST_LEDGER:
            return ()
        with open(ledger, encoding="utf-8") as file:
            values = json.load(file)
        output = values["parameters"]["output"]
        one_file = [OUTPUT_FORMATS[output["format"]]] if output.get("one_file") else []
        return [*map(str, output.get("extras", ())), *one_file]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ()


def _files_of(patterns: Iterable[str]) -> Iterable[str]:
    """Files of this machine that patterns mean; a pattern that means none is for its own flag to refuse."""
    for pattern in patterns:
        try:
            path = local_path(pattern, "")
        except InputError:
            continue
        if scheme_of(path) is None:
            yield from glob.iglob(path, recursive=True) if is_wild(path) else [path]
