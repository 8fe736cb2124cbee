"""Where the files of a series lie: a private folder of this machine, or one on S3, on Azure or on HDFS.

All that a series needs of it: a file is written once and appears whole, and one process at a time makes changes. A
store that overlooks the condition of a request by which a file is made once is refused when a series is opened. Where a
process may lose the folder without knowing (`Files.sure_lock`), what is removed stays as an empty file under its name:
so no state of a number can be made again.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import uuid
from collections.abc import Iterable, Iterator

from dpbeam.disk import BEING_WRITTEN
from dpbeam.errors import InputError, SettingError, SetupError, StoreError, UnavailableError, param
from dpbeam.storage import FileSystems
from dpbeam.storage.files import Files, HeldError, NotOnceError
from dpbeam.storage.reasons import missing_filesystem, reason, refusal

_LOCK = "lock"
#: How the folders below it begin where an engine works on a night.
WORK = "work-"
#: Their whole names, also while they are removed. Whatever else begins like them is somebody's own.
OF_WORK = re.compile(rf"{WORK}[0-9a-f]{{32}}(\.removed)?")
_PROBE = "probe-"
#: What a killed process may have left; the last as versions before wrote them.
_PASSING = re.compile(
    rf"{_PROBE}[0-9a-f]{{32}}|.*{re.escape(BEING_WRITTEN)}[0-9a-f]{{32}}|new-[0-9a-f]{{16}}"
)
_OF_LEASE = re.compile(rf"{_LOCK}-\d{{8}}")


class Folder:
    """A private folder, without folders in it but those where an engine works.

    Where it cannot be one, or a store does not answer, what first uses it raises InputError or UnavailableError.

    Args:
      path: a path, or the URL of a folder on a store.

    Attributes:
      path: as messages name it.

    Raises:
      InputError: it has no name.
    """

    def __init__(self, path: str):
        if not path:
            raise SettingError(f"{param('folder')} must be a folder of this machine, got '{path}'")
        stripped = path.rstrip("/")
        self.path = stripped if "://" in stripped else path

    def _at(self, name: str) -> str:
        return FileSystems.join(self.path, name)

    @property
    def _files(self) -> Files:
        if missing := missing_filesystem(self.path):
            raise SetupError(f"{param('folder')}: '{self.path}': {missing}")
        if not self.path.partition("://")[2].strip("/") and "://" in self.path:
            raise SettingError(f"{param('folder')}: '{self.path}' names no folder")
        return FileSystems.at(self.path)

    @contextlib.contextmanager
    def _used(self, name: str = "") -> Iterator[Files]:
        """Turn what lies in the place of a file, or trouble with a store, into one line."""
        try:
            yield self._files
        except (InputError, UnavailableError, FileNotFoundError, FileExistsError):
            raise
        except NotOnceError:
            raise StoreError(
                f"{param('folder')}: '{self.path}': files there cannot be made once and for all, so one "
                "night could be made twice; take s3://, gs://, az://, abfss://, hdfs:// or a folder of this machine"
            ) from None
        except (OSError, ValueError, ImportError) as error:
            where = self._at(name) if name and "://" not in self.path else self.path
            raise refusal(
                StoreError, f"{param('folder')}: cannot use '{where}': {reason(error)}", error
            ) from None

    def make(self) -> None:
        """Make it, for its owner alone, where it is not there. Raises OSError, InputError, UnavailableError."""
        with self._used() as files:
            with contextlib.suppress(FileExistsError):
                files.make_folder(self.path, private=True)
            probe = self._at(f"{_PROBE}{uuid.uuid4().hex}")
            try:
                if not files.put_once(probe, b"1", durable=False) or files.put_once(probe, b"2"):
                    raise StoreError(
                        f"{param('folder')}: '{self.path}': this store replaces a file that was to be made "
                        "once, so one night could be made twice; take another store, or a folder of this machine"
                    )
            finally:
                with contextlib.suppress(OSError):
                    files.delete([probe])
            files.flush(self.path, above=True)

    def everything(self) -> list[str]:
        """Names of all files and folders, but for locks and what is half written."""
        with self._used() as files:
            paths = {*files.list_prefix(self._at("")), *files.folders(self.path, "", "")}
            names = {files.split(path)[1] for path in paths}
            # Without a name consoles of stores show a folder.
            return sorted(name for name in names if name and not self._is_passing(name))

    def _is_passing(self, name: str) -> bool:
        return _PASSING.fullmatch(name) is not None or self._is_lock(name)

    def _is_lock(self, name: str) -> bool:
        if not self._files.sure_lock:
            return _OF_LEASE.fullmatch(name) is not None
        return name == _LOCK and self._files.sizes(self._at(name)).get(self._at(name)) == 0

    def _sizes(self) -> dict[str, int]:
        """Of all files, also of those that were removed."""
        with self._used() as files:
            sizes = {files.split(path)[1]: size for path, size in files.sizes(self._at("")).items()}
            sizes.pop("", None)
            return sizes

    def names(self) -> list[str]:
        """Of all whole files, and on this machine of what lies in the place of one, which reading then refuses; none
        where the folder is not there.
        """
        if self._files.sure_lock:
            return [name for name in self.everything() if not OF_WORK.fullmatch(name)]
        return [name for name, size in self._sizes().items() if size and not self._is_passing(name)]

    def has(self, name: str) -> bool:
        """Whether there is such a file."""
        with self._used() as files:
            return files.exists(self._at(name))

    def read(self, name: str) -> bytes:
        """A whole file. Raises FileNotFoundError."""
        with self._used(name) as files:
            try:
                data = files.read(self._at(name))
            except OSError as error:
                if error.errno != errno.ESTALE:
                    raise
                data = b""  # it is being removed
            if not data and not files.sure_lock:
                raise FileNotFoundError(errno.ENOENT, "was removed", name)
            return data

    def write(self, name: str, data: bytes) -> None:
        """Make a file, whole or not at all, for good. Of several processes at once one makes it.

        Raises:
          FileExistsError: it is there with other content, or was and its content was removed.
        """
        with self._used() as files:
            if not files.put_once(self._at(name), data):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
            files.flush(self.path)

    def remove(self, name: str) -> None:
        """Remove what a file holds, for good; harmless where it is gone."""
        with self._used() as files:
            if files.sure_lock:
                self.delete([name])
            else:
                files.put(self._at(name)).close()

    def delete(self, names: Iterable[str]) -> None:
        """Remove files whose names nobody takes again, for good; harmless where they are gone."""
        with self._used() as files:
            files.delete([self._at(name) for name in names])
            files.flush(self.path)

    def clear(self) -> None:
        """Remove all files, so that they can be made anew. For who holds the folder alone."""
        self.delete([name for name in self._sizes() if not self._is_lock(name)])
        self._files.protect(self.path)

    def tidy(self) -> None:
        """Remove what killed processes have left half written, and what engines worked on. For who holds the folder
        alone.
        """
        if passing := [name for name in self._sizes() if _PASSING.fullmatch(name)]:
            self.delete(passing)
        with self._used() as files:
            for path in files.folders(self.path, WORK, "key"):
                if OF_WORK.fullmatch(files.split(path)[1]):
                    files.remove_folder(path)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the folder alone. Raises UnavailableError where another process does."""
        with contextlib.ExitStack() as held:
            try:
                with self._used(_LOCK) as files:
                    held.enter_context(files.alone(self._at(_LOCK)))
            except HeldError:
                raise self.busy() from None
            yield

    def busy(self) -> UnavailableError:
        """For who finds another process at work."""
        return UnavailableError(f"{param('folder')}: another run of the series in '{self.path}' is under way")


class RemoteFolder(Folder):
    """A folder on S3, on Azure or on HDFS, for `dpbeam.Series`.

    Args:
      path: its URL.
    """
