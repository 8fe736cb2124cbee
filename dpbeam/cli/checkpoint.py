"""`--checkpoint DIR`: a run that was killed goes on from its last checkpoint when the command is given again.

DIR holds the private folder of the run. Its key stays there, so that the run draws the same noise when it goes on,
and so do its users' blocks: the input is not read again, so one key never meets two inputs. A folder without a
checkpoint is of no use; the run begins anew, with a fresh key.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shlex
from collections.abc import Iterator, Sequence

from dpbeam.cli.console import tell, warn
from dpbeam.engine.beam import owner
from dpbeam.engine.beam.driver import Checkpoint
from dpbeam.engine.beam.seal import SealError
from dpbeam.engine.beam.store import RunFolder, RunStore
from dpbeam.errors import InputError
from dpbeam.io.files import InputFile, modified
from dpbeam.randomness import RunKey

_SETTINGS = "settings"


def settings_digest(command: str, ledger_json: str, files: Sequence[InputFile], key: RunKey) -> str:
    """What must be the same for a run to go on: the command, all that its ledger states, the files that it reads, and
    the key where it is a fixed one.
    """
    found = [(file.path, file.size, modified(file.path)) for file in files]
    fixed = hashlib.blake2b(key.secret_bytes()).hexdigest() if key.insecure else None
    parts = [command, ledger_json, found, fixed]
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=32).hexdigest()


@contextlib.contextmanager
def checkpointed(
    folder: str, key: RunKey, digest: str, trips: int, *, encrypt: bool = False
) -> Iterator[RunFolder]:
    """The run's folder below `folder`, resumed where there is a checkpoint.

    It is removed when the run has come to its end. After a failure it stays if there is a checkpoint to go on from.

    Args:
      digest: of `settings_digest`.
      trips: of the program.
      encrypt: the folder is encrypted; one that is not is no folder to go on from, and the other way round.

    Raises:
      InputError: another run has the folder.
    """
    run = _resumed(folder, digest, trips, encrypt)
    if run is None:
        run = RunFolder(folder, key, encrypt=encrypt)
        run.store.write_bytes(_SETTINGS, digest.encode())
    try:
        yield run
    except BaseException:
        if Checkpoint.last_trip(run.store, trips) is None:
            run.remove()
        else:
            owner.unmark(run.path)
            warn(
                f"the run's private data and its checkpoint stay in {folder}: give the same command again to go on, "
                f"or give it up: {_clean(folder)}"
            )
        raise
    run.remove()


def can_go_on(run: RunFolder) -> bool:
    """Whether the folder of a run that has failed stays, with a checkpoint to go on from."""
    return run.store.exists(_SETTINGS)


def _resumed(folder: str, digest: str, trips: int, encrypted: bool) -> RunFolder | None:
    other = False
    for path in _folders(folder):
        store = RunStore(path, encrypted=encrypted)
        state = owner.state_of(path)
        same = _digest_in(store) == digest
        if state == "alive":
            if same:
                raise InputError(f"--checkpoint: the run in '{folder}' is still going")
            continue
        at = Checkpoint.last_trip(store, trips)
        if at is not None and same:
            tell(f"going on from the checkpoint after pass {at} of {trips}")
            return RunFolder.resume(path, encrypted=encrypted)
        if at is None and state == "gone":
            owner.remove(path)
        other = other or at is not None
    if other:
        raise InputError(
            f"--checkpoint: '{folder}' holds a run with other settings or another input; take another folder, or give "
            f"it up: {_clean(folder)}"
        )
    return None


def _digest_in(store: RunStore) -> str | None:
    """The digest of the settings of a folder's run; None where it is encrypted otherwise than asked for."""
    try:
        return store.read_bytes(_SETTINGS).decode()
    except (InputError, SealError, UnicodeDecodeError):
        return None


def _clean(folder: str) -> str:
    return f"dpbeam clean --temp_location={shlex.quote(folder)}"


def _folders(folder: str) -> list[str]:
    """Run folders that were made here, on any filesystem."""
    found = owner.folders(folder, owner.RUN_FOLDER)
    return [path for path in found if RunStore(path).exists(_SETTINGS)]
