"""Whose a folder of a run is: which process made it, and whether that process still lives.

A killed launcher (kill -9, a lost machine) cannot remove its private folder and its staged output. Each holds a small
file that names its process, so that a later run can say what was left behind and `dpbeam clean` can remove it without
ever touching what a living run needs.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, replace

from dpbeam.storage import FileSystems
from dpbeam.storage.files import Put
from dpbeam.storage.processes import Owner

#: How the names of run folders begin.
RUN_FOLDER = "dpbeam-run-"
#: How those of staged output begin that lie beside run folders.
STAGING = "dpbeam-staging-"
#: Those of data that are evaluated.
EVALUATION_FOLDER = "dpbeam-evaluate-"
FILE = "owner.json"
#: Holds the key of a run, in its folder; the first of its files to go.
KEY = "key"
_SUPPRESSED = contextlib.suppress(OSError)


def mark(folder: str, by: Owner | None = None, *, strictly: bool = False) -> None:
    """Write this process into a folder.

    Args:
      by: somebody else than this process.
      strictly: raise OSError where that fails; otherwise trouble is left to whoever writes there next.
    """
    with contextlib.nullcontext() if strictly else _SUPPRESSED:
        _write(folder, by or Owner.this_process())


def unmark(folder: str) -> None:
    """Say that this process is done with a folder, which stays: as if it were gone."""
    with _SUPPRESSED:
        _write(folder, replace(Owner.this_process(), started="ended"))


def _write(folder: str, owner: Owner) -> None:
    # After a power cut nobody is at work in any folder: it need not be on the disk.
    how = Put(make_folder=False, private=True, durable=False)
    with FileSystems.put(FileSystems.join(folder, FILE), how) as file:
        file.write(json.dumps(asdict(owner)).encode())


def owner_of(folder: str) -> Owner | None:
    """Who made a folder; None where it does not say."""
    try:
        values = json.loads(FileSystems.read(FileSystems.join(folder, FILE)))
        return Owner(str(values["host"]), int(values["pid"]), str(values["started"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def state_of(folder: str) -> str:
    """ "gone", "alive", "elsewhere", or "unknown" where the folder does not name its process."""
    owner = owner_of(folder)
    return "unknown" if owner is None else owner.state


def folders(parent: str, stem: str) -> list[str]:
    """Sorted paths of the folders below `parent` whose names begin with `stem`, both taken literally.

    Raises:
      OSError: a store elsewhere does not answer.
    """
    return FileSystems.folders(parent, stem, FILE)


def remove(folder: str) -> str | None:
    """Remove a folder with everything in it, the key of a run first: a late worker then finds no folder to write to.
    The name of the process goes last, so that what a killed process leaves of a folder is known as such.

    Returns:
      Where what cannot be removed lies; None where all is gone.
    """
    try:
        return FileSystems.remove_folder(folder, first=KEY, last=FILE)
    except OSError:
        return folder
