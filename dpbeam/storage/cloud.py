"""Objects of S3, Google and Azure by obstore, whose client in Rust is one for the three.

An object appears when its upload is complete, and not before: a writer that fails leaves nothing that a reader sees.
Renaming is a copy and a delete, so what must appear at once is written under its own name, or named by a ledger.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
import uuid
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from dpbeam.storage.files import PLAIN, UNAVAILABLE, Put
from dpbeam.storage.objects import ObjectFiles
from dpbeam.storage.remote import (
    ATTEMPTS,
    LONGEST_WAIT,
    PART,
    Upload,
    check_beside,
    patiently,
    shared_client,
    variables,
)

#: Bytes of a part of an upload; 10,000 parts make an object.
UPLOAD_PART = 2 * PART
_PARTS_AT_ONCE = 4
#: Seconds before a request is first repeated, until it is given up, and until a server that says nothing is.
FIRST_WAIT, PATIENCE, ANSWER = 0.5, 60.0, 60.0
#: Name of an upload's own number in the metadata of its object.
_MARK = "dpbeamupload"

#: What obstore's errors say of an answer that refuses: they have no fields.
_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>|\(code: (\w+)\)")
#: Where clients ask for a machine's role when they know no other credentials.
_METADATA = ("169.254.169.254", "metadata.google.internal")

ResultT = TypeVar("ResultT")


class CloudFiles(ObjectFiles):
    """Objects of a bucket by their URL.

    Attributes:
      scheme, title: of its URLs and in words, where a URL is scheme://BUCKET/NAME.
      extra: of the package, with what the client needs.
      settings: what the names of the store's own variables begin with.
      own_flags: those of Beam's flags that count.
      copied_at_once: the most bytes that the store copies by one request.
      credentials: what to do where there are none.
    """

    scheme = title = extra = settings = credentials = ""
    own_flags: tuple[str, ...] = ()
    copied_at_once = 0
    deletes_at_once = 8

    def parts(self, url: str) -> tuple[tuple[str, ...], str]:
        """(bucket, with what else names it, and key) of a URL. Raises OSError."""
        before = f"{self.scheme}://"
        bucket, _, key = url.removeprefix(before).partition("/")
        if not url.startswith(before) or not bucket or "@" in bucket:
            raise OSError(errno.EINVAL, f"a path on {self.title} is {before}BUCKET/NAME")
        return (bucket,), key

    @abstractmethod
    def client(self, *bucket: str) -> Any:
        """A store of obstore's for a bucket. Raises ImportError, ValueError, OSError."""

    @property
    def attempts(self) -> int:
        """How often a request is tried."""
        return ATTEMPTS

    def options(self, endpoint: str | None, **more: Any) -> dict[str, Any]:
        """How clients wait for a store."""
        return {
            "client_options": {
                "allow_http": (endpoint or "").startswith("http:"),
                "connect_timeout": timedelta(seconds=10),
                "read_timeout": timedelta(seconds=ANSWER),
                "timeout": timedelta(minutes=15),
                **more,
            },
            "retry_config": {
                "max_retries": self.attempts - 1,
                "retry_timeout": timedelta(seconds=PATIENCE),
                "backoff": {
                    "init_backoff": timedelta(seconds=FIRST_WAIT),
                    "max_backoff": timedelta(seconds=LONGEST_WAIT),
                    "base": 2,
                },
            },
        }

    def at(self, url: str) -> tuple[Any, str, str]:
        """(client, key, the URL's part before it); the client is one for each process and its settings."""
        bucket, key = self.parts(url)
        flags = tuple(self.flags.get(name) for name in self.own_flags)

        def make() -> Any:
            _begin()
            try:
                return self.client(*bucket)
            except ImportError:
                text = f"{url.partition(':')[0]}:// needs the extra dpbeam[{self.extra}]; install it"
                raise OSError(errno.ENOSYS, text, url) from None

        store = self.ask(
            url,
            lambda: shared_client(
                (type(self), *bucket, self.attempts, *flags, variables(self.settings)), make
            ),
        )
        return store, key, url[: len(url) - len(key)].rstrip("/")

    def ask(self, path: str, request: Callable[[], ResultT]) -> ResultT:
        """The answer to a request. Raises OSErrors of few words.

        The client itself repeats a request that may be repeated whatever became of it; the others are repeated here,
        and so are those whose answers broke off.
        """
        end = time.monotonic() + PATIENCE
        try:
            return patiently(
                request,
                lambda error: _is_lost(error) and time.monotonic() < end,
                attempts=self.attempts,
                first=FIRST_WAIT,
            )
        except Exception as error:
            raise self._as_os_error(error, path) from None

    def _as_os_error(self, error: Exception, path: str) -> OSError:
        text = str(error)
        if "no credentials" in text or any(host in text for host in _METADATA):
            return PermissionError(errno.EACCES, f"no credentials: {self.credentials}", path)
        status, code = _STATUS.search(text), _CODE.search(text)
        if status or code:
            number = status[1] if status else ""
            return _refused(number, (code and (code[1] or code[2])) or number, path)
        if "redirect without LOCATION" in text:
            return OSError(errno.EIO, "the bucket is in another region than the one that is set", path)
        if _is_lost(error) or isinstance(error, TimeoutError):
            return OSError(UNAVAILABLE, "the store does not answer", path)
        if isinstance(error, OSError) and error.errno:
            return error
        return OSError(errno.EINVAL, f"the store cannot be asked: {text.partition(chr(10))[0][:200]}", path)

    def make_folder(self, path: str, *, private: bool = False) -> None:
        self.parts(path)

    def entries(self, prefix: str) -> Iterator[tuple[str, int]]:
        store, key, before = self.at(prefix)
        import obstore

        folder = key.rpartition("/")[0]  # its listings are those of folders
        for entry in self.ask(prefix, lambda: [e for batch in obstore.list(store, folder) for e in batch]):
            path = f"{before}/{entry['path']}"
            if path.startswith(prefix) and (entry["size"] or not self._marks_a_folder(store, entry["path"])):
                yield path, entry["size"]

    def _marks_a_folder(self, store: Any, key: str) -> bool:
        """Whether an empty object is there for a folder, as consoles and Hadoop leave them: `key` then ends with `/`,
        which the client takes away, or its metadata say so.
        """
        import obstore

        try:
            answer = self.ask(key, lambda: obstore.get(store, key))
        except FileNotFoundError:
            return True
        return dict(answer.attributes).get("hdi_isfolder") == "true"

    def subfolders(self, path: str) -> list[str]:
        """The folders in a folder."""
        store, key, before = self.at(path)
        import obstore

        folder = key.rstrip("/")
        listed = self.ask(path, lambda: obstore.list_with_delimiter(store, folder))
        return [f"{before}/{name}" for name in listed["common_prefixes"]]

    def folders(self, parent: str, stem: str, file: str) -> list[str]:
        return sorted(path for path in self.subfolders(parent) if self.split(path)[1].startswith(stem))

    def state(self, path: str) -> tuple[int, object]:
        store, key, _ = self.at(path)
        import obstore

        about = self.ask(path, lambda: obstore.head(store, key))
        return about["size"], about["e_tag"]

    def part(self, path: str, start: int, end: int, version: object) -> bytes:
        store, key, _ = self.at(path)
        import obstore

        options: Any = {"range": (start, end), **({} if version is None else {"if_match": version})}
        data = self.ask(path, lambda: bytes(obstore.get(store, key, options=options).bytes()))
        if len(data) < end - start:
            raise OSError(errno.EIO, f"ends {end - start - len(data)} bytes too early", path)
        return data

    def put_object(self, path: str, data: bytes, *, once: bool) -> None:
        store, key, _ = self.at(path)
        import obstore

        mode: Any = "create" if once else "overwrite"
        self.ask(path, lambda: obstore.put(store, key, data, mode=mode, use_multipart=False))

    def put(self, path: str, how: Put = PLAIN) -> Upload:
        return _Writer(self, path, how)

    def copy(self, source: str, target: str) -> None:
        store, key, bucket = self.at(source)
        import obstore

        _, name, other = self.at(target)
        if bucket == other and self.copied_at_once and self.state(source)[0] <= self.copied_at_once:
            self.ask(source, lambda: obstore.copy(store, key, name))
        else:
            super().copy(source, target)

    def delete_one(self, path: str) -> None:
        self._delete(path, [path])

    def delete(self, paths: Sequence[str]) -> None:
        buckets: dict[tuple[str, ...], list[str]] = {}
        for path in paths:
            buckets.setdefault(self.parts(path)[0], []).append(path)
        for inside in buckets.values():
            try:
                self._delete(self.at(inside[0])[2], inside)
            except FileNotFoundError:  # Azure and Google say so of one of them, and nothing of the others
                super().delete(inside)

    def _delete(self, path: str, paths: Sequence[str]) -> None:
        store = self.at(path)[0]
        import obstore

        keys = [self.parts(path)[1] for path in paths]
        self.ask(path, lambda: obstore.delete(store, keys))


