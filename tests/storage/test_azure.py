"""What a writer of Azure asks of its client, whose account it is, how errors are told.

A store that answers: `tests/engines/test_stores.py`.
"""

import time
from datetime import datetime, timezone
from functools import partial
from types import SimpleNamespace

import pytest
import requests
from azure.core import MatchConditions
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    IncompleteReadError,
    ResourceNotFoundError,
    ServiceRequestError,
    ServiceResponseError,
)
from azure.identity import DefaultAzureCredential

from dpbeam.storage import FileSystems, azure, objects, remote
from dpbeam.storage.azure import AzureFiles, AzureObject
from dpbeam.storage.files import UNAVAILABLE
from dpbeam.storage.objects import Writer
from dpbeam.storage.remote import patiently
from tests.support.uploads import WAYS, give_up, write

HOST = "acme.dfs.core.windows.net"
KEY = "c2VjcmV0"


class Blob:
    """Keeps what it is told; each request fails as often as `fails` has errors for it."""

    def __init__(self, **fails):
        self.fails, self.calls, self.data, self.blocks = fails, [], None, {}

    def _call(self, name):
        self.calls.append(name)
        if self.fails.get(name):
            raise self.fails[name].pop(0)

    def upload_blob(self, data, overwrite):
        if not overwrite and self.data is not None:
            raise failure(409, "BlobAlreadyExists")
        self._call("put")
        self.data = data
        if self.fails.get("answer"):
            raise self.fails["answer"].pop(0)

    def stage_block(self, name, data, length):
        self._call("part")
        assert length == len(data)
        self.blocks[name] = data

    def commit_block_list(self, blocks):
        self._call("complete")
        self.data = b"".join(self.blocks[block.id] for block in blocks)

    def get_blob_properties(self):
        self._call("head")
        return SimpleNamespace(size=9, etag='"1"', last_modified=datetime.now(timezone.utc))

    def download_blob(self, offset, length, **same):
        self._call("get")
        self.same = same
        return SimpleNamespace(readall=lambda: bytes(9)[offset : offset + length])

    def delete_blob(self):
        self._call("delete")


def failure(status, code=""):
    response = SimpleNamespace(status_code=status, reason="", headers={}, text=lambda: "")
    error = (ResourceNotFoundError if status == 404 else HttpResponseError)("asked for secret", response)
    error.error_code = code
    return error


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(objects, "PART", 10)
    monkeypatch.setattr(azure, "patiently", partial(patiently, sleep=lambda _: None))
    monkeypatch.setattr(remote, "_clients", {})
    for name in azure._SETTINGS:
        monkeypatch.delenv(f"AZURE_STORAGE_{name}", raising=False)


@pytest.fixture
def files(monkeypatch):
    """Files that all are the one blob that the test puts there."""
    made = AzureFiles({})
    made.blob = Blob()
    monkeypatch.setattr(made, "_blob", lambda path: made.blob)
    return made


def written(blob, data):
    writer = Writer(AzureObject(blob, "az://b/k"))
    write(writer, data)
    return writer


def test_small_objects_are_one_request():
    blob = Blob()
    written(blob, b"123456789").close()
    assert blob.calls == ["put"] and blob.data == b"123456789"


def test_a_blob_is_made_once(files, monkeypatch):
    monkeypatch.setattr(AzureFiles, "read", lambda self, path: self.blob.data)
    # An answer that is lost: the request is repeated, and the blob is there.
    files.blob.fails["answer"] = [ServiceResponseError("lost")]
    assert files.put_once("az://b/k", b"one") and files.put_once("az://b/k", b"one")
    assert not files.put_once("az://b/k", b"two") and files.blob.data == b"one"
    with files.put("az://b/k") as file:
        file.write(b"two")
    assert files.blob.data == b"two"


def test_blocks_are_named_by_place_and_content():
    """So a repeated request, or another attempt at the same file, sends the same block; names are of one length."""
    first, again, other = Blob(), Blob(), Blob()
    for blob, data in ((first, bytes(130)), (again, bytes(130)), (other, bytes(range(130)))):
        writer = written(blob, data)
        assert blob.data is None
        writer.close()
        assert blob.data == data
    assert set(first.blocks) == set(again.blocks) and len(first.blocks) == 13
    assert not set(first.blocks) & set(other.blocks) and len({len(name) for name in first.blocks}) == 1


@pytest.mark.parametrize("way", WAYS)
def test_what_is_not_closed_does_not_appear(way, monkeypatch):
    blob = Blob()
    at_once = blob.stage_block
    monkeypatch.setattr(
        blob, "stage_block", lambda *block, **size: time.sleep(0.1) or at_once(*block, **size)
    )
    give_up(lambda: written(blob, bytes(30)), way)
    assert blob.data is None and "complete" not in blob.calls and "put" not in blob.calls


