"""The one way in which files are written, read and removed, here and elsewhere, and what it promises."""

from __future__ import annotations

import contextlib
import errno
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

#: Number of the errors of a store that does not answer, or only that it cannot: it may do better a minute later.
UNAVAILABLE = errno.EHOSTDOWN


class HeldError(Exception):
    """Another process, or thread, is alone."""


class NoLocksError(OSError):
    """A filesystem has no locks."""


class NotOnceError(OSError):
    """Files cannot be made once in a place."""

    def __init__(self, path: str):
        super().__init__(errno.ENOTSUP, "files there cannot be made once and for all", path)


class NewFile(Protocol):
    """A file that is being written, whole once it is closed; an exception, or the garbage collector, gives it up."""

    def write(self, data: Any, /) -> int:
        """Add bytes; how many."""

    def close(self) -> None:
        """Make it appear. Raises OSError, and then it is given up."""

    def abort(self) -> None:
        """Give it up; harmless after `close`."""

    def __enter__(self) -> Any: ...

    def __exit__(self, kind: object, error: object, trace: object) -> None: ...


@dataclass(frozen=True)
class Put:
    """How a new file is made.

    Attributes:
      make_folder: make a folder that is missing; otherwise that is an error, where there are folders.
      beside: name of another file of the folder. Where it is not there, and there are no folders, closing raises
        FileNotFoundError: it is the first that goes with a folder, and a late writer must not bring that back.
      private: for its owner alone, on this machine, whatever the umask.
      durable: see `Files`; without it a power cut may leave the file empty.
      same: an earlier file holds the same, and may stay.
      temporary_in: where it is written until it is whole, if not beside it, in a folder of the same filesystem.
    """

    make_folder: bool = True
    beside: str | None = None
    private: bool = False
    durable: bool = True
    same: bool = False
    temporary_in: str | None = None


PLAIN = Put()


class Files(ABC):
    """Files of one place: of this machine, of a store, of HDFS.

    A path is a whole one, with its scheme if it has one. Names are literal in all methods but `match`. Every method
    raises OSError where the place cannot be asked, and FileNotFoundError where what it reads is not there.

    What a reader sees:

    - *At any instant* a file of `put` or `put_once` is whole or not there; where `put` or `rename` replaces a file, it
      is the earlier one or the new one. HttpFS cannot replace: for a moment there is none.
    - *After a process was killed* the same. Files may be left whose names hold `dpbeam.disk.BEING_WRITTEN`, which are
      no one's, and a folder of which a part was removed.
    - *After a power cut* nothing changes elsewhere: what a store has answered it keeps. On this machine (`needs_flush`)
      a file of `put` or `put_once` that was `durable` has all that it held, if it has its name; it has its name, and a
      deleted or renamed file has lost its own, once `flush` of the folder has returned. Before, either may be.

    Attributes:
      is_near: a file costs no round trip to a server.
      needs_flush: what was written is kept once it is flushed, and not when it is written.
      has_folders: no file is made in a folder that is not there, but where `put` makes it. Elsewhere a folder is no
        more than the beginning of a name.
      sure_once: that a file is made once is the filesystem's own rule, and not a condition of a request, which a
        server may overlook.
      sure_lock: who is `alone` is so until its end, and no longer than its process. Elsewhere a process that stood
        still for a minute may have lost what it holds without knowing.
    """

    is_near = False
    needs_flush = False
    has_folders = False
    sure_once = False
    sure_lock = False

    @abstractmethod
    def join(self, basepath: str, *paths: str) -> str:
        """A path below another."""

    @abstractmethod
    def split(self, path: str) -> tuple[str, str]:
        """(folder, name) of a path."""

    @abstractmethod
    def make_folder(self, path: str, *, private: bool = False) -> None:
        """Make a folder with those above it, where there are folders; `private`: for its owner alone.

        Raises:
          FileExistsError: it is there, and `private`, on this machine.
        """

    @abstractmethod
    def put(self, path: str, how: Put = PLAIN) -> NewFile:
        """A new file, whole once it is closed; `abort`, an exception and the garbage collector give it up."""

    @abstractmethod
    def put_once(
        self, path: str, data: bytes, *, make_folder: bool = False, private: bool = True, durable: bool = True
    ) -> bool:
        """Whether a file holds these data: it is made, whole, unless it is there.

        Of several writers at once with different data one alone hears that its own are there. A file is never replaced.

        Raises:
          NotOnceError: files cannot be made once there.
        """

    @abstractmethod
    def open(self, path: str) -> BinaryIO:
        """One version of a file, seekable."""

    @abstractmethod
    def read(self, path: str) -> bytes:
        """A whole file."""

    @abstractmethod
    def read_range(self, path: str, offset: int, size: int) -> bytes:
        """Bytes offset to offset + size, all of them. Raises OSError where the file ends before."""

    @abstractmethod
    def exists(self, path: str) -> bool:
        """Whether there is a file, or a folder where the store has folders."""

    def list_prefix(self, prefix: str) -> list[str]:
        """Sorted paths that begin with `prefix`, in its folder; none where there is no folder. On this machine those of
        folders too: they are in the way of a file.
        """
        return sorted(self.sizes(prefix))

    @abstractmethod
    def sizes(self, prefix: str) -> dict[str, int]:
        """The files among `list_prefix`, with the size of each."""

    @abstractmethod
    def match(self, pattern: str, limit: int | None = None) -> dict[str, int]:
        """The files that a pattern with wildcards means, with the size of each; no more than `limit`.

        On this machine a pattern that is the name of a file means that file.
        """

    @abstractmethod
    def folders(self, parent: str, stem: str, file: str) -> list[str]:
        """Sorted paths of the folders below `parent` whose names begin with `stem`.

        Args:
          file: where folders cannot be listed, those with a file of this name are listed.
        """

    @abstractmethod
    def rename(self, source: str, target: str) -> None:
        """Give a file another name, in place of a file that has it."""

    @abstractmethod
    def delete(self, paths: Sequence[str]) -> None:
        """Delete files, and folders with all that they hold; harmless for those that are gone."""

    @abstractmethod
    def remove_folder(self, path: str, *, first: str = "", last: str = "") -> str | None:
        """Delete a folder with all that it holds, also what was never finished, but what a store keeps of uploads whose
        writers were killed: no reader sees it, and a rule of the store removes it. Harmless if the folder is gone.

        Args:
          first: name of the file that goes first; from then on no file of `put(beside=first)` appears.
          last: name of the file that goes last, where that can be said.

        Returns:
          Where what cannot be removed lies; None where all is gone.
        """

    def protect(self, path: str) -> None:  # noqa: B027
        """Let only its owner use a file or folder, on this machine."""

    def flush(self, folder: str, *, inside: bool = False, above: bool = False) -> None:  # noqa: B027
        """Wait until the names in a folder are kept.

        Args:
          inside: the contents of its files too, whoever wrote them.
          above: the names in the folders above it too.
        """

    @abstractmethod
    def alone(self, path: str) -> contextlib.AbstractContextManager[None]:
        """Be the only one who holds this name, of a file that nothing else uses.

        Raises:
          HeldError: another does; it may take a minute to tell.
          NotOnceError, NoLocksError: that cannot be had there.
        """
