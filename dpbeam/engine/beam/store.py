"""The private folder of one run: its key, and blocks and shards between trips.

Blocks and shards are written once and read once per trip; only messages go through shuffles, which costs a third
of the time and a quarter of the memory of sending the state along. Files appear by rename, so a reader never
sees half a file, and every writer writes the same bytes for the same name, so retries are harmless. On S3 an object
appears whole by itself, under its own name.

The folder holds the run's key, exact sums and unreleased items. It is readable by its owner only (on a local
disk and on HDFS; on S3 as the bucket's policy says) and is removed at the end of the run, also after a failure.
All of it passes through `RunStore`, which encrypts it where the run says so (`dpbeam.engine.seal`).
"""

from __future__ import annotations

import contextlib
import functools
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from dpbeam.accounting.arguments import file_path, instance, truth
from dpbeam.disk import BEING_WRITTEN, naming_file
from dpbeam.engine.beam import owner
from dpbeam.engine.beam.receipts import check_receipts
from dpbeam.engine.seal import Seal, unwrap, wrap
from dpbeam.errors import InputError, StoreError, UnavailableError, complain
from dpbeam.kernels.columns import Columns, Encodable, decode, encode
from dpbeam.kernels.kept import KeptItems
from dpbeam.randomness import Once, RunKey
from dpbeam.storage import FileSystems, files
from dpbeam.storage.files import NotOnceError, Put

_BOUND, _WRITER = "bound-", "writer of "
_OF_KEY = f"{_BOUND}{_WRITER}{owner.KEY}."  # who writes the key, which is the first of the other files
_INSECURE = b"NOT PRIVATE: fixed test key\n"


class _KeptHere:
    """What a run keeps in the memory of this process: messages by name, each until it is taken, and items."""

    def __init__(self) -> None:
        self.messages: dict[str, Any] = {}
        self.items = KeptItems()


_kept_by_run: dict[str, _KeptHere] = {}  # of every run of this process


