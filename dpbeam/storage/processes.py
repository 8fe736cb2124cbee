"""Which process made a file, and whether it still lives."""

from __future__ import annotations

import contextlib
import os
import socket
from dataclasses import dataclass
from pathlib import Path


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
        """That of what this process makes."""
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
