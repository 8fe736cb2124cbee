"""What a series keeps between nights, in a private folder (`dpbeam.series.folder`), read by nobody but its owner.

    series.json      what was fixed when the series was opened; the first file of an opening
    key              the key of the window; the last
    known            items that were known then
    state-00000007   everything since, after seven changes; the highest number counts
    part-*           users in blocks and items in shards, where a state is in parts (`dpbeam.series.parts`)
    work-*           where an engine is at work on a night

A change is one file, which appears whole under its number, and a number exists once: so of two processes that make the
same change one wins, and a process that is killed leaves the state before or the state after.
Nothing of a night may be shown before its state is there: the noise is keyed, and another input under the same key
would show the difference. Files but the settings carry a keyed digest, so one that was changed is refused. What a newer
state replaces is removed, as an erasure needs. A part is written before the state that names it, under a name that
nobody takes again: what no state names is as if it were not there.

A folder may be encrypted (`dpbeam.engine.seal`): the window's key then lies there under the folder key of the
environment, bound to series and settings, and `known` and states under the window's.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import re
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from dpbeam.engine.seal import Seal, folder_key, unwrap, wrap
from dpbeam.errors import InputError, StoreError, UnavailableError, param
from dpbeam.randomness import RunKey
from dpbeam.series.folder import Folder

_FORMAT, _VERSION = "dpbeam series", 1
#: How the names of parts begin.
PART = "part-"
_STATE = re.compile(r"state-(\d{8})")
_DIGEST = hashlib.sha256().digest_size
_SETTINGS, _KEY, _OPENED = "series.json", "key", "opened"
_ENCRYPTED = "encrypted"
_TYPES = {
    "series": str,
    "parameters": dict,
    "made_with": dict,
    "settings": dict,
    "fixed_key": bool,
}


class SeriesStore:
    """The private folder of one series.

    Args:
      folder: where it is.
      settings: as it was opened with.
      key: of the window.
      encrypted: whether its files are.
    """

    def __init__(self, folder: Folder, settings: Mapping[str, Any], key: RunKey, *, encrypted: bool = False):
        self.folder = folder
        self.settings = dict(settings)
        self.key = key
        self.encrypted = encrypted
        self._seal = Seal(key) if encrypted else None
        self._digest_key = key.derive("series/file")
        self._holder: tuple[int, int] | None = None

    @classmethod
    def create(
        cls,
        folder: Folder,
        settings: Mapping[str, Any],
        key: RunKey,
        files: Mapping[str, bytes],
        *,
        encrypt: bool = False,
    ) -> SeriesStore:
        """Open a series in a folder that is not there, or empty, or holds no more than a making that was cut short.

        Args:
          settings: public JSON values; `series`, the name of this one, is among them.
          files: what never changes, for `read_file`.
          encrypt: under the folder key of the environment.

        Raises:
          InputError: something is in the way, the folder cannot be made, or there is no folder key.
          UnavailableError: another process opens a series there.
        """
        store = cls(folder, settings, key, encrypted=encrypt)
        values = {"fixed_key": key.insecure, **settings}
        secret = wrap(_bound_to(values), key.secret_bytes()) if encrypt else key.secret_bytes()
        try:
            folder.make()
            _check_free(folder, files)
            with store.locked():
                _check_free(folder, files)
                folder.clear()
                values |= {"format": _FORMAT, "version": _VERSION}
                values |= {_ENCRYPTED: True} if encrypt else {}
                text = json.dumps(values, sort_keys=True, indent=2) + "\n"
                # First: they tell what an opening that is cut short leaves.
                folder.write(_SETTINGS, text.encode())
                for name, data in files.items():
                    store.write_file(name, data)
                folder.write(_KEY, secret)  # last: without it there is no series
        except OSError as error:
            raise StoreError(f"{param('folder')}: cannot make '{folder.path}': {error.strerror}") from None
        return store

    @staticmethod
    def exists(folder: Folder) -> bool:
        """Whether a series lies in a folder."""
        return folder.has(_SETTINGS) and folder.has(_KEY)

    @staticmethod
    def settings_of(folder: Folder) -> dict[str, Any]:
        """What a series was opened with.

        Raises:
          InputError: there is none.
        """
        try:
            data = folder.read(_SETTINGS)
        except FileNotFoundError:
            raise _absent(folder) from None
        try:
            settings: dict[str, Any] = json.loads(data)
            if (settings.pop("format"), settings.pop("version")) != (_FORMAT, _VERSION):
                raise ValueError
            if not all(isinstance(settings[name], kind) for name, kind in _TYPES.items()):
                raise ValueError
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise unreadable(folder) from None
        return settings

    @classmethod
    def load(cls, folder: Folder) -> SeriesStore:
        """A series that was opened.

        Raises:
          InputError: there is none, or it is encrypted under another folder key than that of the environment.
        """
        settings = cls.settings_of(folder)
        encrypted = settings.pop(_ENCRYPTED, False)
        try:
            secret = folder.read(_KEY)
            secret = _unwrapped(settings, secret) if encrypted else secret
            fixed = settings.pop("fixed_key")
        except FileNotFoundError:
            raise _absent(folder) from None
        try:
            key = RunKey(secret, insecure=fixed)
        except ValueError:
            raise unreadable(folder) from None
        return cls(folder, settings, key, encrypted=encrypted)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the series alone, without what killed processes have left; the thread that holds it may do so again.

        Raises:
          UnavailableError: another process or thread does.
        """
        # A forked process has this object too, and may have the same ident.
        own = (os.getpid(), threading.get_ident())
        if self._holder == own:
            yield
            return
        with self.folder.alone():
            self._holder = own
            try:
                self.tidy()
                yield
            finally:
                self._holder = None

    @property
    def number(self) -> int:
        """Of the latest state; 0 before the first."""
        return _latest(self.folder.names())

    def read(self) -> tuple[int, bytes]:
        """The latest state with its number; 0 and nothing before the first.

        Raises:
          InputError: it is not what was written.
          UnavailableError: another process has just made the next one.
        """
        number = self.number
        try:
            return number, self.read_file(_name(number)) if number else b""
        except FileNotFoundError:
            raise self.folder.busy() from None

    def commit(self, number: int, data: bytes) -> None:
        """Make `data` the state of this number, whole or not at all, and remove those before.

        Raises:
          UnavailableError: another process has made it.
        """
        try:
            self.write_file(_name(number), data)
        except FileExistsError:
            raise self.faster() from None
        self.tidy()

    def tidy(self) -> None:
        """Remove states that a newer one replaces, and what a killed process has left."""
        names = self.folder.names()
        latest = _latest(names)
        for match in _states(names):
            if int(match[1]) < latest:
                self.folder.remove(match[0])
        self.folder.tidy()

    def faster(self) -> UnavailableError:
        """For who comes to make a state that another process has made."""
        return UnavailableError(
            f"{param('folder')}: another run of the series in '{self.folder.path}' was faster; the "
            "same command goes on from there"
        )

    def check_there(self, parts: Collection[str]) -> None:
        """Refuse to name parts that a process removed which held the folder before, and believes it still does.

        Raises:
          UnavailableError: one is gone.
        """
        if not set(parts) <= set(self.folder.names() if parts else ()):
            raise self.faster()

    def sweep(self, keep: Collection[str], number: int) -> None:
        """Remove the parts that are not among these names, as killed runs and earlier states leave them.

        Args:
          number: of the state that names them.

        Raises:
          UnavailableError: another process has made a newer one, whose parts they may be: this one stood still, and
            has lost the folder.
        """
        names, keep = self.folder.names(), set(keep)
        if _latest(names) > number:
            raise self.faster()
        dead = [name for name in names if name.startswith(PART) and name not in keep]
        if dead:
            self.folder.delete(dead)

    @property
    def opened(self) -> bool:
        """Whether the opening came to its end (`mark_opened`)."""
        return self.folder.has(_OPENED)

    def mark_opened(self) -> None:
        """Write down that the opening is paid for and published."""
        if not self.opened:
            with contextlib.suppress(FileExistsError):
                self.write_file(_OPENED, b"")

    def write_file(self, name: str, data: bytes) -> None:
        """Write a file once, under a keyed digest. Raises FileExistsError if it is there."""
        stored = data if self._seal is None else b"".join(self._seal.pieces(name, 0, data))
        self.folder.write(name, self._digest(name, stored) + stored)

    def read_file(self, name: str) -> bytes:
        """Inverse of `write_file`. Raises FileNotFoundError, and InputError if it is not what was written."""
        stored = self.folder.read(name)
        digest, data = stored[:_DIGEST], stored[_DIGEST:]
        if not hmac.compare_digest(digest, self._digest(name, data)):
            raise StoreError(f"{param('folder')}: '{self.folder.path}/{name}' is not what the series wrote")
        return data if self._seal is None else self._seal.open(name, 0, data)

    def _digest(self, name: str, data: bytes) -> bytes:
        return hmac.digest(self._digest_key, name.encode() + b"\0" + data, hashlib.sha256)


