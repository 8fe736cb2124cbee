"""Whose a folder of a run is: which process made it, and whether that process still lives.

A killed launcher (kill -9, a lost machine) cannot remove its private folder and its staged output. Each holds a small
file that names its process, so that a later run can say what was left behind and `dpbeam clean` can remove it without
ever touching what a living run needs.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from dpbeam.signals import deferring
from dpbeam.storage import FileSystems

#: How the names of run folders begin.
RUN_FOLDER = "dpbeam-run-"
#: How those of staged output begin that lie beside run folders.
STAGING = "dpbeam-staging-"
#: Those of data that are evaluated.
EVALUATION_FOLDER = "dpbeam-evaluate-"
FILE = "owner.json"
#: Holds the key of a run, in its folder; the first of its files to go.
KEY = "key"
#: What the name of a run folder ends with while it is emptied: who may still write to it then finds no folder.
REMOVED = ".removed"
_SUPPRESSED = contextlib.suppress(OSError)


@dataclass(frozen=True)
class Owner:
    """A process, distinguished from a later one of the same number.

    Attributes:
      host: the machine's name, with its boot and the namespace of its process numbers where the system tells them.
      pid: number of the process.
      started: when it started, in the system's own units; empty where unknown.
    """

    host: str
    pid: int
    started: str

    @classmethod
    def this_process(cls) -> Owner:
        fields = _stat(os.getpid())
        return cls(_host(), os.getpid(), fields[19] if fields else "")

    @property
    def state(self) -> str:
        """ "gone", "alive", or "elsewhere": on another machine, or a pipeline's, of which nothing can be said."""
        if self.host != _host():
            return "elsewhere"
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return "gone"
        except (PermissionError, OverflowError):
            pass  # somebody else's
        fields = _stat(self.pid)
        return "alive" if not fields or (fields[19] == self.started and fields[0] != "Z") else "gone"


#: Stands for the workers of a pipeline, of whom nobody knows whether they live.
PIPELINE = Owner("a pipeline", 0, "")


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
    with FileSystems.put(
        FileSystems.join(folder, FILE), make_folder=False, private=True, durable=False
    ) as file:
        file.write(json.dumps(asdict(owner)).encode())


def owner_of(folder: str) -> Owner | None:
    """Who made a folder; None where it does not say."""
    try:
        if FileSystems.is_local(folder):
            text = Path(folder, FILE).read_text(encoding="utf-8")
        else:
            text = FileSystems.read(FileSystems.join(folder, FILE)).decode()
        values = json.loads(text)
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
    if not FileSystems.is_local(parent):
        return FileSystems.folders(parent, stem, FILE)
    try:
        with os.scandir(parent or ".") as entries:
            names = [e.name for e in entries if e.name.startswith(stem) and e.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    return sorted(os.path.join(parent, name) for name in names)


def remove(folder: str) -> bool:
    """Remove a folder with everything in it; whether it is gone."""
    if not FileSystems.is_local(folder):
        try:
            FileSystems.remove_folder(folder)
        except OSError:
            return False
        return True
    return remove_local(folder) is None


def remove_local(folder: str) -> str | None:
    """Remove a folder of this machine; returns where what cannot be removed lies, None where all is gone.

    The key of a run goes first, and the folder that held it gets another name: a late worker finds no folder to write
    to. The name of the process goes last, so that what a killed process leaves of a folder is known as such. Signals
    that stop a program wait for the end.
    """
    with deferring() as came:
        rest = folder if os.path.islink(folder) else _removed(folder)
    for number in came[:1]:
        signal.raise_signal(number)
    return rest


def _removed(folder: str) -> str | None:
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(folder, KEY))
        os.rename(folder, f"{folder}{REMOVED}")
        folder += REMOVED
    with contextlib.suppress(OSError):
        for path, folders, files, place in os.fwalk(folder, topdown=False):
            for name in (*folders, *files):
                if (path, name) != (folder, FILE):
                    _delete(name, place)
            if path == folder and os.listdir(place) == [FILE]:
                os.unlink(FILE, dir_fd=place)
        os.rmdir(folder)
    return folder if os.path.lexists(folder) else None


def _delete(name: str, place: int) -> None:
    """Delete a file, a link or an empty folder, if that can be done."""
    try:
        os.unlink(name, dir_fd=place)
    except OSError:
        with contextlib.suppress(OSError):
            os.rmdir(name, dir_fd=place)


def _host() -> str:
    """Machine, boot and namespace of process numbers: containers that share a folder may share the machine's name."""
    parts = [socket.gethostname()]
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip())
    with contextlib.suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(parts)


def _stat(pid: int) -> list[str]:
    """What Linux tells of a process from its state on: [0] is the state, [19] the start in ticks since boot."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()  # the name, in brackets before, may hold anything
