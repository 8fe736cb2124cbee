"""Room on disk and in memory: what is left of it, and whose file a full disk would not take."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator


def nearest_folder(folder: str) -> str:
    """A folder, or the first above it that exists."""
    folder = os.path.abspath(folder or ".")
    while not os.path.isdir(folder) and folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
    return folder


def available_memory() -> int:
    """Bytes that this process may still take; all of the memory where the system does not tell."""
    return min(_of_machine(), *_of_groups(), *_of_process())


def _of_machine() -> int:
    with contextlib.suppress(OSError, ValueError):
        return _named("/proc/meminfo", "MemAvailable:") * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 2**34


def _of_groups(listing: str = "/proc/self/cgroup") -> Iterator[int]:
    """What the control groups of a container or a service leave, of both versions."""
    try:
        with open(listing, encoding="utf-8") as file:
            lines = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return
    for _, controllers, path in lines:
        if controllers and "memory" not in controllers.split(","):
            continue
        top, limit, used, cached = _GROUPS[bool(controllers)]
        parts = [part for part in path.split("/") if part]
        # A group inside a container sees itself at the top, under the name that it has outside.
        for depth in range(len(parts) + 1):
            folder = os.path.join(top, *parts[:depth])
            with contextlib.suppress(OSError, ValueError):  # no such group here, or "max"
                given_up = _named(os.path.join(folder, "memory.stat"), cached)
                taken = _number(os.path.join(folder, used)) - given_up
                yield max(0, _number(os.path.join(folder, limit)) - taken)


# Top folder; files of the limit and of what is used; the line of the files among it that the system gives up.
_GROUPS = (
    ("/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def _of_process() -> Iterator[int]:
    """What `ulimit -v` leaves."""
    if sys.platform.startswith("linux"):
        import resource  # which other systems may lack

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limit != resource.RLIM_INFINITY:
            with open("/proc/self/statm", encoding="ascii") as file:
                yield max(0, limit - int(file.read().split()[0]) * resource.getpagesize())


def _named(path: str, name: str) -> int:
    """The number in the line of this name. Raises ValueError if there is none."""
    with open(path, encoding="ascii") as file:
        for line in file:
            if line.split(maxsplit=1)[:1] == [name]:
                return int(line.split()[1])
    raise ValueError(name)


def _number(path: str) -> int:
    with open(path, encoding="ascii") as file:
        return int(file.read())