def _states(names: Iterable[str]) -> list[re.Match[str]]:
    return [match for name in names if (match := _STATE.fullmatch(name))]


def _latest(names: Iterable[str]) -> int:
    """Number of the latest state among these files, 0 where there is none."""
    return max((int(match[1]) for match in _states(names)), default=0)


def check_folder_key() -> None:
    """Refuse to encrypt without a folder key.

    Raises:
      InputError: naming the flag.
    """
    folder_key()


def _check_free(folder: Folder, files: Mapping[str, bytes]) -> None:
    """Refuse a folder in which anything lies but the beginning of an opening that was cut short."""
    there = set(folder.everything())
    if not there:
        return
    with contextlib.suppress(InputError):
        SeriesStore.settings_of(folder)
        if there <= {_SETTINGS, *files}:
            return
    raise StoreError(f"{param('folder')}: '{folder.path}' is not empty; a series needs a folder of its own")


def _bound_to(settings: Mapping[str, Any]) -> str:
    """Series and settings: the key does not open for others, which whoever can write there could put in place."""
    text = json.dumps(settings, sort_keys=True).encode()
    return f"series {settings['series']} {hashlib.sha256(text).hexdigest()}"


def _unwrapped(settings: Mapping[str, Any], secret: bytes) -> bytes:
    try:
        return unwrap(_bound_to(settings), secret)
    except InputError:
        return unwrap(f"series {settings['series']}", secret)  # all that version 1.0 bound it to


def _absent(folder: Folder) -> InputError:
    return StoreError(f"{param('folder')}: '{folder.path}' holds no series; dpbeam series open makes one")


def unreadable(folder: Folder) -> InputError:
    """For a folder that is no series, or that of another version."""
    return StoreError(f"{param('folder')}: '{folder.path}' holds no series that this version can read")


def _name(number: int) -> str:
    return f"state-{number:08d}"