class _Writer(Upload):
    """An object that appears when it is closed: by one request, or of parts that the client sends meanwhile."""

    def __init__(self, files: CloudFiles, path: str, how: Put):
        super().__init__()
        self._files, self._path, self._beside = files, path, how.beside
        self._store, self._key, _ = files.at(path)
        self._buffer = bytearray()
        self._upload: Any = None
        self._mark = uuid.uuid4().hex

    def write(self, data: Any) -> int:
        if self.closed:
            raise ValueError("the file is closed")
        self._buffer += data
        if len(self._buffer) >= UPLOAD_PART:
            self._send()
        return len(data)

    def _send(self) -> None:
        data, self._buffer = bytes(self._buffer), bytearray()
        if self._upload is None:
            self._upload = self._files.ask(self._path, lambda: self._begun(data))
        else:
            with self._errors():
                self._upload.write(data)

    def _begun(self, data: bytes) -> Any:
        import obstore

        upload = obstore.open_writer(
            self._store,
            self._key,
            attributes={_MARK: self._mark},
            buffer_size=UPLOAD_PART,
            max_concurrency=_PARTS_AT_ONCE,
        )
        upload.write(data)
        return upload

    def _finish(self) -> None:
        check_beside(self._files, self._path, self._beside)
        if self._upload is None:
            self._files.put_object(self._path, bytes(self._buffer), once=False)
            return
        if self._buffer:
            self._send()
        upload, self._upload = self._upload, None
        try:
            with self._errors():
                upload.close()
        except OSError as error:
            # That there is no such upload may mean that a request has completed it whose answer was lost.
            if error.errno == UNAVAILABLE or not self._is_there():
                raise

    def _is_there(self) -> bool:
        import obstore

        with contextlib.suppress(OSError):
            answer = self._files.ask(self._path, lambda: obstore.get(self._store, self._key))
            return dict(answer.attributes).get(_MARK) == self._mark
        return False

    def _drop(self) -> None:
        self._buffer = bytearray()
        if self._upload is not None:
            upload, self._upload = self._upload, None
            with contextlib.suppress(Exception):
                upload.__exit__(InterruptedError, InterruptedError(), None)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise self._files._as_os_error(error, self._path) from None


