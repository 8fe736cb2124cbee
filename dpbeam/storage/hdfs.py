"""Files on HDFS by its WebHDFS service (or HttpFS), with the client `hdfs`.

`hdfs://HOST:PORT/path` names the name node and the port of its web service (9870 where none is given). With Beam's
flags `--hdfs_host`, `--hdfs_port` and `--hdfs_user` the node is theirs and the URL is `hdfs://path`, or
`hdfs://server/path` with `--hdfs_full_urls`, as for Beam. The user is otherwise that of `HADOOP_USER_NAME` or of the
process. Clusters with Kerberos are not served.
"""

from __future__ import annotations

import contextlib
import errno
import getpass
import os
import posixpath
import queue
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from dpbeam.disk import BEING_WRITTEN
from dpbeam.storage.files import PLAIN, UNAVAILABLE, NewFile, Put
from dpbeam.storage.remote import PART, RemoteFiles, Upload, check_beside, patiently, shared_client

_PORT = 9870
_SECONDS = 60.0
_WAITING = 4  # parts of a stream that the store is to take


class HdfsFiles(RemoteFiles):
    """Files and folders below `hdfs://`; a rename onto a file that is there is refused."""

    has_folders = sure_once = True

    def _at(self, url: str) -> tuple[Any, str, str]:
        """(client, path, the URL's part before it)."""
        if not url.startswith("hdfs://"):
            raise OSError(errno.EINVAL, "a path on HDFS is hdfs://HOST:PORT/NAME")
        server, _, rest = url.removeprefix("hdfs://").partition("/")
        host, port = self.flags.get("hdfs_host"), self.flags.get("hdfs_port") or _PORT
        user = self.flags.get("hdfs_user") or os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
        if host is not None and not self.flags.get("hdfs_full_urls"):
            path = posixpath.normpath(f"/{server}/{rest}")
            return _client(f"{host}:{port}", user), path, "hdfs:/"
        address = server if host is None else f"{host}:{port}"
        if not address or "@" in address:
            raise OSError(errno.EINVAL, "a path on HDFS is hdfs://HOST:PORT/NAME")
        address += "" if ":" in address else f":{_PORT}"
        return _client(address, user), posixpath.normpath(f"/{rest}"), f"hdfs://{server}"

    def _ask(self, path: str, request: Callable[[Any, str], Any]) -> Any:
        """The answer to a request of (client, path), which is repeated after faults that pass. Raises OSError."""
        client, name, _ = self._at(path)
        with _as_os_errors(path):
            return patiently(lambda: request(client, name), _passes)

    def make_folder(self, path: str, *, private: bool = False) -> None:
        if not private:
            self._ask(path, lambda client, name: client.makedirs(name))
            return
        # What is missing above gets the permission of the request, and may hold what others are to read.
        self._ask(path, lambda client, name: client.makedirs(posixpath.dirname(name)))
        self._ask(path, lambda client, name: client.makedirs(name, permission="700"))

    def _children(self, folder: str) -> list[tuple[str, dict[str, Any]]]:
        """(URL, state) of what lies in a folder; nothing where there is none."""
        _, name, before = self._at(folder)
        try:
            entries = self._ask(folder, lambda client, name: client.list(name, status=True))
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [(before + posixpath.join(name, child), state) for child, state in entries]

    def entries(self, prefix: str) -> Iterator[tuple[str, int]]:
        for url, state in self._children(prefix.rpartition("/")[0]):
            if state["type"] == "FILE":
                yield url, state["length"]

    def entries_below(self, prefix: str) -> Iterator[tuple[str, int]]:
        for url, state in self._children(prefix.rpartition("/")[0]):
            if state["type"] == "FILE":
                yield url, state["length"]
            else:
                yield from self.entries_below(f"{url}/")

    def named(self, url: str) -> str:
        _, name, before = self._at(url)
        return before + name + ("/" if url.endswith("/") else "")

    def folders(self, parent: str, stem: str, file: str) -> list[str]:
        entries = ((url, state["type"]) for url, state in self._children(parent))
        return sorted(
            url for url, kind in entries if kind == "DIRECTORY" and self.split(url)[1].startswith(stem)
        )

    def remove_folder(self, path: str, *, first: str = "", last: str = "") -> str | None:
        if first:
            self.delete([self.join(path, first)])
        self.delete([path])
        return None

    def exists(self, path: str) -> bool:
        with contextlib.suppress(IsADirectoryError):
            return super().exists(path)
        return True

    def checksum(self, path: str) -> str:
        return str(self._ask(path, lambda client, name: client.checksum(name))["bytes"])

    def state(self, path: str) -> tuple[int, object]:
        # Not `strict=False`: that takes a store that does not answer for one without the file.
        state = self._ask(path, lambda client, name: client.status(name))
        if state["type"] != "FILE":
            raise IsADirectoryError(errno.EISDIR, "is a folder", path)
        return state["length"], state.get("fileId")  # a file that takes its place has another

    def part(self, path: str, start: int, end: int, version: object) -> bytes:
        client, name, _ = self._at(path)

        def fetch() -> bytes:
            with client.read(name, offset=start, length=end - start) as source:
                data = source.read()
            if len(data) < end - start:
                # A data node that dies sends less; the file itself may also be that short.
                raise _TooShort(errno.EIO, f"ends {end - start - len(data)} bytes too early", path)
            return data

        with _as_os_errors(path):
            data = patiently(fetch, lambda error: isinstance(error, _TooShort) or _passes(error))
        if version is not None and self.state(path)[1] != version:
            raise OSError(errno.ESTALE, "the file was replaced while it was read", path)
        return data

    def put(self, path: str, how: Put = PLAIN) -> NewFile:
        return _Renamed(self, path, how)

    def create(self, path: str) -> Writer:
        """A new file, which others may see before it is whole. Raises OSError."""
        client, name, _ = self._at(path)
        return Writer(client, name, path)

    def _make(self, path: str, data: bytes) -> None:
        written = f"{path}{BEING_WRITTEN}{uuid.uuid4().hex}"
        try:
            with self.create(written) as file:
                file.write(data)
            self.move(written, path)
        except OSError:
            with contextlib.suppress(OSError):
                self.delete_one(written)
            if self.exists(path):
                raise FileExistsError(errno.EEXIST, "the file exists", path) from None
            raise

    def move(self, source: str, target: str) -> None:
        """Rename; raises OSError where the target is there."""
        self._rename(source, target, lambda client, old, new: client.rename(old, new))

    def rename(self, source: str, target: str) -> None:
        try:
            self._rename(source, target, _replace)
        except OSError:  # HttpFS does not replace
            try:
                self.move(source, target)
            except OSError:
                if not self.exists(source) or not self.exists(target):
                    raise
                self.delete([target])
                self.move(source, target)

    def _rename(self, source: str, target: str, request: Callable[[Any, str, str], None]) -> None:
        import hdfs

        _, new, _ = self._at(target)
        asked = False

        def rename(client: Any, old: str) -> None:
            nonlocal asked
            again, asked = asked, True
            try:
                request(client, old, new)
            except hdfs.HdfsError as error:
                if not again or not (_refuses(error) or error.exception == "FileNotFoundException"):
                    raise
                # An earlier request may be done, and its answer lost.
                if client.status(old, strict=False) or not client.status(new, strict=False):
                    raise

        self._ask(source, rename)

    def delete_one(self, path: str) -> None:
        self._ask(path, lambda client, name: client.delete(name, recursive=True))


