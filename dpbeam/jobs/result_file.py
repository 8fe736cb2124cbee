"""A file that tells how a run has ended.

It tells of the last run with this name that ended, whatever its end: it is removed before a run starts and written by
rename when it ends, so after `kill -9` there is none, and none ever tells of an earlier run. Only a file that is absent
or was written for this purpose is ever touched; any other in its place is an error, or with `--overwrite` replaced when
the run has succeeded.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dpbeam.disk import flush
from dpbeam.errors import InputError, StoreError, UnavailableError
from dpbeam.io.new_files import NewFile, check_not_output
from dpbeam.jobs.console import warn

_LARGEST = 64 << 20
#: What every result of any version has.
_MARKS = frozenset({"command", "outputs", "items_released"})
RELEASED, OUT_ALREADY, REFUSED, FAILED = "released", "already_released", "refused", "failed"


class ResultFile(NewFile):
    """The file, and whether this run may write it."""

    _ready = _replaces = False

    def claim(self, said: Mapping[str, Any], extras: Sequence[str] = ()) -> None:
        """Refuse a file that could not be written at the end, or that stands in the way.

        Args:
          said: flags, `output` among them.
          extras: of the output, as in `OutputTarget`.

        Raises:
          InputError: naming the flag.
        """
        check_not_output(self.flag, self, said["output"], extras)
        earlier = self._earlier()
        if earlier is not None and not _replaceable(earlier, said):
            raise StoreError(
                f"{self.flag}: '{self}' exists and tells of another release; pass --overwrite to replace it, "
                "or another name"
            )
        self._replaces = earlier is not None
        self.check(overwrite=said.get("overwrite", False))
        self._ready = self._replaces or not os.path.lexists(self)

    def check(self, *, overwrite: bool, inputs: Iterable[str] = ()) -> None:
        """As of any other file, but that a result which nobody misses is replaced."""
        super().check(overwrite=overwrite or self._replaces, inputs=inputs)

    def clear(self) -> None:
        """The run starts: whatever an earlier one has written is gone, for good."""
        if self._earlier() is not None:
            with contextlib.suppress(FileNotFoundError):
                os.remove(self)
                flush(os.path.dirname(os.path.abspath(self)))

    def tell(self, result: Mapping[str, Any]) -> None:
        """The run has ended, and its output is as it is: trouble is a warning, and leaves no earlier result."""
        try:
            self.write(f"{json.dumps(result, indent=2)}\n".encode(), overwrite=True)
        except (InputError, UnavailableError, OSError, ValueError) as error:
            warn(str(error) if isinstance(error, (InputError, UnavailableError)) else f"{self.flag}: {error}")
            with contextlib.suppress(OSError):
                self.clear()

    def tell_end(self, said: Mapping[str, Any], result: Mapping[str, Any]) -> None:
        """A run has released nothing, perhaps before the file was claimed."""
        with contextlib.suppress(InputError):
            if not self._ready and "output" in said:
                self.claim(said)
        earlier = self._earlier()
        if self._ready if earlier is None else _replaceable(earlier, said):
            self.tell(result)

    def _earlier(self) -> dict[str, Any] | None:
        """An earlier result; None where there is none, or something else."""
        try:
            if not stat.S_ISREG(os.lstat(self).st_mode) or os.path.getsize(self) > _LARGEST:
                return None
            with open(self, encoding="utf-8") as file:
                values = json.load(file)
        except (OSError, ValueError, RecursionError):
            return None
        return values if isinstance(values, dict) and set(values) >= _MARKS else None


def _replaceable(earlier: Mapping[str, Any], said: Mapping[str, Any]) -> bool:
    """Whether nobody misses an earlier result: it tells of no release, or of the same one."""
    if said.get("overwrite", False) or earlier.get("status", RELEASED) in (REFUSED, FAILED):
        return True
    for marks, names in (
        (earlier.get("budget") or earlier, ("dataset", "release_id")),
        (earlier.get("parameters") or {}, ("series", "night")),
    ):
        if all(name in said and marks.get(name) == said[name] for name in names):
            return True
    return False
