"""Stdin and pipes as input: copied to a private file first, for workers read input in parts and more than once.

The copy lies in a folder of its own below the temp location, as private as the run's: only its owner can read it, and
it is removed when the run or the process ends.
"""

from __future__ import annotations

import atexit
import tempfile
from collections.abc import Sequence

from dpbeam.engine.beam.store import NewFile, RunFolder
from dpbeam.errors import DataError, StoreError
from dpbeam.io.compressions import COMPRESSIONS, without_compression
from dpbeam.io.files import identity
from dpbeam.io.formats import find
from dpbeam.io.paths import STDIN, check_no_device, is_pipe
from dpbeam.io.streams import open_input
from dpbeam.storage import FileSystems
from dpbeam.storage.reasons import reason, refusal

_BLOCK = 4 << 20


class Spool:
    """The copies of a run's pipes; made when the first is needed. As a context they go where it ends with an error.

    Args:
      temp_location: a folder that every worker can reach; None: this machine's.
    """

    def __init__(self, temp_location: str | None = None):
        self._temp_location = temp_location or tempfile.gettempdir()
        self._folder: RunFolder | None = None

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self.remove()

    def replace(self, patterns: Sequence[str], format: str, flag: str = "--input") -> tuple[str, ...]:
        """The patterns with a copy in place of each pipe; a pipe that is named twice is read once.

        Raises:
          InputError: the format cannot come through a pipe, or one cannot be read or copied.
        """
        pipes: dict[object, str] = {}
        replaced = []
        for pattern in patterns:
            if not is_pipe(pattern):
                replaced.append(pattern)
                continue
            check_no_device(pattern, flag)
            if not find(format).pipes:
                raise DataError(f"{flag}: '{pattern}': {find(format).why_no_pipe}; name a file")
            key = identity(pattern)
            if key not in pipes:
                pipes[key] = self._copy(pattern, len(pipes), flag)
                replaced.append(pipes[key])
        return tuple(replaced)

    def _copy(self, pipe: str, number: int, flag: str) -> str:
        if self._folder is None:
            try:
                self._folder = RunFolder(self._temp_location)
            except (OSError, ValueError) as error:
                why = reason(error, self._temp_location)
                raise refusal(
                    StoreError, f"--temp_location: cannot write '{self._temp_location}': {why}", error
                ) from None
            atexit.register(self.remove)
        name = "stdin" if pipe == STDIN else without_compression(pipe.rpartition("/")[2])
        with open_input(pipe) as source:
            try:
                data = source.read(_BLOCK)
                # A pipe's name does not say how it is compressed, so the bytes must.
                suffix = "".join(f".{way.suffix}" for way in COMPRESSIONS if way.begins(data))
                copy = NewFile(self._folder.store, f"{number}-{name}{suffix}")
                copy.write(data)
                while data := source.read(_BLOCK):
                    copy.write(data)
                copy.close()
            except OSError as error:
                why = reason(error)
                raise refusal(
                    DataError, f"{flag}: cannot copy '{pipe}' to the temp location: {why}", error
                ) from None
        return FileSystems.join(self._folder.path, f"{number}-{name}{suffix}")

    def remove(self) -> None:
        """Remove the copies; harmless if there are none."""
        if self._folder is not None:
            self._folder.remove()
            self._folder = None
            atexit.unregister(self.remove)
