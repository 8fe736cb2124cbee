"""Files on S3 and on stores that speak its protocol, by boto3.

Credentials come from where boto3 looks for them (environment, profile, role of the machine) and from nowhere else: what
is given to Beam as a flag is kept and shown by the engine. Of Beam's flags `--s3_endpoint_url`, `--s3_region_name`,
`--s3_verify` and `--s3_disable_ssl` count, and reach the workers with the job.

An object appears when its upload is complete, and not before: a writer that fails leaves nothing that a reader sees.
Renaming is a copy and a delete, so what must appear at once is written under its own name, or named by a ledger.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, BinaryIO, cast

from apache_beam.io.filesystem import BeamIOError, FileMetadata

from dpbeam.storage.remote import ATTEMPTS, PART, UNAVAILABLE, RemoteFiles, Upload, patiently

_UPLOADS_AT_ONCE = 4
_PARTS_OF_A_SIZE = 2000  # then parts are twice as large: 10,000 at most make an object of 500 GB
_CONNECTIONS = 64
_MARK = "dpbeam-upload"

_clients: dict[object, Any] = {}
_lock = threading.Lock()


class S3Files(RemoteFiles):
    """Objects by `s3://bucket/key`; there are no folders."""

    appears_whole = True

    @classmethod
    def scheme(cls) -> str:
        return "dpbeam-s3"

    def has_dirs(self) -> bool:
        return False

    @property
    def s3(self) -> Any:
        """The client, one for each process and its settings."""
        names = ("s3_endpoint_url", "s3_region_name", "s3_verify", "s3_disable_ssl")
        values = {name: self.flags.get(name) for name in names}
        found = sorted(item for item in os.environ.items() if item[0].startswith("AWS_"))
        key = (os.getpid(), *values.values(), hash(tuple(found)))
        with _lock:
            if key not in _clients:
                _clients[key] = _client(**values)
            return _clients[key]

    def mkdirs(self, path: str) -> None:
        _parts_of(path)

    mkdirs_private = mkdirs

    def _list(self, dir_or_prefix: str) -> Iterator[FileMetadata]:
        bucket, key = _parts_of(dir_or_prefix)
        with _told(dir_or_prefix):
            pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=key)
            for entry in (entry for page in pages for entry in page.get("Contents", ())):
                if not entry["Key"].endswith("/"):  # marks of folders, as consoles leave them
                    changed = entry["LastModified"].timestamp()
                    yield FileMetadata(f"s3://{bucket}/{entry['Key']}", entry["Size"], changed)

    def folders(self, parent: str, stem: str) -> list[str]:
        bucket, key = _parts_of(self.join(parent, stem))
        with _told(parent):
            pages = self.s3.get_paginator("list_objects_v2").paginate(
                Bucket=bucket, Prefix=key, Delimiter="/"
            )
            found = [entry["Prefix"] for page in pages for entry in page.get("CommonPrefixes", ())]
        return sorted(f"s3://{bucket}/{name.rstrip('/')}" for name in found)

    def remove_folder(self, path: str) -> None:
        bucket, key = _parts_of(f"{path.rstrip('/')}/")
        self.delete([entry.path for entry in self._list(f"s3://{bucket}/{key}")])
        # Of writers that were killed: nobody sees them, and a rule of the bucket ends those that are left here.
        with contextlib.suppress(OSError), _told(path):
            pages = self.s3.get_paginator("list_multipart_uploads").paginate(Bucket=bucket, Prefix=key)
            for upload in (upload for page in pages for upload in page.get("Uploads", ())):
                name = {"Key": upload["Key"], "UploadId": upload["UploadId"]}
                self.s3.abort_multipart_upload(Bucket=bucket, **name)

    def _about(self, path: str) -> dict[str, Any]:
        bucket, key = _parts_of(path)
        with _told(path):
            return self.s3.head_object(Bucket=bucket, Key=key)

    def metadata(self, path: str) -> FileMetadata:
        found = self._about(path)
        return FileMetadata(path, found["ContentLength"], found["LastModified"].timestamp())

    def checksum(self, path: str) -> str:
        return str(self._about(path)["ETag"])

    def state(self, path: str) -> tuple[int, object]:
        found = self._about(path)
        return found["ContentLength"], found["ETag"]

    def part(self, path: str, start: int, end: int, version: object) -> bytes:
        bucket, key = _parts_of(path)
        same = {} if version is None else {"IfMatch": version}
        parts: list[bytes] = []

        def fetch() -> None:
            """Go on where the last attempt was cut off."""
            nonlocal start
            answer = self.s3.get_object(Bucket=bucket, Key=key, Range=f"bytes={start}-{end - 1}", **same)
            same.setdefault("IfMatch", answer["ETag"])
            with contextlib.closing(answer["Body"]) as body:
                for data in body.iter_chunks(1 << 20):
                    parts.append(data)
                    start += len(data)

        with _told(path):
            patiently(fetch, _is_cut_off)
        if start != end:
            raise OSError(errno.EIO, f"ends {end - start} bytes too early", path)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def create(self, path: str, mime_type: str = "", compression_type: str = "") -> BinaryIO:
        return cast(BinaryIO, Writer(self.s3, path))

    def _copy(self, source: str, target: str) -> None:
        from boto3.s3.transfer import TransferConfig

        bucket, key = _parts_of(source)
        to_bucket, to_key = _parts_of(target)
        # One request copies up to 5 GB.
        config = TransferConfig(multipart_threshold=4 << 30, multipart_chunksize=1 << 30)
        with _told(source):
            self.s3.copy({"Bucket": bucket, "Key": key}, to_bucket, to_key, Config=config)

    def _rename(self, source: str, target: str) -> None:
        self._copy(source, target)
        self.delete([source])

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects; harmless for those that are gone. Raises BeamIOError."""
        keys: dict[str, list[str]] = {}
        for path in paths:
            bucket, key = _parts_of(path)
            keys.setdefault(bucket, []).append(key)
        failed = {}
        for bucket, names in keys.items():
            for first in range(0, len(names), 1000):
                objects = [{"Key": name} for name in names[first : first + 1000]]
                with _told(f"s3://{bucket}"):
                    done = self.s3.delete_objects(Bucket=bucket, Delete={"Objects": objects, "Quiet": True})
                for error in done.get("Errors", ()):
                    name = f"s3://{bucket}/{error.get('Key')}"
                    failed[name] = OSError(errno.EIO, f"cannot be deleted: {error.get('Code')}", name)
        if failed:
            raise BeamIOError("delete failed", failed)


