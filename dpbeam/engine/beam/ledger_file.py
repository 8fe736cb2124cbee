"""The ledger of a release that a pipeline makes: written last, whole or not at all, and never over another file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from dpbeam.accounting.ledger import Ledger
from dpbeam.accounting.release import STARTED_FORMAT, Release
from dpbeam.engine.beam.store import RunStore
from dpbeam.errors import StoreError
from dpbeam.storage import FileSystems
from dpbeam.storage.files import NotOnceError

_STARTED, _TEXT = "ledger-started", "ledger"


@dataclass(frozen=True)
class LedgerFile:
    """Where the ledger of a run goes, and what it says before the run; goes with the stages of a pipeline.

    Attributes:
      path: of the file.
      command: of the family; release_id: in an account, or None.
    """

    path: str
    ledger: Ledger
    command: str
    release_id: str | None

    def check(self, store: RunStore) -> None:
        """Refuse a file in the ledger's place which this run has not written.

        Raises:
          InputError: there is one.
        """
        if self.is_there and not (
            store.exists(_TEXT) and FileSystems.read(self.path) == store.read_bytes(_TEXT)
        ):
            raise StoreError(f"ledger: '{self.path}' exists; name another file, or remove it")

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
        account = {} if mark is None else {"account": mark}
        ledger = replace(self.ledger.stating(**account), release=release)
        store.write_once(_TEXT, ledger.to_json().encode())
        text = store.read_bytes(_TEXT)
        if not self._put_once(text):
            raise StoreError(f"ledger: '{self.path}' has appeared during the run; it is not this run's")

    def _put_once(self, data: bytes) -> bool:
        """Whether the file holds these data, whole: it is made, unless it is there."""
        try:
            made = FileSystems.put_once(self.path, data, make_folder=True, private=False)
        except NotOnceError:
            if not self.is_there:
                with FileSystems.put(self.path) as file:
                    file.write(data)
            made = FileSystems.read(self.path) == data
        FileSystems.flush(FileSystems.split(self.path)[0], above=True)
        return made


def _now() -> datetime:
    return datetime.now(UTC)