@pytest.mark.parametrize("step", ["put", "part", "complete"])
@pytest.mark.parametrize(
    "error", [failure(503, "ServerBusy"), ServiceRequestError("x"), ServiceResponseError("x"), failure(408)]
)
def test_faults_that_pass(step, error):
    blob = Blob(**{step: [error] * 3})
    written(blob, bytes(5 if step == "put" else 30)).close()
    assert blob.data == bytes(5 if step == "put" else 30)
    blob = Blob(**{step: [error] * 99})
    with pytest.raises(OSError) as refused:
        written(blob, bytes(5 if step == "put" else 30)).close()
    assert refused.value.errno == UNAVAILABLE and blob.data is None and "secret" not in str(refused.value)


def test_a_read_that_breaks_off(files):
    broken = [
        IncompleteReadError("x", SimpleNamespace(status_code=206, reason="", headers={}, text=lambda: "")),
        ServiceResponseError("x"),
        HttpResponseError("x"),
        requests.ConnectionError("x"),
    ]
    files.blob.fails = {"get": list(broken)}
    assert files.read_range("az://b/k", 2, 5) == bytes(5) and files.blob.calls == ["get"] * 5
    for error in broken:
        files.blob.fails = {"get": [error] * 99}
        with pytest.raises(OSError) as refused:
            files.read_range("az://b/k", 2, 5)
        assert refused.value.errno == UNAVAILABLE
    files.blob.fails = {}
    with pytest.raises(OSError, match="ends 3 bytes too early"):
        files.read_range("az://b/k", 2, 10)


def test_a_reader_keeps_to_one_version(files):
    reader = files.open("az://b/k")
    assert reader.read() == bytes(9)
    assert files.blob.same == {"etag": '"1"', "match_condition": MatchConditions.IfNotModified}
    files.read_range("az://b/k", 0, 4)
    assert files.blob.same == {}


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (failure(404, "BlobNotFound"), FileNotFoundError, "no such object"),
        (failure(404, "ContainerNotFound"), OSError, "no such container"),
        (
            failure(403, "AuthorizationFailure"),
            PermissionError,
            r"the store denies access \(AuthorizationFailure\)",
        ),
        (failure(412, "ConditionNotMet"), OSError, "replaced while it was read"),
        (failure(416, "InvalidRange"), OSError, "shorter than expected"),
        (failure(409, "LeaseIdMissing"), OSError, "the store answers 409 LeaseIdMissing"),
        (ClientAuthenticationError("long\nstory of secret"), PermissionError, "no credentials: set AZURE_"),
    ],
)
def test_errors(error, kind, text, files):
    files.blob.fails = {"head": [error] * 99}
    with pytest.raises(kind, match=text) as refused:
        files.state("az://b/k")
    assert "secret" not in str(refused.value) and "\n" not in str(refused.value)
    assert len(files.blob.calls) == 1, "asked again although it does not pass"
    if kind is FileNotFoundError:
        assert not files.exists("az://b/k")
    else:
        with pytest.raises(kind):
            files.blob.fails = {"head": [error]}
            files.exists("az://b/k")


def test_deleting_what_is_gone(files):
    files.blob.fails = {"delete": [failure(404, "BlobNotFound")]}
    files.delete(["az://b/k"])
    files.blob.fails = {"delete": [failure(403, "AuthorizationFailure")]}
    with pytest.raises(OSError, match="denies access"):
        files.delete(["az://b/k"])


class Container:
    """A listing: marks of folders as both kinds of account show them, files, and a blob that was begun."""

    BLOBS = ("f", "f/a", "f/deep", "f/deep/c", "f/sub/", "f/sub/b", "f/sub/in/", "f#1", "g/x")

    def list_blobs(self, name_starts_with, include):
        assert isinstance(include, list) and include[0] == "metadata"
        names = [*self.BLOBS, *(["f/begun"] if "uncommittedblobs" in include else [])]
        for name in names:
            folder = {"Hdi_IsFolder": "true"} if name in ("f", "f/deep") else None
            changed = SimpleNamespace(timestamp=lambda: 5.0)
            if name.startswith(name_starts_with):
                yield SimpleNamespace(name=name, metadata=folder, size=1, last_modified=changed)

    def walk_blobs(self, name_starts_with):
        return [SimpleNamespace(name=name) for name in ("f#1", "f/") if name.startswith(name_starts_with)]


