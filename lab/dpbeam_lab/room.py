"""Room on disk and in memory, asked for before anything large is made."""

from __future__ import annotations

import shutil

from dpbeam.errors import SetupError
from dpbeam.room import available_memory, nearest_folder


def check_disk(what: str, needed: float, folder: str) -> None:
    """Refuse what a disk does not hold.

    Args:
      what: names the flag or key, for the message.
      needed: bytes.
      folder: where they would go; one that does not exist is on the disk of the first above it that does.

    Raises:
      InputError: there is less room.
    """
    folder = nearest_folder(folder)
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise SetupError(
            f"{what}: needs about {_size_text(needed)} in '{folder}', where {_size_text(free)} are free"
        )


def check_memory(what: str, needed: float) -> None:
    """Refuse what this machine's memory does not hold.

    Args:
      what: begins the message; needed: bytes.

    Raises:
      InputError: there is less memory.
    """
    free = available_memory()
    if needed > free:
        raise SetupError(
            f"{what}: needs about {_size_text(needed)} of memory, where {_size_text(free)} are available"
        )


def _size_text(size: float) -> str:
    """Bytes in units that a person reads."""
    for unit in ("bytes", "kB", "MB", "GB", "TB", "PB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} EB"
