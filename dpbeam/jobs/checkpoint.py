"""`--checkpoint DIR`: a run that was killed goes on from its last checkpoint when the command is given again.

DIR holds the private folder of the run. Its key stays there, so that the run draws the same noise when it goes on,
and so do its users' blocks: the input is not read again. It goes on where settings and input are those that it began
with, so that what is released is what its ledger says; that its noise meets no other data does not hang on this, but on
the folder (`dpbeam.engine.binding`). A folder without a checkpoint is of no use; the run begins anew, with a fresh key.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from dpbeam.engine.beam import owner
from dpbeam.engine.beam.driver import Checkpoint
from dpbeam.engine.beam.store import RunFolder, RunStore
from dpbeam.engine.seal import SealError
from dpbeam.errors import InputError, StoreError, UnavailableError
from dpbeam.io.digests import content_digest
from dpbeam.jobs.console import find_runner_error, tell, warn
from dpbeam.jobs.identity import settings_digest
from dpbeam.jobs.options import Options
from dpbeam.randomness import RunKey

_SETTINGS = "settings"


@dataclass(frozen=True)
class RunIdentity:
    """What must be the same for a run to go on.

    Attributes:
      settings: digest of the command, of its flags but for those that say how it is done, and of its ledger.
      files: digest of the files that it reads, by name and content.
    """

    settings: str
    files: str

    @classmethod
    def of(
        cls, command: str, options: Options, prefix: str, ledger_json: str, paths: Iterable[str]
    ) -> RunIdentity:
        """The identity of a run; local files are read once, of others the store's own checksum is taken.

        Raises:
          InputError: a file cannot be read.
        """
        contents = [(path, content_digest(path)) for path in sorted(paths)]
        return cls(_digest([settings_digest(command, options, prefix), ledger_json]), _digest(contents))

    def keep(self, store: RunStore) -> None:
        """Write it into the run's folder."""
        store.write_bytes(_SETTINGS, f"{self.settings} {self.files}".encode())

    @classmethod
    def kept(cls, store: RunStore) -> RunIdentity | None:
        """That of a folder's run; None where it is encrypted otherwise than asked for, of another version, or
        has just ended."""
        try:
            return cls(*store.read_bytes(_SETTINGS).decode().split(" "))
        except (FileNotFoundError, InputError, SealError, UnicodeDecodeError, TypeError):
            return None


def _digest(parts: list[Any]) -> str:
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=32).hexdigest()


@contextlib.contextmanager
def checkpointed(
    folder: str, key: RunKey, identity: RunIdentity, trips: int, *, encrypt: bool = False
) -> Iterator[RunFolder]:
    """The run's folder below `folder`, resumed where there is a checkpoint.

    It is removed when the run has come to its end, and where its runner has lost something. After another failure it
    stays if there is a checkpoint to go on from.

    Args:
      identity: of the run.
      trips: of the program.
      encrypt: the folder is encrypted; one that is not is no folder to go on from, and the other way round.

    Raises:
      InputError: another run has the folder.
    """
    resumed = _resumed(folder, identity, trips, encrypt)
    run = resumed or RunFolder(folder, key, encrypt=encrypt, durable=True)
    try:
        if resumed is None:
            identity.keep(run.store)
        yield run
    except BaseException as error:
        lossy = find_runner_error(error) is not None  # whatever it has kept may lack something too
        if lossy or Checkpoint.last_trip(run.store, trips) is None:
            run.remove()
        else:
            run.leave()
            warn(
                f"the run's private data and its checkpoint stay in {folder}: give the same command again to go on, "
                f"or give it up: {_clean(folder)}"
            )
        raise
    run.remove()


def can_go_on(run: RunFolder) -> bool:
    """Whether the folder of a run that has failed stays, with a checkpoint to go on from."""
    return run.store.exists(_SETTINGS)


def _resumed(folder: str, identity: RunIdentity, trips: int, encrypted: bool) -> RunFolder | None:
    others = set()
    for path in _folders(folder):
        store = RunStore(path, encrypted=encrypted)
        state, kept = owner.state_of(path), RunIdentity.kept(store)
        same = kept is not None and kept.settings == identity.settings
        if state == "alive":
            if same:
                raise UnavailableError(f"--checkpoint: the run in '{folder}' is still going")
            continue
        # Without its key it is one that was being removed.
        at = Checkpoint.last_trip(store, trips) if store.has_key else None
        if at is not None and kept == identity:
            tell(f"going on from the checkpoint after pass {at} of {trips}")
            return RunFolder.resume(path, encrypted=encrypted, durable=True)
        if at is None and state == "gone":
            owner.remove(path)
        elif at is not None:
            others.add("of an input that has changed since" if same else "with other settings")
    for which in sorted(others):
        raise StoreError(
            f"--checkpoint: '{folder}' holds a run {which}; take another folder, or give it up: {_clean(folder)}"
        )
    return None


def _clean(folder: str) -> str:
    return f"dpbeam clean --temp_location={shlex.quote(folder)}"


def _folders(folder: str) -> list[str]:
    """Run folders that were made here, on any filesystem."""
    folders = owner.folders(folder, owner.RUN_FOLDER)
    return [path for path in folders if RunStore(path).exists(_SETTINGS)]
