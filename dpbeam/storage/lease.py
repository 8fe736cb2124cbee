"""Be alone on a store, against processes on whatever machine.

Stores have no lock that ends with its process. So whoever holds a name makes the next of the files `NAME-00000001`,
..., once, and changes it every few seconds; at the end it says there that it is free. A lock that does not change for a
minute is that of a dead process, as is one whose process ran on this machine and is gone; then the next number is made.

A process that was stopped for longer than that, and goes on, does not know that it has lost what it held. So what must
not happen twice is to be made once by itself (`Files.put_once`): a lease keeps processes out of each other's way.
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

from dpbeam.storage.files import Files, HeldError
from dpbeam.storage.processes import Owner

#: How long a lock that does not change is believed, and how often a living process changes it.
SECONDS, BEAT = 60.0, 10.0
_LOOK = 1.0
_LENGTH = 1000


@contextlib.contextmanager
def alone(files: Files, path: str) -> Iterator[None]:
    """As `Files.alone`; the locks are `path` with `-` and a number.

    Raises:
      HeldError, NotOnceError, OSError: as there.
    """
    path = _take(files, f"{path}-")
    ended = threading.Event()
    beats = threading.Thread(target=_beat, args=(files, path, ended), daemon=True)
    beats.start()
    try:
        yield
    finally:
        ended.set()
        beats.join()
        with contextlib.suppress(OSError):  # without it the next one waits
            _put(files, path, _text(free=True))


def _take(files: Files, stem: str) -> str:
    """The path of a new lock, which is the only one."""
    before = _locks(files, stem)
    if before and not _is_free(files, before[-1]):
        raise HeldError
    number = int(before[-1][-8:]) + 1 if before else 1
    path = f"{stem}{number:08d}"
    if not files.put_once(path, _text()):
        raise HeldError
    if _locks(files, stem)[-1:] != [path]:  # made, freed and removed by others since `before` was read
        files.delete([path])
        raise HeldError
    files.delete(before)
    return path


def _locks(files: Files, stem: str) -> list[str]:
    return [path for path in files.list_prefix(stem) if path[len(stem) :].isdecimal()]


def _is_free(files: Files, path: str) -> bool:
    """Whether nobody holds the folder by this lock; it may take a minute to tell."""
    text = _read(files, path)
    with contextlib.suppress(ValueError, KeyError, TypeError):
        values = json.loads(text)
        if values["free"] or Owner(**values["owner"]).state == "gone":
            return True
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        time.sleep(_LOOK)
        if _read(files, path) != text:
            return False
    return True


def _read(files: Files, path: str) -> bytes:
    """What a lock says; something else each time where it changes just now, nothing where it is gone."""
    try:
        return files.read(path)
    except FileNotFoundError:  # there is a newer one
        return b""
    except OSError as error:
        if error.errno == errno.ESTALE:
            return uuid.uuid4().bytes
        raise


def _beat(files: Files, path: str, ended: threading.Event) -> None:
    while not ended.wait(BEAT):
        with contextlib.suppress(OSError):
            _put(files, path, _text())


def _text(*, free: bool = False) -> bytes:
    """Another one each time, of one length, so that a reader meets no shorter one."""
    values: dict[str, Any] = {"owner": asdict(Owner.this_process()), "free": free, "beat": uuid.uuid4().hex}
    return json.dumps(values).ljust(_LENGTH).encode()


def _put(files: Files, path: str, text: bytes) -> None:
    with files.put(path) as file:
        file.write(text)
