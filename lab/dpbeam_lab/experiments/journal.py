"""The finished cells of an experiment, one line each: what a run that was stopped goes on from.

A line is written whole and flushed to the disk before the cell counts as finished; a line that a crash cut short lacks
its end and is taken off. Lines are found by the digest of what their results follow from, so that a changed experiment
runs what changed and nothing else.
"""

from __future__ import annotations

import fcntl
import json
import os

from dpbeam.errors import StoreError
from dpbeam_lab.experiments.cells import Result

_BEGINS = b'{"cell": "'


class Journal:
    """Results by digest, in a file that one run at a time writes.

    Args:
      path: of the file; made where there is none.

    Raises:
      InputError: another run has it open, it cannot be written, or it is something else.
    """

    def __init__(self, path: str):
        self._path = path
        if os.path.lexists(path) and (os.path.islink(path) or not os.path.isfile(path)):
            raise StoreError(
                f"--output: '{path}' is no regular file, and never written; choose another prefix"
            )
        try:
            self._file = open(path, "a+b")  # noqa: SIM115
        except OSError as error:
            raise StoreError(f"--output: cannot write '{path}': {error.strerror}") from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise StoreError(f"--output: another run is writing '{path}'") from None
        self.results: dict[str, Result] = {}
        try:
            self._read()
        except BaseException:
            self._file.close()
            raise

    def _read(self) -> None:
        self._file.seek(0)
        good = 0
        for line in self._file:
            if not line.endswith(b"\n"):
                if not _begins(line):
                    raise StoreError(f"--output: '{self._path}' does not hold cells of an experiment")
                break
            try:
                entry = json.loads(line)
                self.results[entry["cell"]] = entry["result"]
            except (ValueError, KeyError, TypeError):
                raise StoreError(f"--output: '{self._path}' does not hold cells of an experiment") from None
            good += len(line)
        self._file.truncate(good)

    def add(self, digest: str, result: Result) -> None:
        """Record a finished cell."""
        self._file.write(json.dumps({"cell": digest, "result": result}).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self.results[digest] = result

    def close(self) -> None:
        """Let others write."""
        self._file.close()


def _begins(line: bytes) -> bool:
    """Whether a line may be the beginning of one of ours, which a crash has cut short."""
    return line.startswith(_BEGINS[: len(line)])
