"""The ledger of a release that a pipeline makes: written last, whole or not at all, and never over another file."""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any

from dpbeam.accounting.ledger import Ledger
from dpbeam.accounting.release import STARTED_FORMAT, Release
from dpbeam.engine.beam.store import RunStore
from dpbeam.errors import InputError
from dpbeam.storage import FileSystems

_STARTED, _TEXT = "ledger-started", "ledger"
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


@dataclass(frozen=True)
class LedgerFile:
    """Where the ledger of a run goes, and what it says before the run; goes with the stages of a pipeline.

    Attributes:
      path: of the file; ledger: JSON text.
      command: of the family; release_id: in an account, or None.
    """

    path: str
    ledger: str
    command: str
    release_id: str | None

    def check(self, store: RunStore) -> None:
        """Refuse a file in the ledger's place which this run has not written.

        Raises:
          InputError: there is one.
        """
        if self.is_there and not (store.exists(_TEXT) and self._read() == store.read_bytes(_TEXT)):
            raise InputError(f"ledger: '{self.path}' exists; name another file, or remove it")

    def begin(self, store: RunStore) -> None:
        """Remember when the run began."""
        store.write_once(_STARTED, _now().strftime(STARTED_FORMAT).encode())

    @property
    def is_there(self) -> bool:
        """Whether there is a file in the ledger's place."""
        return FileSystems.exists(self.path)

    def write(self, store: RunStore, mark: dict[str, Any] | None) -> None:
        """Write the ledger; a retry writes the same text.

        Args:
          mark: which entry of which account the release belongs to, if it is charged.

        Raises:
          InputError: another file has appeared in its place.
        """
        release = Release(
            command=self.command,
            started=store.read_bytes(_STARTED).decode(),
            date=str(_now().date()),
            release_id=self.release_id,
        )
        ledger = Ledger.from_json(self.ledger)
        account = {} if mark is None else {"account": mark}
        ledger = replace(ledger, release=release, parameters={**ledger.parameters, **account})
        store.write_once(_TEXT, ledger.to_json().encode())
        text = store.read_bytes(_TEXT)
        _put_once(self.path, text)
        if self._read() != text:
            raise InputError(f"ledger: '{self.path}' has appeared during the run; it is not this run's")

    def _read(self) -> bytes:
        if not FileSystems.is_local(self.path):
            return FileSystems.read(self.path)
        with open(self.path, "rb") as file:
            return file.read()


def _now() -> datetime:
    return datetime.now(timezone.utc)


def _put_once(path: str, data: bytes) -> None:
    """Write a file whole, unless there is one."""
    if FileSystems.is_local(path):
        _put_once_here(path, data)
    elif FileSystems.writes_once(path):
        FileSystems.write_once(path, data)
    elif not FileSystems.exists(path):
        with FileSystems.create(path) as file:
            file.write(data)


def _put_once_here(path: str, data: bytes) -> None:
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    new = f"{path}.{uuid.uuid4().hex}"
    try:
        with open(new, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(new, path)
        except FileExistsError:
            pass
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            os.replace(new, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(new)
