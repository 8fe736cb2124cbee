"""Where a series lives between nights: a private folder of this machine, read by nobody but its owner.

    series.json      what was fixed when the series was opened
    key              the key of the window
    known            items that were known then
    lock             held by the process that makes a night
    state-00000007   everything since, after seven changes; the highest number counts

A change is one file, written whole, synced, and then linked under its number: a number exists once, so of two
processes that make the same change one wins, and a process that is killed leaves the state before or the state after.
Nothing of a night may be shown before its state is there: the noise is keyed, and another input under the same key
would show the difference. Files carry a keyed digest, so one that was changed is refused. What a newer state replaces
is removed, as an erasure needs.

A folder may be encrypted (`dpbeam.engine.seal`): the window's key then lies there under the folder key of the
environment, bound to the series, and `known` and states under the window's.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import hmac
import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from typing import Any

from dpbeam.engine.seal import Seal, folder_key, unwrap, wrap
from dpbeam.errors import InputError, UnavailableError
from dpbeam.randomness import RunKey

_FORMAT, _VERSION = "dpbeam series", 1
_STATE = re.compile(r"state-(\d{8})")
_DIGEST = hashlib.sha256().digest_size
_SETTINGS, _KEY, _LOCK = "series.json", "key", "lock"
_ENCRYPTED = "encrypted"
_NEW = "new-"  # files that are being written


class SeriesStore:
    """The private folder of one series.

    Args:
      folder: on this machine.
      settings: as it was opened with.
      key: of the window.
      encrypted: whether its files are.
    """

    def __init__(self, folder: str, settings: Mapping[str, Any], key: RunKey, *, encrypted: bool = False):
        self.folder = folder
        self.settings = dict(settings)
        self.key = key
        self.encrypted = encrypted
        self._seal = Seal(key) if encrypted else None
        self._digest_key = key.derive("series/file")
        self._held = False

    @classmethod
    def create(
        cls,
        folder: str,
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
        check_folder(folder)
        store = cls(folder, settings, key, encrypted=encrypt)
        secret = wrap(_bound_to(settings), key.secret_bytes()) if encrypt else key.secret_bytes()
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            before = os.listdir(folder)
            if any(name not in (_KEY, _LOCK, *files) and not name.startswith(_NEW) for name in before):
                raise InputError(f"--folder: '{folder}' is not empty; a series needs a folder of its own")
            os.chmod(folder, 0o700)
            with store.locked():
                for name in set(os.listdir(folder)) - {_LOCK, _SETTINGS}:
                    os.remove(os.path.join(folder, name))
                _write(os.path.join(folder, _KEY), secret)
                for name, data in files.items():
                    store.write_file(name, data)
                values = {"format": _FORMAT, "version": _VERSION, "fixed_key": key.insecure, **settings}
                values |= {_ENCRYPTED: True} if encrypt else {}
                text = json.dumps(values, sort_keys=True, indent=2) + "\n"
                _write(os.path.join(folder, _SETTINGS), text.encode())  # last: without it there is no series
        except OSError as error:
            raise InputError(f"--folder: cannot make '{folder}': {error.strerror}") from None
        return store

    @staticmethod
    def exists(folder: str) -> bool:
        """Whether a series lies in a folder."""
        check_folder(folder)
        return os.path.exists(os.path.join(folder, _SETTINGS))

    @staticmethod
    def settings_of(folder: str) -> dict[str, Any]:
        """What a series was opened with.

        Raises:
          InputError: there is none.
        """
        check_folder(folder)
        try:
            with open(os.path.join(folder, _SETTINGS), "rb") as file:
                settings: dict[str, Any] = json.loads(file.read())
            if (settings.pop("format"), settings.pop("version")) != (_FORMAT, _VERSION):
                raise ValueError
        except FileNotFoundError:
            raise _absent(folder) from None
        except (OSError, ValueError, KeyError, AttributeError):
            raise _unreadable(folder) from None
        return settings

    @classmethod
    def load(cls, folder: str) -> SeriesStore:
        """A series that was opened.

        Raises:
          InputError: there is none, or it is encrypted under another folder key than that of the environment.
        """
        settings = cls.settings_of(folder)
        encrypted = settings.pop(_ENCRYPTED, False)
        try:
            with open(os.path.join(folder, _KEY), "rb") as file:
                secret = file.read()
            bound_to, fixed = _bound_to(settings), settings.pop("fixed_key")
        except FileNotFoundError:
            raise _absent(folder) from None
        except (OSError, KeyError):
            raise _unreadable(folder) from None
        secret = unwrap(bound_to, secret) if encrypted else secret
        try:
            key = RunKey(secret, insecure=fixed)
        except ValueError:
            raise _unreadable(folder) from None
        return cls(folder, settings, key, encrypted=encrypted)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the series alone, without what killed processes have left; who holds it may do so again.

        Raises:
          UnavailableError: another process does.
        """
        if self._held:
            yield
            return
        with open(os.path.join(self.folder, _LOCK), "ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    raise
                raise UnavailableError(
                    f"--folder: another run of the series in '{self.folder}' is under way"
                ) from None
            self._held = True
            try:
                self.tidy()
                yield
            finally:
                self._held = False

    @property
    def number(self) -> int:
        """Of the latest state; 0 before the first."""
        return max(self._numbers(), default=0)

    def read(self) -> bytes:
        """The latest state; nothing before the first.

        Raises:
          InputError: it is not what was written.
        """
        return self.read_file(_name(self.number)) if self.number else b""

    def commit(self, number: int, data: bytes) -> None:
        """Make `data` the state of this number, whole or not at all, and remove those before.

        Raises:
          UnavailableError: another process has made it.
        """
        try:
            self.write_file(_name(number), data)
        except FileExistsError:
            raise UnavailableError(
                f"--folder: another run of the series in '{self.folder}' was faster; the same command goes on from "
                "there"
            ) from None
        self.tidy()

    def tidy(self) -> None:
        """Remove states that a newer one replaces, and what a killed process has left."""
        latest = self.number
        for name in os.listdir(self.folder):
            old = _STATE.fullmatch(name)
            if name.startswith(_NEW) or (old and int(old[1]) < latest):
                with contextlib.suppress(FileNotFoundError):
                    os.remove(os.path.join(self.folder, name))

    def write_file(self, name: str, data: bytes) -> None:
        """Write a file once, under a keyed digest. Raises FileExistsError if it is there."""
        stored = data if self._seal is None else b"".join(self._seal.pieces(name, 0, data))
        _write(os.path.join(self.folder, name), self._digest(name, stored) + stored)

    def read_file(self, name: str) -> bytes:
        """Inverse of `write_file`. Raises InputError if it is not what was written."""
        with open(os.path.join(self.folder, name), "rb") as file:
            digest, data = file.read(_DIGEST), file.read()
        if not hmac.compare_digest(digest, self._digest(name, data)):
            raise InputError(f"--folder: '{os.path.join(self.folder, name)}' is not what the series wrote")
        return data if self._seal is None else self._seal.open(name, 0, data)

    def _digest(self, name: str, data: bytes) -> bytes:
        return hmac.digest(self._digest_key, name.encode() + b"\0" + data, hashlib.sha256)

    def _numbers(self) -> list[int]:
        found = [_STATE.fullmatch(name) for name in os.listdir(self.folder)]
        return [int(match[1]) for match in found if match]


def check_folder(folder: str) -> None:
    """Refuse a folder elsewhere.

    Raises:
      InputError: naming the flag.
    """
    if not folder or "://" in folder:
        raise InputError(f"--folder must be a folder of this machine, got '{folder}'")


def check_folder_key() -> None:
    """Refuse to encrypt without a folder key.

    Raises:
      InputError: naming the flag.
    """
    folder_key()


def _bound_to(settings: Mapping[str, Any]) -> str:
    return f"series {settings['series']}"


def _absent(folder: str) -> InputError:
    return InputError(f"--folder: '{folder}' holds no series; dpbeam series open makes one")


def _unreadable(folder: str) -> InputError:
    return InputError(f"--folder: '{folder}' holds no series that this version can read")


def _name(number: int) -> str:
    return f"state-{number:08d}"


def _write(path: str, data: bytes) -> None:
    """A file of the owner's alone, whole or not at all, and never in place of another."""
    folder = os.path.dirname(path)
    staged = os.path.join(folder, f"{_NEW}{secrets.token_hex(8)}")
    try:
        descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.link(staged, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(staged)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