def _replace(client: Any, old: str, new: str) -> None:
    """Rename in one step, also onto a file that is there."""
    import hdfs

    answer = client._rename(old, destination=new, renameoptions="OVERWRITE")
    if answer.content and not answer.json().get("boolean", True):
        raise hdfs.HdfsError("Unable to rename %r to %r.", old, new)


class _TooShort(OSError):
    """An answer ended early."""


def _flow(waiting: queue.Queue[bytes | None], dropped: threading.Event) -> Iterator[bytes]:
    while (data := waiting.get()) is not None and not dropped.is_set():
        yield data
    if dropped.is_set():
        raise ConnectionAbortedError("the writer gave up")  # an end would look like that of the file


class Writer(Upload):
    """A file being written: small ones by one request that may be repeated, large ones as a stream."""

    def __init__(self, client: Any, name: str, path: str):
        super().__init__()
        self._client, self._name, self._path = client, name, path
        self._buffer = bytearray()
        self._waiting: queue.Queue[bytes | None] = queue.Queue(_WAITING)
        self._pool: ThreadPoolExecutor | None = None
        self._done: Future | None = None
        self._dropped = threading.Event()

    def write(self, data: Any) -> int:
        """Add bytes, and send parts that are full; how many."""
        if self.closed:
            raise ValueError("the file is closed")
        self._buffer += data
        if len(self._buffer) >= PART:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(1)
                flow = _flow(self._waiting, self._dropped)
                self._done = self._pool.submit(self._client.write, self._name, flow, overwrite=True)
            self._put(bytes(self._buffer))
            self._buffer.clear()
        return len(data)

    def _finish(self) -> None:
        data = bytes(self._buffer)
        with _as_os_errors(self._path):
            if self._done is None:
                patiently(lambda: self._client.write(self._name, data, overwrite=True), _passes)
            else:
                if data:
                    self._put(data)
                self._put(None)
                self._done.result()
                self._done = None

    def _drop(self) -> None:
        # What is there stays, under a name that nobody reads.
        self._dropped.set()
        if self._pool is not None:
            with contextlib.suppress(queue.Full):
                self._waiting.put_nowait(None)
            self._pool.shutdown()

    def _put(self, data: bytes | None) -> None:
        """Hand data to the stream, of which few wait. Raises OSError if it has ended."""
        while self._done is not None:
            if self._done.done():
                with _as_os_errors(self._path):
                    self._done.result()
                raise OSError(errno.EIO, "the store ended the file early", self._path)
            with contextlib.suppress(queue.Full):
                self._waiting.put(data, timeout=1)
                return


