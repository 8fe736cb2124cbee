"""Files on Azure Blob Storage, and on Data Lake Storage by its blobs, with the client `azure-storage-blob`.

`az://CONTAINER/NAME` lies in the account of the environment, `abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/NAME` (or
`abfs://`) in the one that it names. Credentials come from the environment and from nowhere else: the variables that
Azure's own command line reads, of which a connection string, a key or a shared access signature, and otherwise whatever
`azure-identity` finds: a service principal, the identity of the machine or pod, the login of its command line.

A blob appears when its list of blocks is committed, and not before: a writer that fails leaves nothing that a reader
sees. Blocks that are never committed are removed by the store after a week.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import hashlib
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from dpbeam.storage.files import UNAVAILABLE
from dpbeam.storage.objects import NewObject, ObjectFiles, is_passing_status, refused
from dpbeam.storage.remote import PART, patiently, shared_client, variables

#: Azure's own alone: tokens and signatures go to the host that a URL names.
_HOST = (
    r"[a-z0-9]+(?:\.z[0-9]+)?\.dfs\.(?:core\.windows\.net|core\.usgovcloudapi\.net|core\.chinacloudapi\.cn"
    r"|storage\.azure\.net|fabric\.microsoft\.com)"
)
_URL = re.compile(
    rf"(?P<scheme>az|abfss?)://(?P<container>[^/@:]+)(?:@(?P<host>{_HOST}))?(?:/(?P<name>.*))?", re.DOTALL
)
#: Variables with the prefix AZURE_STORAGE_, as Azure's command line reads them.
_SETTINGS = ("ACCOUNT", "CONNECTION_STRING", "KEY", "SAS_TOKEN", "SERVICE_ENDPOINT")

ResultT = TypeVar("ResultT")


class AzureFiles(ObjectFiles):
    """Blobs by `az://container/name` and `abfss://container@account.dfs.core.windows.net/name`."""

    deletes_at_once = 8

    def _at(self, url: str) -> tuple[Any, str, str]:
        """(client of the container, name, the URL's part before it). Raises OSError."""
        container, host, name = _parts_of(url)
        return _service(host).get_container_client(container), name, url[: len(url) - len(name)].rstrip("/")

    def make_folder(self, path: str, *, private: bool = False) -> None:
        _parts_of(path)

    def _blobs(self, prefix: str, *include: str) -> Iterator[tuple[Any, str, bool]]:
        """(properties, URL, whether it marks a folder) of all blobs whose URL begins with `prefix`."""
        client, name, before = self._at(prefix)
        shown = ["metadata", *include]
        for blob in _request(prefix, lambda: list(client.list_blobs(name_starts_with=name, include=shown))):
            # Marks of folders: those of a hierarchical namespace, and as consoles leave them.
            notes = {key.lower(): value for key, value in (blob.metadata or {}).items()}
            is_folder = blob.name.endswith("/") or notes.get("hdi_isfolder") == "true"
            yield blob, f"{before}/{blob.name}", is_folder

    def entries(self, prefix: str) -> Iterator[tuple[str, int]]:
        for blob, url, is_folder in self._blobs(prefix):
            if not is_folder:
                yield url, blob.size

    def folders(self, parent: str, stem: str, file: str) -> list[str]:
        client, name, before = self._at(self.join(parent, stem))
        names = _request(parent, lambda: [entry.name for entry in client.walk_blobs(name_starts_with=name)])
        return sorted(f"{before}/{entry.rstrip('/')}" for entry in names if entry.endswith("/"))

    def remove_below(self, path: str) -> None:
        folder = path.rstrip("/")

        def inside(*include: str) -> dict[str, bool]:
            blobs = self._blobs(folder, *include)
            below = f"{folder}/"
            return {url: mark for _, url, mark in blobs if url.startswith(below) or (mark and url == folder)}

        there = inside()
        self.delete([url for url, mark in there.items() if not mark])
        for url in sorted((url for url, mark in there.items() if mark), key=len, reverse=True):
            self.delete([url])  # a hierarchical namespace deletes empty ones alone
        # Blocks of writers that were killed: no blob, and gone with the one that takes their name.
        with contextlib.suppress(OSError):
            begun = [url for url in inside("uncommittedblobs") if url not in there]
            for url in begun:
                self.new_object(url).put(b"")
            self.delete(begun)

    def _blob(self, path: str) -> Any:
        client, name, _ = self._at(path)
        return client.get_blob_client(name)

    def state(self, path: str) -> tuple[int, object]:
        about = _request(path, self._blob(path).get_blob_properties)
        return about.size, about.etag

    def part(self, path: str, start: int, end: int, version: object) -> bytes:
        from azure.core import MatchConditions

        same = {} if version is None else {"etag": version, "match_condition": MatchConditions.IfNotModified}
        blob = self._blob(path)
        data: bytes = _request(path, lambda: blob.download_blob(start, end - start, **same).readall())
        if len(data) < end - start:
            raise OSError(errno.EIO, f"ends {end - start - len(data)} bytes too early", path)
        return data

    def put_object(self, path: str, data: bytes, *, once: bool) -> None:
        self.new_object(path).put(data, once=once)

    def new_object(self, path: str) -> AzureObject:
        return AzureObject(self._blob(path), path)

    def delete_one(self, path: str) -> None:
        _request(path, self._blob(path).delete_blob)


class AzureObject(NewObject):
    """A blob that is being made, of blocks that are named by what they hold."""

    def __init__(self, blob: Any, path: str):
        self._blob, self._path = blob, path

    def put(self, data: bytes, *, once: bool = False) -> None:
        _request(self._path, lambda: self._blob.upload_blob(data, overwrite=not once))

    def begin(self) -> None:
        pass

    def put_part(self, number: int, data: bytes) -> str:
        # Two writers of the same bytes under one name do not disturb each other, nor does a request that is repeated.
        mark = number.to_bytes(4, "big") + hashlib.sha256(data).digest()
        name = base64.urlsafe_b64encode(mark).decode()
        _request(self._path, lambda: self._blob.stage_block(name, data, length=len(data)))
        return name

    def complete(self, parts: Iterable[str]) -> None:
        from azure.storage.blob import BlobBlock

        blocks = [BlobBlock(name) for name in parts]
        _request(self._path, lambda: self._blob.commit_block_list(blocks))

    def discard(self) -> None:
        """The store does so itself: to take blocks away, something must appear in their place."""


def _parts_of(url: str) -> tuple[str, str | None, str]:
    """(container, host of the account where the URL names it, name). Raises OSError."""
    parts = _URL.fullmatch(url)
    if parts is None or (parts["host"] is None) != (parts["scheme"] == "az"):
        text = "a path on Azure is az://CONTAINER/NAME or abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/NAME"
        raise OSError(errno.EINVAL, text)
    return parts["container"], parts["host"], parts["name"] or ""


def _service(host: str | None) -> Any:
    """The client of an account, one for each process and its settings."""
    return shared_client(("azure", host, variables("AZURE_")), lambda: _client(host))


def _client(host: str | None) -> Any:
    try:
        from azure.identity import DefaultAzureCredential
        from azure.storage.blob import BlobServiceClient, LinearRetry
    except ImportError:
        raise OSError(errno.ENOSYS, "az:// needs the extra dpbeam[azure]; install it") from None
    logging.getLogger("azure").setLevel(logging.ERROR)  # each source without credentials is a warning
    settings: dict[str, Any] = {
        "retry_policy": LinearRetry(retry_total=0),  # the client's own begin with 15 seconds: see `_request`
        "connection_timeout": 10,
        "read_timeout": 60,
        "max_single_get_size": PART,
    }
    own = {name: os.environ.get(f"AZURE_STORAGE_{name}") for name in _SETTINGS}
    named = host.partition(".")[0] if host else None
    if text := own["CONNECTION_STRING"]:
        try:
            made = BlobServiceClient.from_connection_string(text, **settings)
        except ValueError:
            raise OSError(errno.EINVAL, "AZURE_STORAGE_CONNECTION_STRING is no connection string") from None
        if named not in (None, made.account_name):
            raise OSError(errno.EINVAL, "AZURE_STORAGE_CONNECTION_STRING is that of another account")
        return made
    account = named or own["ACCOUNT"]
    if not account:
        raise OSError(
            errno.EINVAL,
            "az:// needs an account: set AZURE_STORAGE_ACCOUNT or AZURE_STORAGE_CONNECTION_STRING",
        )
    credential: Any
    if own["KEY"] or own["SAS_TOKEN"]:
        if own["ACCOUNT"] not in (None, account):
            raise OSError(
                errno.EINVAL, "AZURE_STORAGE_ACCOUNT, whose credentials are set, is another account"
            )
        credential = {"account_name": account, "account_key": own["KEY"]} if own["KEY"] else own["SAS_TOKEN"]
    else:
        credential = DefaultAzureCredential()
    if host:
        endpoint = f"https://{host.replace('.dfs.', '.blob.', 1)}"
    else:
        endpoint = own["SERVICE_ENDPOINT"] or f"https://{account}.blob.core.windows.net"
    return BlobServiceClient(endpoint, credential=credential, **settings)


def _request(path: str, request: Callable[[], ResultT]) -> ResultT:
    """The answer to a request, which is repeated after faults that pass. Raises OSErrors of few words."""
    from azure.core.exceptions import AzureError
    from requests import RequestException

    try:
        return patiently(request, _passes)
    except (AzureError, RequestException) as error:
        raise _as_os_error(error, path) from None


def _as_os_error(error: Exception, path: str) -> OSError:
    from azure.core.exceptions import ClientAuthenticationError

    if status := _refusal(error):
        code = getattr(error, "error_code", None)
        return refused(status, str(getattr(code, "value", code) or ""), path)
    if isinstance(error, ClientAuthenticationError):
        text = "no credentials: set AZURE_STORAGE_CONNECTION_STRING, or what azure-identity looks for"
        return PermissionError(errno.EACCES, text, path)
    return OSError(UNAVAILABLE, f"the store does not answer: {type(error).__name__}", path)


def _passes(error: Exception) -> bool:
    """Whether a request may do better when repeated: also where an answer broke off, whatever its status."""
    from azure.core.exceptions import AzureError, ClientAuthenticationError
    from requests import RequestException

    if status := _refusal(error):
        return is_passing_status(status)
    return isinstance(error, (AzureError, RequestException)) and not isinstance(
        error, ClientAuthenticationError
    )


def _refusal(error: Exception) -> int | None:
    """The status of an answer that refuses."""
    status = getattr(error, "status_code", None)
    return status if isinstance(status, int) and status >= 400 else None
