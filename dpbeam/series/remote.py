"""The folder of a series on S3, on Azure or on HDFS.

A file is made once by a request that the store refuses where it is there: with a condition on object stores, by rename
on HDFS. A store that overlooks the condition is refused when a series is opened. What is removed stays as an empty file
under its name: so no state of a number can be made again, by a process that lost the folder without knowing.
"""

from __future__ import annotations

import contextlib
import errno
import re
import uuid
from collections.abc import Iterable, Iterator

from dpbeam.disk import BEING_WRITTEN
from dpbeam.engine.beam import lease
from dpbeam.errors import InputError, UnavailableError, param
from dpbeam.series.folder import OF_WORK, WORK, Folder
from dpbeam.storage import FileSystems
from dpbeam.storage.reasons import missing_filesystem, reason, refusal

_PROBE = "probe-"
_IS_LOCK = re.compile(rf"{lease.LOCK}\d{{8}}")
_PASSING = re.compile(rf"{_PROBE}[0-9a-f]{{32}}|.+{re.escape(BEING_WRITTEN)}[0-9a-f]{{32}}")


class RemoteFolder(Folder):
    """A folder on S3, on Azure or on HDFS, for `dpbeam.Series`.

    Where it cannot be one, or the store does not answer, what first uses it raises InputError or UnavailableError.

    Args:
      path: its URL.
    """

    def __init__(self, path: str):
        self.path = path.rstrip("/")
        self._checked = False

    def _at(self, name: str) -> str:
        return FileSystems.join(self.path, name)

    @contextlib.contextmanager
    def _asked(self) -> Iterator[None]:
        """Turn trouble with the store into one line."""
        try:
            self._check()
            yield
        except (InputError, UnavailableError, FileNotFoundError, FileExistsError):
            raise
        except (OSError, ValueError, ImportError) as error:
            message = f"{param('folder')}: cannot use '{self.path}': {reason(error)}"
            raise refusal(message, error) from None

    def _check(self) -> None:
        if self._checked:
            return
        if missing := missing_filesystem(self.path):
            raise InputError(f"{param('folder')}: '{self.path}': {missing}")
        if not self.path.partition("://")[2].strip("/"):
            raise InputError(f"{param('folder')}: '{self.path}' names no folder")
        if not FileSystems.writes_once(self.path):
            raise InputError(
                f"{param('folder')}: '{self.path}': files there cannot be made once and for all, so one "
                "night could be made twice; take s3://, az://, abfss://, hdfs:// or a folder of this machine"
            )
        self._checked = True

    def make(self) -> None:
        with self._asked():
            FileSystems.mkdirs(self.path, private=True)
            probe = self._at(f"{_PROBE}{uuid.uuid4().hex}")
            try:
                if not FileSystems.write_once(probe, b"1") or FileSystems.write_once(probe, b"2"):
                    raise InputError(
                        f"{param('folder')}: '{self.path}': this store replaces a file that was to be made "
                        "once, so one night could be made twice; take another store, or a folder of this machine"
                    )
            finally:
                with contextlib.suppress(OSError):
                    FileSystems.delete([probe])

    def everything(self) -> list[str]:
        files = [name for name in self._sizes() if not _is_passing(name) and not _is_lock(name)]
        with self._asked():
            return [*files, *(FileSystems.split(path)[1] for path in FileSystems.folders(self.path, "", ""))]

    def names(self) -> list[str]:
        there = self._sizes()
        return [name for name, size in there.items() if size and not _is_passing(name) and not _is_lock(name)]

    def _sizes(self) -> dict[str, int]:
        with self._asked():
            sizes = FileSystems.sizes(self._at(""))
        named = {FileSystems.split(path)[1]: size for path, size in sizes.items()}
        named.pop("", None)  # by which consoles of stores show a folder
        return named

    def has(self, name: str) -> bool:
        with self._asked():
            return FileSystems.exists(self._at(name))

    def read(self, name: str) -> bytes:
        with self._asked():
            try:
                data = FileSystems.read(self._at(name))
            except OSError as error:
                if error.errno != errno.ESTALE:
                    raise
                data = b""  # it is being removed
        if not data:
            raise FileNotFoundError(errno.ENOENT, "was removed", name)
        return data

    def write(self, name: str, data: bytes) -> None:
        with self._asked():
            if not FileSystems.write_once(self._at(name), data):
                raise FileExistsError(errno.EEXIST, "exists already", name)

    def remove(self, name: str) -> None:
        with self._asked(), FileSystems.create(self._at(name)):
            pass

    def clear(self) -> None:
        self.delete(name for name in self._sizes() if not _is_lock(name))

    def tidy(self) -> None:
        self.delete(name for name in self._sizes() if _is_passing(name))
        with self._asked():
            for path in FileSystems.folders(self.path, WORK, "key"):
                if OF_WORK.fullmatch(FileSystems.split(path)[1]):
                    FileSystems.remove_folder(path)

    def delete(self, names: Iterable[str]) -> None:
        with self._asked():
            FileSystems.delete([self._at(name) for name in names])

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        with contextlib.ExitStack() as held:
            try:
                with self._asked():
                    held.enter_context(lease.alone(self.path))
            except lease.HeldError:
                raise self.busy() from None
            yield


def _is_lock(name: str) -> bool:
    return _IS_LOCK.fullmatch(name) is not None


def _is_passing(name: str) -> bool:
    """What a killed process may have left."""
    return _PASSING.fullmatch(name) is not None