class _Renamed(Upload):
    """A new file, which is renamed when it is whole: others see it while it is written."""

    def __init__(self, files: HdfsFiles, path: str, how: Put):
        super().__init__()
        self._files, self._path, self._how, self._renamed = files, path, how, False
        folder = how.temporary_in or files.split(path)[0]
        self._temporary = files.join(folder, f"{BEING_WRITTEN}{uuid.uuid4().hex}")
        self._inner = files.create(self._temporary)

    def write(self, data: Any) -> int:
        self._inner.write(data)
        return len(data)

    def _finish(self) -> None:
        self._inner.close()
        check_beside(self._files, self._path, self._how.beside)
        try:
            (self._files.move if self._how.same else self._files.rename)(self._temporary, self._path)
            self._renamed = True
        except OSError:
            if not self._how.same or not self._files.exists(self._path):
                raise

    def _drop(self) -> None:
        with contextlib.suppress(OSError):
            self._inner.abort()
        if not self._renamed:
            with contextlib.suppress(OSError):
                self._files.delete([self._temporary])


def _client(address: str, user: str) -> Any:
    try:
        import hdfs
        import requests
    except ImportError:
        raise OSError(errno.ENOSYS, "hdfs:// needs the extra dpbeam[hdfs]; install it") from None

    def make() -> Any:
        session = requests.Session()
        session.params = {"createparent": "false"}  # a late writer must not bring a removed folder back
        return hdfs.InsecureClient(f"http://{address}", user=user, timeout=_SECONDS, session=session)

    # Its session serves one thread.
    return shared_client(("hdfs", threading.get_ident(), address, user), make)


@contextlib.contextmanager
def _as_os_errors(path: str) -> Iterator[None]:
    """Turn the client's errors into OSErrors of few words."""
    import hdfs
    import requests

    try:
        yield
    except hdfs.HdfsError as error:
        kind, text = error.exception or "", _first_line(error.message)
        if kind == "FileNotFoundException":
            raise FileNotFoundError(errno.ENOENT, "no such file", path) from None
        if kind in ("AccessControlException", "SecurityException"):
            raise PermissionError(errno.EACCES, f"the store denies access: {text}", path) from None
        if "not a directory" in text:
            raise NotADirectoryError(errno.ENOTDIR, "is not a folder", path) from None
        raise OSError(
            UNAVAILABLE if _passes(error) else errno.EIO, f"the store answers: {text}", path
        ) from None
    except requests.RequestException as error:
        raise OSError(UNAVAILABLE, f"the store does not answer: {type(error).__name__}", path) from None


def _first_line(message: str | bytes) -> str:
    """Of what the client took from an answer, which it leaves in bytes where it is not WebHDFS's."""
    text = message.decode(errors="replace") if isinstance(message, bytes) else message
    return text.strip().split("\n")[0]


#: What a name node says while it starts or changes places, and a data node that has lost its name node.
_PASSING = frozenset(
    (
        "RetriableException",
        "StandbyException",
        "SafeModeException",
        "IOException",
        "EOFException",
        "ConnectException",
        "ConnectTimeoutException",
        "SocketException",
        "SocketTimeoutException",
    )
)


def _refuses(error: Any) -> bool:
    """Whether this is what the client makes of a rename that is answered with false."""
    return not error.exception and "Unable to rename" in str(error)  # its message may be bytes


def _passes(error: Exception) -> bool:
    """Whether a request may do better when repeated."""
    import hdfs
    import requests
    import urllib3

    if isinstance(error, hdfs.HdfsError):
        if not error.exception:
            return not _refuses(error)
        return error.exception in _PASSING and "not a directory" not in error.message
    return isinstance(error, (requests.RequestException, urllib3.exceptions.HTTPError))