class RunStore:
    """Reads and writes named columns in a run's folder; picklable, holds the path and how messages are kept.

    Args:
      encrypted: all files but that with the run's key are. It is said here, not by the folder: who can write there
        must not be able to turn it off.
      durable: a file of this machine is on its disk before it has its name, and `flush` keeps the names. A run that
        nobody goes on with after a power cut does not pay for that.

    Attributes:
      in_memory: all steps are made in this process, which has room for all messages at once: none is written. To be
        set before a graph is run, whose steps take a copy.
      where: the path as a PCollection, where the pipeline's first stage makes the folder (`run_folder`).
    """

    where: Any = None

    def __init__(self, path: str, *, encrypted: bool = False, durable: bool = False):
        self.path = path
        self.encrypted = encrypted
        self.durable = durable
        self.in_memory = False

    def __getstate__(self) -> dict[str, Any]:
        """Of a stage, which hears from the engine where the folder lies."""
        return {**vars(self), "where": None}

    def _seal(self, name: str) -> Seal | None:
        if not self.encrypted or name == owner.KEY:
            return None
        return _seal_of(self.path)

    @property
    def is_near(self) -> bool:
        """Whether a file costs no round trip to a server."""
        return FileSystems.at(self.path).is_near

    @contextlib.contextmanager
    def create(self, name: str) -> Iterator[NewFile]:
        """A file that appears whole at the end of the context, or not at all; replaces an earlier one.

        Nothing is made if nothing is written.

        Raises:
          OSError: the folder is gone, as after the end of the run: a late worker must not bring it back.
        """
        new = NewFile(self, name)
        try:
            yield new
            new.close()
        except BaseException:
            new.remove()
            raise

    def flush(self) -> None:
        """What a durable run has written so far outlives a power cut. Raises OSError."""
        if self.durable:
            FileSystems.flush(self.path, above=True)

    def write_bytes(self, name: str, data: bytes) -> None:
        """Write a file so that it appears whole or not at all; replaces an earlier one.

        Raises:
          OSError: as for `create`.
        """
        with self.create(name) as file:
            file.write(data)

    def bind(self, place: str, digest: bytes) -> bool:
        """Whether a place is bound to this digest; the first call for a place binds it, for good.

        Of several calls at once with different digests at most one returns true, on every store that lists what is
        there: where it is not sure that a file is made once (`Files.sure_once`), every digest is a file of its own, and
        who has written one looks afterwards whether there are others.

        Raises:
          OSError: as for `create`, or the store does not answer: nothing may be drawn then.
          UnavailableError: its listing lags behind, so it cannot tell.
        """
        name = f"{_BOUND}{place}"
        if FileSystems.at(self.path).sure_once:
            with contextlib.suppress(NotOnceError):
                self._put_once(name, digest)
                return self.read_bytes(name) == digest
        own = f"{name}.{digest.hex()}"
        self.write_bytes(own, digest)
        there = self.names(f"{name}.")
        if own not in there:
            raise UnavailableError(
                f"{self.path}: the store does not list yet what was just written; start again when it does"
            )
        return there == [own]

    def write_once(self, name: str, data: bytes) -> None:
        """Write a file that appears whole, unless it is there: of several attempts at once, one writes it.

        Raises:
          OSError: the store does not answer.
          UnavailableError: another attempt writes it just now, on a store that cannot make a file once.
        """
        try:
            self._put_once(name, data)
        except NotOnceError:
            if not self.bind(f"{_WRITER}{name}", uuid.uuid4().bytes):
                raise UnavailableError(f"{self.path}: another attempt makes the file '{name}'") from None
            self.write_bytes(name, data)

    def _put_once(self, name: str, data: bytes) -> None:
        """Write a file that appears whole, unless it is there. Raises NotOnceError, OSError."""
        seal = self._seal(name)
        stored = data if seal is None else b"".join(seal.pieces(name, 0, data))
        FileSystems.put_once(FileSystems.join(self.path, name), stored, durable=self.durable)

    def hand_over(self, message: Any) -> str:
        """Keep a message in the memory of this process for one who asks by the returned name."""
        name = uuid.uuid4().hex
        self._kept_here.messages[name] = message
        return name

    def take(self, name: str) -> Any:
        """What was handed over under this name, and is kept no longer.

        Raises:
          RuntimeError: it was taken before: a step made again would draw noise that was drawn already.
        """
        kept = _kept_by_run.get(self.path)
        message = None if kept is None else kept.messages.pop(name, None)
        if message is None:
            raise RuntimeError("a message that lay in memory was taken before, or by another process")
        return message

    @property
    def kept_items(self) -> KeptItems | None:
        """Where items stay in the memory of this process until the run ends; None where messages carry them."""
        return self._kept_here.items if self.in_memory else None

    @property
    def _kept_here(self) -> _KeptHere:
        """The one of this run: of threads that ask for it first at once, all get that of one of them."""
        return _kept_by_run.get(self.path) or _kept_by_run.setdefault(self.path, _KeptHere())

    @property
    def has_key(self) -> bool:
        """Whether the key of the run is there: it is written first, and the first to go when the folder is removed."""
        return self.exists(owner.KEY)

    def exists(self, name: str) -> bool:
        """Whether a file is there."""
        return FileSystems.exists(FileSystems.join(self.path, name))

    def names(self, stem: str) -> list[str]:
        """Names of the files that begin with `stem`, of whole ones; none where the folder is gone."""
        paths = FileSystems.list_prefix(FileSystems.join(self.path, stem))
        names = [FileSystems.split(path)[1] for path in paths]
        return [name for name in names if BEING_WRITTEN not in name]

    def remove(self, names: Iterable[str]) -> None:
        """Delete files; those that are gone already do not matter."""
        with contextlib.suppress(OSError):  # it deletes what it can
            FileSystems.delete([FileSystems.join(self.path, name) for name in names])

    def read_bytes(self, name: str) -> bytes:
        """A file that was written at once.

        Raises:
          OSError: it is not there, or not what was written.
        """
        seal = self._seal(name)
        data = FileSystems.read(FileSystems.join(self.path, name))
        return data if seal is None else seal.open(name, 0, data)

    def read_range(self, name: str, offset: int, size: int) -> bytes:
        """What one `NewFile.write` wrote, by its place: bytes offset to offset + size of the file.

        Raises:
          OSError: the file is gone, ends before, or is not what was written.
        """
        seal = self._seal(name)
        data = FileSystems.read_range(FileSystems.join(self.path, name), offset, size)
        return data if seal is None else seal.open(name, offset, data)

    def write(self, name: str, columns: Encodable) -> None:
        """Write columns as a file."""
        self.write_bytes(name, encode(columns))

    def read(self, name: str, packed: Callable[[str], bool] | None = None) -> Columns:
        """The columns of a file; for `packed` see `decode`."""
        return decode(self.read_bytes(name), packed)

    def run_key(self) -> RunKey:
        """The key of the run.

        Raises:
          InputError: the folder is encrypted, and the environment of this process has not the folder key.
        """
        data = self.read_bytes(owner.KEY)
        if self.encrypted:
            data = unwrap(FileSystems.split(self.path)[1], data)
        insecure = data.startswith(_INSECURE)
        # It has a folder, and so no run may be begun with it.
        return RunKey(data[len(_INSECURE) :] if insecure else data, insecure=insecure)