def test_listings_and_folders(files, monkeypatch):
    monkeypatch.setattr(
        azure, "_service", lambda host: SimpleNamespace(get_container_client=lambda _: Container())
    )
    deleted, put = [], []
    monkeypatch.setattr(files, "delete", lambda paths: deleted.append(list(paths)))
    monkeypatch.setattr(AzureObject, "put", lambda self, data: put.append((self._path, data)))
    for place in ("az://c", f"abfss://c@{HOST}"):
        assert list(files.sizes(f"{place}/f")) == [f"{place}/f#1"]
        assert list(files.sizes(f"{place}/f/")) == [f"{place}/f/a"]
        assert list(files.match(f"{place}/f/**")) == [
            f"{place}/f/{name}" for name in ("a", "deep/c", "sub/b")
        ]
        assert files.folders(place, "f", "") == [f"{place}/f"]
        files.remove_folder(f"{place}/f")
        expected = [["/a", "/deep/c", "/sub/b"], ["/sub/in/"], ["/deep"], ["/sub/"], [""], ["/begun"]]
        assert deleted == [[f"{place}/f{name}" for name in names] for names in expected]
        assert put == [(f"{place}/f/begun", b"")], "blocks go with the blob that takes their name"
        deleted.clear()
        put.clear()


@pytest.mark.parametrize(
    "path",
    [
        "az://",
        "az:///k",
        "az://me:secret@c/k",
        f"az://c@{HOST}/k",
        "abfss://c/k",
        "abfss://c@host/k",
        "abfss://c@acme.dfs.example.com/k",
    ],
)
def test_a_path_that_names_no_container(path):
    with pytest.raises(OSError, match=r"a path on Azure is az://CONTAINER/NAME or abfss://") as error:
        FileSystems.read(path)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("settings", "url", "account", "endpoint"),
    [
        ({"ACCOUNT": "one", "KEY": KEY}, "az://c/k", "one", "https://one.blob.core.windows.net"),
        ({"KEY": KEY}, f"abfss://c@{HOST}/k", "acme", "https://acme.blob.core.windows.net"),
        ({"ACCOUNT": "acme", "SAS_TOKEN": "sig=x"}, f"abfs://c@{HOST}/k", "acme", "https://acme.blob."),
        ({"ACCOUNT": "one"}, f"abfss://c@{HOST}/k", "acme", "https://acme.blob.core.windows.net"),
        (
            {"ACCOUNT": "one", "KEY": KEY, "SERVICE_ENDPOINT": "https://here:1/one"},
            "az://c/k",
            "one",
            "https://here:1/one",
        ),
        (
            {"ACCOUNT": "one", "SERVICE_ENDPOINT": "https://here:1/one"},
            f"abfss://c@{HOST}/k",
            "acme",
            "https://acme.blob.core.windows.net",
        ),
        (
            {"CONNECTION_STRING": f"AccountName=one;AccountKey={KEY};BlobEndpoint=http://here:1/one"},
            "az://c/k",
            "one",
            "http://here:1/one",
        ),
    ],
)
def test_whose_account(settings, url, account, endpoint, monkeypatch):
    for name, value in settings.items():
        monkeypatch.setenv(f"AZURE_STORAGE_{name}", value)
    client, name, before = AzureFiles({})._at(url)
    assert client.account_name == account and client.url.startswith(endpoint)
    assert (client.container_name, name, before) == ("c", "k", url[:-2])
    secret = {"KEY", "SAS_TOKEN", "CONNECTION_STRING"} & settings.keys()
    assert isinstance(client.credential, DefaultAzureCredential) == (not secret)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({}, "az:// needs an account: set AZURE_STORAGE_ACCOUNT"),
        ({"CONNECTION_STRING": "secret"}, "AZURE_STORAGE_CONNECTION_STRING is no connection string"),
        (
            {"CONNECTION_STRING": "AccountName=one;AccountKey=secret"},
            "CONNECTION_STRING is that of another account",
        ),
        ({"ACCOUNT": "one", "KEY": "secret"}, "whose credentials are set, is another account"),
        ({"ACCOUNT": "one", "SAS_TOKEN": "sig=secret"}, "whose credentials are set, is another account"),
    ],
)
def test_credentials_go_to_their_own_account_alone(settings, text, monkeypatch):
    for name, value in settings.items():
        monkeypatch.setenv(f"AZURE_STORAGE_{name}", value)
    with pytest.raises(OSError, match=text) as refused:
        FileSystems.read(f"abfss://c@{HOST}/k" if settings else "az://c/k")
    assert "secret" not in str(refused.value)
