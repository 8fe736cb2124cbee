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
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from dpbeam.storage.files import UNAVAILABLE
from dpbeam.storage.objects import NewObject, ObjectFiles, refused
from dpbeam.storage.remote import ATTEMPTS, patiently, shared_client, variables

_CONNECTIONS = 64
_MARK = "dpbeam-upload"


class S3Files(ObjectFiles):
    """Objects by `s3://bucket/key`."""

    @property
    def s3(self) -> Any:
        """The client, one for each process and its settings."""
        names = ("s3_endpoint_url", "s3_region_name", "s3_verify", "s3_disable_ssl")
        values = {name: self.flags.get(name) for name in names}
        return shared_client(("s3", *values.values(), variables("AWS_")), lambda: _client(**values))

    def make_folder(self, path: str, *, private: bool = False) -> None:
        _parts_of(path)

    def _listed(self, operation: str, prefix: str, what: str, **options: str) -> Iterator[dict[str, Any]]:
        """The entries of a listing, from all of its pages. Raises OSError."""
        bucket, key = _parts_of(prefix)
        with _as_os_errors(prefix):
            for page in self.s3.get_paginator(operation).paginate(Bucket=bucket, Prefix=key, **options):
                yield from page.get(what, ())

    def entries(self, prefix: str) -> Iterator[tuple[str, int]]:
        bucket, _ = _parts_of(prefix)
        for entry in self._listed("list_objects_v2", prefix, "Contents"):
            if not entry["Key"].endswith("/"):  # marks of folders, as consoles leave them
                yield f"s3://{bucket}/{entry['Key']}", entry["Size"]

    def folders(self, parent: str, stem: str, file: str) -> list[str]:
        bucket, _ = _parts_of(parent)
        entries = self._listed("list_objects_v2", self.join(parent, stem), "CommonPrefixes", Delimiter="/")
        return sorted(f"s3://{bucket}/{entry['Prefix'].rstrip('/')}" for entry in entries)

    def remove_below(self, path: str) -> None:
        bucket, _ = _parts_of(path)
        inside = f"{path.rstrip('/')}/"
        self.delete([name for name, _ in self.entries(inside)])
        # Of writers that were killed: nobody sees them, and a rule of the bucket ends those that are left here.
        with contextlib.suppress(OSError), _as_os_errors(path):
            for upload in self._listed("list_multipart_uploads", inside, "Uploads"):
                self.s3.abort_multipart_upload(Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"])

    def state(self, path: str) -> tuple[int, object]:
        bucket, key = _parts_of(path)
        with _as_os_errors(path):
            about = self.s3.head_object(Bucket=bucket, Key=key)
        return about["ContentLength"], about["ETag"]

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

        with _as_os_errors(path):
            patiently(fetch, _is_cut_off)
        if start != end:
            raise OSError(errno.EIO, f"ends {end - start} bytes too early", path)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def put_object(self, path: str, data: bytes, *, once: bool) -> None:
        self.new_object(path).put(data, once=once)

    def new_object(self, path: str) -> S3Object:
        return S3Object(self.s3, path)

    def copy(self, source: str, target: str) -> None:
        from boto3.s3.transfer import TransferConfig

        bucket, key = _parts_of(source)
        to_bucket, to_key = _parts_of(target)
        # One request copies up to 5 GB.
        config = TransferConfig(multipart_threshold=4 << 30, multipart_chunksize=1 << 30)
        with _as_os_errors(source):
            self.s3.copy({"Bucket": bucket, "Key": key}, to_bucket, to_key, Config=config)

    def delete_one(self, path: str) -> None:
        self.delete([path])

    def delete(self, paths: Sequence[str]) -> None:
        """As `Files`, a thousand objects to a request."""
        keys: dict[str, list[str]] = {}
        for path in paths:
            bucket, key = _parts_of(path)
            keys.setdefault(bucket, []).append(key)
        failed: list[OSError] = []
        for bucket, names in keys.items():
            for first in range(0, len(names), 1000):
                objects = [{"Key": name} for name in names[first : first + 1000]]
                with _as_os_errors(f"s3://{bucket}"):
                    done = self.s3.delete_objects(Bucket=bucket, Delete={"Objects": objects, "Quiet": True})
                for error in done.get("Errors", ()):
                    name = f"s3://{bucket}/{error.get('Key')}"
                    failed.append(OSError(errno.EIO, f"cannot be deleted: {error.get('Code')}", name))
        if failed:
            raise failed[0]


class S3Object(NewObject):
    """An object of S3 that is being made: one request, or a multipart upload."""

    def __init__(self, s3: Any, path: str):
        self._s3, self._path = s3, path
        bucket, key = _parts_of(path)
        self._name = {"Bucket": bucket, "Key": key}
        self._mark = uuid.uuid4().hex
        self._upload: dict[str, str] = {}

    def put(self, data: bytes, *, once: bool = False) -> None:
        unless = {"IfNoneMatch": "*"} if once else {}
        with _as_os_errors(self._path):
            self._s3.put_object(**self._name, Body=data, **unless)

    def begin(self) -> None:
        with _as_os_errors(self._path):
            made = self._s3.create_multipart_upload(**self._name, Metadata={_MARK: self._mark})
        self._upload = {**self._name, "UploadId": made["UploadId"]}

    def put_part(self, number: int, data: bytes) -> dict[str, Any]:
        with _as_os_errors(self._path):
            done = self._s3.upload_part(**self._upload, PartNumber=number, Body=data)
        return {"PartNumber": number, "ETag": done["ETag"]}

    def complete(self, parts: Iterable[dict[str, Any]]) -> None:
        try:
            with _as_os_errors(self._path):
                self._s3.complete_multipart_upload(**self._upload, MultipartUpload={"Parts": list(parts)})
        except FileNotFoundError:
            # No such upload: gone, or completed by a request whose answer was lost.
            with _as_os_errors(self._path):
                head = self._s3.head_object(**self._name)
            if head.get("Metadata", {}).get(_MARK) != self._mark:
                raise

    def discard(self) -> None:
        with contextlib.suppress(OSError), _as_os_errors(self._path):
            self._s3.abort_multipart_upload(**self._upload)


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
    """(bucket, key) of a path. Raises OSError if it names no bucket."""
    bucket, _, key = path.removeprefix("s3://").partition("/")
    if not path.startswith("s3://") or not bucket or "@" in bucket:
        raise OSError(errno.EINVAL, "a path on S3 is s3://BUCKET/NAME")
    return bucket, key


@contextlib.contextmanager
def _as_os_errors(path: str) -> Iterator[None]:
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
    if code in ("404", "NoSuchKey", "NoSuchUpload", "NotFound"):
        status = 404
    return refused(status, code, path, f"to {error.operation_name}")


def _is_cut_off(error: Exception) -> bool:
    """Whether an answer broke off; faults before the answer are the client's own to repeat."""
    from botocore.exceptions import IncompleteReadError, ReadTimeoutError, ResponseStreamingError

    return isinstance(error, (IncompleteReadError, ReadTimeoutError, ResponseStreamingError))