@functools.lru_cache(maxsize=4)
def _seal_of(path: str) -> Seal:
    """Of an encrypted folder, kept for the other stages of this worker."""
    name = FileSystems.split(path)[1]
    place = "" if name.startswith(owner.RUN_FOLDER) else name  # parts of a run share its key
    return Seal(RunStore(path, encrypted=True).run_key(), place)


class NewFile:
    """A file of a run's folder that is being written: made at the first write, whole when it is closed."""

    def __init__(self, store: RunStore, name: str):
        self._store, self._name = store, name
        self._path = FileSystems.join(store.path, name)
        self._seal = store._seal(name)
        self._file: files.NewFile | None = None
        self._size = 0

    def write(self, data: bytes) -> tuple[int, int]:
        """Append; returns where the data lie: their offset, and how many bytes of the file they take."""
        if self._file is None:
            how = Put(
                make_folder=False,
                beside=None if self._name.startswith((owner.KEY, _OF_KEY)) else owner.KEY,
                private=True,
                durable=self._store.durable,
                same=True,
            )
            self._file = FileSystems.put(self._path, how)
        begin = self._size
        pieces = (data,) if self._seal is None else self._seal.pieces(self._name, begin, data)
        with naming_file(self._path):
            for piece in pieces:
                self._file.write(piece)
                self._size += len(piece)
        return begin, self._size - begin

    def close(self) -> None:
        """Make it appear, if anything was written. Raises OSError."""
        if self._file is not None:
            with naming_file(self._path):
                self._file.close()

    def remove(self) -> None:
        """Drop what was written; harmless after `close`."""
        if self._file is not None:
            self._file.abort()