def _is_lost(error: Exception) -> bool:
    """Whether a request has no answer, or only half of one."""
    text = str(error)
    return not _STATUS.search(text) and ("Error performing" in text or "body" in text)


def _refused(status: str, code: str, path: str) -> OSError:
    """What an answer of a store that is no success means; `code` is the store's own word for it."""
    if code in ("NoSuchBucket", "ContainerNotFound"):
        return OSError(errno.ENXIO, "no such bucket" if code == "NoSuchBucket" else "no such container", path)
    if code == "BlobAlreadyExists":
        return FileExistsError(errno.EEXIST, "the object exists", path)
    if "404" in (status, code):
        return FileNotFoundError(errno.ENOENT, "no such object", path)
    if status in ("401", "403") or code == "AccessDenied":
        return PermissionError(errno.EACCES, f"the store denies access ({code})", path)
    if status == "412":
        return OSError(errno.ESTALE, "the object was replaced while it was read", path)
    if status == "416":
        return OSError(errno.EIO, "the object is shorter than expected", path)
    # The last is for two who make one object at once.
    passes = status in ("408", "429") or status >= "500" or code == "ConditionalRequestConflict"
    answer = status if code == status else f"{status} {code}".lstrip()
    return OSError(UNAVAILABLE if passes else errno.EIO, f"the store answers {answer}", path)


_process: int | None = None


def _begin() -> None:
    """The client's threads are one set for all of a process, and a forked one would wait for them for ever."""
    global _process
    _process = _process or os.getpid()
    if _process != os.getpid():
        raise OSError(
            errno.ENOTSUP, "a process that was forked from one that has used a store cannot use one itself"
        )
