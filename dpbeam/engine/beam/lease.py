"""Hold a folder of a store alone, against processes on whatever machine.

Stores have no lock that ends with its process. So whoever holds a folder makes the next of its files `lock-00000001`,
..., once, and changes it every few seconds; at the end it says there that it is free. A lock that does not change for a
minute is that of a dead process, as is one whose process ran on this machine and is gone; then the next number is made.

A process that was stopped for longer than that, and goes on, does not know that it has lost the folder. So what must
not happen twice is to be made once by itself (`FileSystems.write_once`): a lease keeps processes out of each other's
way.
"""

from __future__ import annotations

import contextlib
import errno
import json
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from dpbeam.engine.beam.owner import Owner
from dpbeam.storage import FileSystems

#: How the names of locks begin.
LOCK = "lock-"
#: How long a lock that does not change is believed, and how often a living process changes it.
SECONDS, BEAT = 60.0, 10.0
_LOOK = 1.0
_LENGTH = 1000


class HeldError(Exception):
    """Another process holds the folder."""


@contextlib.contextmanager
def alone(folder: str) -> Iterator[None]:
    """Hold a folder of a store (one with `FileSystems.write_once`) until the end of the context.

    Raises:
      HeldError: another process does.
      OSError: the store does not answer.
    """
    path = _take(folder)
    ended = threading.Event()
    beats = threading.Thread(target=_beat, args=(path, ended), daemon=True)
    beats.start()
    try:
        yield
    finally:
        ended.set()
        beats.join()
        with contextlib.suppress(OSError):  # without it the next one waits
            _put(path, _text(free=True))


def _take(folder: str) -> str:
    """The path of a new lock, which is the only one."""
    before = _locks(folder)
    if before and not _is_free(before[-1]):
        raise HeldError
    number = int(before[-1][-8:]) + 1 if before else 1
    path = FileSystems.join(folder, f"{LOCK}{number:08d}")
    if not FileSystems.write_once(path, _text()):
        raise HeldError
    if _locks(folder)[-1:] != [path]:  # made, freed and removed by others since `before` was read
        FileSystems.delete([path])
        raise HeldError
    FileSystems.delete(before)
    return path


def _locks(folder: str) -> list[str]:
    stem = FileSystems.join(folder, LOCK)
    return [path for path in FileSystems.list_prefix(stem) if path[len(stem) :].isdecimal()]


def _is_free(path: str) -> bool:
    """Whether nobody holds the folder by this lock; it may take a minute to tell."""
    text = _read(path)
    with contextlib.suppress(ValueError, KeyError, TypeError):
        values = json.loads(text)
        if values["free"] or Owner(**values["owner"]).state == "gone":
            return True
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        time.sleep(_LOOK)
        if _read(path) != text:
            return False
    return True


def _read(path: str) -> bytes:
    """What a lock says; something else each time where it changes just now, nothing where it is gone."""
    try:
        return FileSystems.read(path)
    except FileNotFoundError:  # there is a newer one
        return b""
    except OSError as error:
        if error.errno == errno.ESTALE:
            return uuid.uuid4().bytes
        raise


def _beat(path: str, ended: threading.Event) -> None:
    while not ended.wait(BEAT):
        with contextlib.suppress(OSError):
            _put(path, _text())


def _text(*, free: bool = False) -> bytes:
    """Another one each time, of one length, so that a reader meets no shorter one."""
    values: dict[str, Any] = {"owner": asdict(Owner.this_process()), "free": free, "beat": uuid.uuid4().hex}
    return json.dumps(values).ljust(_LENGTH).encode()


def _put(path: str, text: bytes) -> None:
    with FileSystems.create(path) as file:
        file.write(text)
