"""What a writer of HDFS hands to its client; a real store: `tests/engines/test_stores.py`."""

import contextlib
import functools
import io
import json
from pathlib import PurePosixPath
from types import SimpleNamespace

import pytest
import requests
from hdfs import HdfsError

from dpbeam.io.patterns import files_of as files_meant
from dpbeam.io.patterns import of_folder
from dpbeam.storage import FileSystems, hdfs
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


def files_of(client: Client, monkeypatch) -> hdfs.HdfsFiles:
    """Files of which all requests go to this client."""
    monkeypatch.setattr(
        hdfs.HdfsFiles, "_at", lambda self, path: (client, path.removeprefix("hdfs:/"), "hdfs:/")
    )
    return hdfs.HdfsFiles(None)


class Tree(Client):
    """Has these files, by name."""

    def __init__(self, *names):
        super().__init__()
        self.names = names

    def list(self, name, status):
        inside = [file.removeprefix(f"{name}/") for file in self.names if file.startswith(f"{name}/")]
        below = {file.partition("/")[::2] for file in inside}
        return [
            (child, {"type": "DIRECTORY" if rest else "FILE", "length": 3}) for child, rest in sorted(below)
        ]

    def status(self, name):
        if name in self.names:
            return {"type": "FILE", "length": 3}
        if any(file.startswith(f"{name}/") for file in self.names):
            return {"type": "DIRECTORY", "length": 0}
        raise FileNotFoundError(name)


def test_a_folder_is_an_input_with_those_below_it(monkeypatch):
    names = [f"/n/logs/{name}" for name in ("a.csv", "2026/11/b.csv", "_temporary/c.csv", "_SUCCESS")]
    files = files_of(Tree(*names, "/n/other.csv"), monkeypatch)
    monkeypatch.setattr(FileSystems, "at", lambda path: files)
    ours = {"hdfs://n/logs/a.csv": 3, "hdfs://n/logs/2026/11/b.csv": 3}
    assert files.match("hdfs://n/logs/*.csv") == {"hdfs://n/logs/a.csv": 3}
    assert len(files.match("hdfs://n/logs/**")) == 4
    for folder in ("hdfs://n/logs", "hdfs://n/logs/"):
        assert dict(files_meant(of_folder(folder))) == ours
    for other in ("hdfs://n/logs/a.csv", "hdfs://n/none"):
        assert of_folder(other) == other


def test_a_private_folder_leaves_the_one_above_to_others(monkeypatch):
    """Staged output lies beside the output, in a folder that may be new."""
    client = Client()
    files = files_of(client, monkeypatch)
    files.make_folder("hdfs://new/out/x.staging-1", private=True)
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
    files = files_of(client, monkeypatch)
    monkeypatch.setattr(
        hdfs.HdfsFiles, "exists", lambda self, path: path.removeprefix("hdfs:/") in client.files
    )
    monkeypatch.setattr(hdfs.HdfsFiles, "read", lambda self, path: client.files[path.removeprefix("hdfs:/")])
    assert files.put_once("hdfs://k", b"one") and files.put_once("hdfs://k", b"one")
    assert not files.put_once("hdfs://k", b"two") and client.files == {"/k": b"one"}


@pytest.mark.parametrize("replaces", [True, False])
def test_a_file_is_replaced_in_one_step(monkeypatch, replaces):
    """By a name node; HttpFS knows no such request, and renames once the earlier file is gone."""
    client, asked = Renaming({"/k": b"old"}, 0, False), []

    def rename(old, destination, renameoptions):
        assert renameoptions == "OVERWRITE" and client.files[destination] == b"old"
        asked.append(destination)
        if replaces:
            client.files[destination] = client.files.pop(old)
        body = b"" if replaces else b'{"boolean": false}'
        return SimpleNamespace(content=body, json=lambda: json.loads(body))

    client._rename = rename
    client.delete = lambda name, recursive: client.files.pop(name, None)
    monkeypatch.setattr(
        hdfs.HdfsFiles, "exists", lambda self, path: path.removeprefix("hdfs:/") in client.files
    )
    with files_of(client, monkeypatch).put("hdfs://k") as file:
        file.write(b"new")
    assert client.files == {"/k": b"new"} and asked == ["/k"] and client.asked == (0 if replaces else 2)


def test_a_file_that_is_replaced_while_it_is_read_is_refused(monkeypatch):
    client, numbers = Client(), iter([1, 1, 1, 2])
    client.read = lambda name, offset, length: contextlib.nullcontext(
        io.BytesIO(bytes(20)[offset : offset + length])
    )
    client.status = lambda name: {"type": "FILE", "length": 20, "fileId": next(numbers)}
    with files_of(client, monkeypatch).open("hdfs://k") as file:
        file._look_ahead = 1
        assert file.read(1) == bytes(1) and file.read(5) == bytes(5)
        with pytest.raises(OSError, match="was replaced while it was read"):
            file.read()


class Renaming(Client):
    """A name node that is away for the first requests, and does some of them before it goes."""

    def __init__(self, files, away, done):
        super().__init__()
        self.files, self.away, self.done, self.asked = files, away, done, 0

    def rename(self, old, new):
        self.asked += 1
        refused = old not in self.files or new in self.files
        if not refused and (self.asked > self.away or self.done):
            self.files[new] = self.files.pop(old)
        if self.asked <= self.away:
            raise requests.ConnectionError("gone")
        if refused:
            raise HdfsError("Unable to rename %r to %r.", old, new)

    def status(self, name, strict):
        return {"type": "FILE"} if name in self.files else None


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize(("away", "target"), [(0, False), (3, False), (0, True), (3, True), (99, False)])
def test_a_rename_is_repeated_while_the_name_node_is_away(away, target, done, monkeypatch):
    """What it has done without an answer is done; a target that is there refuses it, at once or when it is back."""
    client = Renaming({"/a": b"new"} | ({"/b": b"old"} if target else {}), away, done)
    monkeypatch.setattr(hdfs, "patiently", functools.partial(hdfs.patiently, sleep=lambda seconds: None))
    files = files_of(client, monkeypatch)
    rename = functools.partial(files.move, "hdfs://a", "hdfs://b")
    if target or away == 99:
        with pytest.raises(OSError, match="Unable to rename" if target else "does not answer"):
            rename()
        assert client.files.get("/b") == (b"old" if target else (b"new" if done else None))
        assert client.asked == (8 if away == 99 else away + 1)
    else:
        rename()
        assert client.files == {"/b": b"new"} and client.asked == away + 1


@pytest.mark.parametrize("body", [b"<html>busy</html>", "busy"])
def test_what_is_no_answer_of_webhdfs_may_pass(body):
    """As a proxy answers, whose text the client leaves in bytes."""
    assert hdfs._passes(HdfsError(body)) and not hdfs._passes(
        HdfsError("Unable to rename %r to %r.", "/a", "/b")
    )


@pytest.mark.parametrize("body", [b"<html>busy\xff</html>\n<p>", "<html>busy\ufffd</html>\n<p>"])
def test_a_proxy_that_stays_busy_is_an_error_of_the_store(body):
    """And one that may pass: so do the runs that meet it."""
    with pytest.raises(OSError) as raised, hdfs._as_os_errors("hdfs://k"):
        raise HdfsError(body)
    assert raised.value.errno == hdfs.UNAVAILABLE
    assert raised.value.strerror == "the store answers: <html>busy\ufffd</html>"
