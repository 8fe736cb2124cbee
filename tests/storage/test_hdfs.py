"""What a writer of HDFS hands to its client; a real store: `tests/engines/test_stores.py`."""

from pathlib import PurePosixPath

import pytest

from dpbeam.storage import hdfs
from dpbeam.storage.hdfs import Writer
from tests.support.uploads import WAYS, give_up, write


class Client:
    """Keeps what it is told to write, and whether its source gave up."""

    def __init__(self):
        self.files = {}
        self.gave_up = False

    def write(self, name, data, overwrite):
        try:
            self.files[name] = data if isinstance(data, bytes) else b"".join(data)
        except ConnectionAbortedError:
            self.gave_up = True
            raise

    def makedirs(self, name, permission=None):
        """As a name node does: folders that are missing above get the same permission."""
        for folder in reversed([name, *(str(path) for path in PurePosixPath(name).parents)]):
            self.files.setdefault(folder, permission or "755")


def test_a_private_folder_leaves_the_one_above_to_others(monkeypatch):
    """Staged output lies beside the output, in a folder that may be new."""
    client = Client()
    monkeypatch.setattr(
        hdfs.HdfsFiles, "_at", lambda self, path: (client, path.removeprefix("hdfs:/"), "hdfs:/")
    )
    hdfs.HdfsFiles(None).mkdirs_private("hdfs://new/out/x.staging-1")
    assert client.files == {"/": "755", "/new": "755", "/new/out": "755", "/new/out/x.staging-1": "700"}


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(hdfs, "PART", 10)


def written(client: Client, data: bytes) -> Writer:
    writer = Writer(client, "/k", "hdfs://n/k")
    write(writer, data)
    return writer


@pytest.mark.parametrize("size", [0, 6, 14, 130])
def test_a_file_is_what_was_written(size):
    client, data = Client(), bytes(range(size))
    written(client, data).close()
    assert client.files == {"/k": data} and not client.gave_up


@pytest.mark.parametrize("way", WAYS)
def test_what_is_not_closed_is_never_taken_for_whole(way):
    client = Client()
    give_up(lambda: written(client, bytes(30)), way)
    assert client.files == {} and client.gave_up


@pytest.mark.parametrize("lost", [False, True])
def test_a_file_is_made_once_by_rename(monkeypatch, lost):
    """Also where the answer to the renaming is lost; nothing is left of a file that comes too late."""
    client = Client()

    def rename(old, new):
        if new in client.files:
            raise OSError("Unable to rename")
        client.files[new] = client.files.pop(old)
        if lost:
            raise OSError("no answer")

    client.rename = rename
    client.delete = lambda name, recursive: client.files.pop(name, None)
    monkeypatch.setattr(
        hdfs.HdfsFiles, "_at", lambda self, path: (client, path.removeprefix("hdfs:/"), "hdfs:/")
    )
    monkeypatch.setattr(
        hdfs.HdfsFiles, "exists", lambda self, path: path.removeprefix("hdfs:/") in client.files
    )
    monkeypatch.setattr(hdfs.HdfsFiles, "read", lambda self, path: client.files[path.removeprefix("hdfs:/")])
    files = hdfs.HdfsFiles(None)
    assert files.write_once("hdfs://k", b"one") and files.write_once("hdfs://k", b"one")
    assert not files.write_once("hdfs://k", b"two") and client.files == {"/k": b"one"}
