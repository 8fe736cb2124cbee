"""Room on disk and in memory, asked for before anything large is made."""

from __future__ import annotations

import os
import shutil

from dpbeam.errors import InputError


def check_disk(what: str, needed: float, folder: str) -> None:
    """Refuse what a disk does not hold.

    Args:
      what: names the flag or key, for the message.
      needed: bytes.
      folder: where they would go; one that does not exist is on the disk of the first above it that does.

    Raises:
      InputError: there is less room.
    """
    folder = os.path.abspath(folder or ".")
    while not os.path.isdir(folder) and folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise InputError(
            f"{what}: needs about {_size_text(needed)} in '{folder}', where {_size_text(free)} are free"
        )


def check_memory(what: str, needed: float) -> None:
    """Refuse what this machine's memory does not hold; arguments and error as of `check_disk`."""
    free = available_memory()
    if needed > free:
        raise InputError(
            f"{what}: needs about {_size_text(needed)} of memory, where {_size_text(free)} are available"
        )


def available_memory() -> int:
    """Bytes that programs may still take; all of the memory where the system does not tell."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 2**34


def _size_text(size: float) -> str:
    """Bytes in units that a person reads."""
    for unit in ("bytes", "kB", "MB", "GB", "TB", "PB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} EB"