class RunFolder:
    """Creates a run's private folder and removes it at the end.

    Use as a context manager around the pipeline's run:

        with RunFolder(temp_location) as run, beam.Pipeline(options=options) as pipeline:
            released = pipeline | Read(...) | SelectPartitions(config, run=run)

    Args:
      temp_location: a folder that every worker can reach, on any Beam filesystem.
      key: the run's key; default a fresh one from the operating system. One that has served a run, or was made from
        bytes, is refused.
      encrypt: encrypt the folder, under the key in the variable DPBEAM_FOLDER_KEY of launcher and workers
        (`dpbeam.engine.seal`).
      durable: a run goes on from its checkpoint after a power cut too, where the folder is of this machine; each of its
        files then waits for the disk.

    Raises:
      InputError: `encrypt`, and there is no such key.
      ValueError: the key may have served a run.
    """

    _rows: int | None  # of the result, once it is known to be whole

    def __init__(
        self, temp_location: str, key: RunKey | None = None, *, encrypt: bool = False, durable: bool = False
    ):
        truth("encrypt", encrypt)
        truth("durable", durable)
        file_path("temp_location", temp_location)
        key = instance("key", key, RunKey, optional=True) or RunKey.fresh()
        key.spend()
        self._make(temp_location, owner.RUN_FOLDER, key, encrypt, durable)

    def _make(self, place: str, stem: str, key: RunKey, encrypt: bool, durable: bool = False) -> None:
        self._once, self._rows = Once(), None
        self.insecure_key = key.insecure
        name = f"{stem}{uuid.uuid4().hex}"
        kept = key_file(key)
        if encrypt:
            kept = wrap(name, kept)
        self.path = FileSystems.join(place, name)
        self.store = RunStore(self.path, encrypted=encrypt, durable=durable)
        FileSystems.make_folder(self.path, private=True)
        try:
            owner.mark(self.path)
            self.store.write_bytes(owner.KEY, kept)
        except BaseException:
            with contextlib.suppress(OSError):
                self.remove()
            raise

    @classmethod
    def of_part(cls, place: str, stem: str, key: RunKey, *, encrypt: bool) -> RunFolder:
        """A folder for one part of a run in parts, such as a night of a series, below the run's own.

        Who asks for it sees to it that what is noisy of a part is shown once, for one set of data.

        Args:
          place: the run's folder; stem: how the name begins.
          key: of the run.
        """
        folder = cls.__new__(cls)
        folder._make(place, stem, key, encrypt)
        return folder

    @classmethod
    def resume(cls, path: str, *, encrypted: bool = False, durable: bool = False) -> RunFolder:
        """The folder of a run that did not come to its end, with its key.

        It goes on with the data and the settings that it began with: others are refused before noise is drawn for them.

        Raises:
          InputError: it is no run's folder.
          UnavailableError: its process lives (`leave` says that it is done with it).
        """
        if owner.state_of(path) == "alive":
            raise UnavailableError(f"'{path}' is the private folder of a run that is still going")
        folder = cls.__new__(cls)
        folder._once, folder._rows = Once(), None
        folder.path, folder.store = path, RunStore(path, encrypted=encrypted, durable=durable)
        try:
            folder.insecure_key = folder.store.run_key().insecure
        except InputError:
            raise
        except (OSError, ValueError):
            raise StoreError(f"'{path}' is not the private folder of a run") from None
        owner.mark(path)  # it is this process's now
        return folder

    def check(self) -> int:
        """Make sure that nothing of the run was lost on its way; the number of rows of its result.

        To be asked once its pipeline has come to its end, and before its result goes anywhere; the end of the context
        asks too. Elements that the pipeline itself brings are known from the blocks of their users on; those that
        `dpbeam.io` reads are known from the files on.

        Raises:
          RunnerError: something is missing: the pipeline has not run to its end, or its runner has lost it.
        """
        if self._rows is None:
            self._rows = check_receipts(self.store)
        return self._rows

    def leave(self) -> None:
        """Let another run, also of this process, go on with this one, which has failed; the folder stays."""
        owner.unmark(self.path)

    def claim(self) -> RunStore:
        """The store, for the one transform that this folder serves.

        Raises:
          ValueError: it serves another already, or may: in the process that this one was forked from; both would draw
            the same noise, and the difference of their weights would be exact.
        """
        if not self._once.take():
            raise ValueError(
                "this RunFolder serves a transform already, or was made before this process was forked: take one "
                "RunFolder for each"
            )
        return self.store

    def remove(self) -> None:
        """Delete the folder with everything in it; harmless if it is gone."""
        remove_run(self.path)

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, failure: type[BaseException] | None, *exc_info: object) -> None:
        try:
            if failure is None:
                self.check()
        finally:
            self.remove()


def key_file(key: RunKey) -> bytes:
    """What the file of a run's key holds, but for its encryption."""
    return (_INSECURE if key.insecure else b"") + key.secret_bytes()


def remove_run(path: str) -> None:
    """Delete a run's folder with everything in it; harmless if it is gone."""
    _kept_by_run.pop(path, None)
    rest = FileSystems.remove_folder(path, first=owner.KEY, last=owner.FILE)
    if rest is not None:
        complain(f"dpbeam: warning: private data of a run could not be removed; remove what is left: {rest}")