def _put_part(s3: Any, path: str, request: dict[str, Any]) -> dict[str, Any]:
    with _told(path):
        done = s3.upload_part(**request)
    return {"PartNumber": request["PartNumber"], "ETag": done["ETag"]}


class Writer(Upload):
    """An object that appears when it is closed, and not if it is aborted or left to the garbage."""

    def __init__(self, s3: Any, path: str):
        super().__init__()
        self._s3, self._path = s3, path
        self._bucket, self._key = _parts_of(path)
        self._buffer = bytearray()
        self._mark = uuid.uuid4().hex
        self._upload: str | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._waiting: deque[Future] = deque()
        self._sent: list[dict[str, Any]] = []
        self._count = 0

    def write(self, data: Any) -> int:
        if self.closed:
            raise ValueError("the file is closed")
        self._buffer += data
        while len(self._buffer) >= (size := PART << (self._count // _PARTS_OF_A_SIZE)):
            part = bytes(memoryview(self._buffer)[:size])
            del self._buffer[:size]
            self._send(part)
        return len(data)

    def _finish(self) -> None:
        if self._upload is None:
            with _told(self._path):
                self._s3.put_object(Bucket=self._bucket, Key=self._key, Body=bytes(self._buffer))
        else:
            if self._buffer:
                self._send(bytes(self._buffer))
            self._gather(0)
            self._complete()
            self._upload = None

    def _drop(self) -> None:
        self._buffer = bytearray()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        if self._upload is not None:
            with contextlib.suppress(OSError), _told(self._path):
                self._s3.abort_multipart_upload(Bucket=self._bucket, Key=self._key, UploadId=self._upload)

    def _send(self, part: bytes) -> None:
        if self._upload is None or self._pool is None:
            with _told(self._path):
                mark = {_MARK: self._mark}
                made = self._s3.create_multipart_upload(Bucket=self._bucket, Key=self._key, Metadata=mark)
            self._upload = made["UploadId"]
            self._pool = ThreadPoolExecutor(_UPLOADS_AT_ONCE)
        self._gather(_UPLOADS_AT_ONCE)
        self._count += 1
        request = {"Bucket": self._bucket, "Key": self._key, "UploadId": self._upload}
        request |= {"PartNumber": self._count, "Body": part}
        self._waiting.append(self._pool.submit(_put_part, self._s3, self._path, request))

    def _gather(self, left: int) -> None:
        while len(self._waiting) > left:
            self._sent.append(self._waiting.popleft().result())

    def _complete(self) -> None:
        try:
            with _told(self._path):
                self._s3.complete_multipart_upload(
                    Bucket=self._bucket,
                    Key=self._key,
                    UploadId=self._upload,
                    MultipartUpload={"Parts": self._sent},
                )
        except FileNotFoundError:
            # No such upload: gone, or completed by a request whose answer was lost.
            with _told(self._path):
                found = self._s3.head_object(Bucket=self._bucket, Key=self._key)
            if found.get("Metadata", {}).get(_MARK) != self._mark:
                raise


def _client(
    s3_endpoint_url: str | None, s3_region_name: str | None, s3_verify: Any, s3_disable_ssl: bool | None
) -> Any:
    import boto3
    from botocore.config import Config

    settings: dict[str, Any] = {
        "connect_timeout": 10,
        "read_timeout": 60,
        "max_pool_connections": _CONNECTIONS,
    }
    if not {"AWS_MAX_ATTEMPTS", "AWS_RETRY_MODE"} & set(os.environ):
        # Of botocore's modes the one that waits until a server has started anew, and has no quota of retries that all
        # parts of a large object share.
        settings["retries"] = {"mode": "legacy", "total_max_attempts": ATTEMPTS}
    return boto3.session.Session().client(
        "s3",
        endpoint_url=s3_endpoint_url,
        region_name=s3_region_name,
        verify=s3_verify,
        use_ssl=not s3_disable_ssl,
        config=Config(**settings),
    )


def _parts_of(path: str) -> tuple[str, str]:
    """(bucket, key) of a path.

    Raises:
      OSError: it names no bucket.
    """
    bucket, _, key = path.removeprefix("s3://").partition("/")
    if not path.startswith("s3://") or not bucket or "@" in bucket:
        raise OSError(errno.EINVAL, "a path on S3 is s3://BUCKET/NAME")
    return bucket, key


@contextlib.contextmanager
def _told(path: str) -> Iterator[None]:
    """Turn the client's errors into OSErrors of few words."""
    try:
        from botocore.exceptions import (
            BotoCoreError,
            ClientError,
            ConnectionError,
            HTTPClientError,
            IncompleteReadError,
            NoCredentialsError,
        )
    except ImportError:
        raise OSError(errno.ENOSYS, "s3:// needs the extra dpbeam[s3]; install it", path) from None
    try:
        yield
    except NoCredentialsError:
        text = "no credentials: set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        raise PermissionError(errno.EACCES, text, path) from None
    except ClientError as error:
        raise _as_os_error(error, path) from None
    except (ConnectionError, HTTPClientError, IncompleteReadError) as error:
        raise OSError(UNAVAILABLE, f"the store does not answer: {error}", path) from None
    except BotoCoreError as error:
        raise OSError(errno.EIO, f"the store cannot be asked: {error}", path) from None


def _as_os_error(error: Any, path: str) -> OSError:
    code = str(error.response.get("Error", {}).get("Code", ""))
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    if code == "NoSuchBucket":
        return OSError(errno.ENXIO, "no such bucket", path)
    if code in ("404", "NoSuchKey", "NoSuchUpload", "NotFound") or status == 404:
        return FileNotFoundError(errno.ENOENT, "no such object", path)
    if status in (401, 403):
        return PermissionError(errno.EACCES, f"the store denies access ({code})", path)
    if status == 412:
        return OSError(errno.ESTALE, "the object was replaced while it was read", path)
    if status == 416:
        return OSError(errno.EIO, "the object is shorter than expected", path)
    number = UNAVAILABLE if status == 429 or (status or 0) >= 500 else errno.EIO
    return OSError(number, f"the store answers {status} {code} to {error.operation_name}", path)


def _is_cut_off(error: Exception) -> bool:
    """Whether an answer broke off; faults before the answer are the client's own to repeat."""
    from botocore.exceptions import IncompleteReadError, ReadTimeoutError, ResponseStreamingError

    return isinstance(error, (IncompleteReadError, ReadTimeoutError, ResponseStreamingError))
