"""Readers and patience, on a file in memory."""

import io
import random

import hdfs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbeam.storage import remote
from dpbeam.storage.hdfs import HdfsFiles, _passes
from dpbeam.storage.remote import Reader, patiently


class InMemory:
    """The part of RemoteFiles that a reader needs; notes what is asked for."""

    def __init__(self, data: bytes):
        self.data, self.asked = data, []

    def state(self, path):
        return len(self.data), "v1"

    def read_range(self, path, offset, size, version=None):
        assert version == "v1" and size > 0 and offset + size <= len(self.data)
        self.asked.append((offset, size))
        return self.data[offset : offset + size]


DATA = random.Random(3).randbytes(5000)


@given(
    st.lists(
        st.tuples(st.integers(-6000, 6000), st.sampled_from((0, 1, 2)), st.integers(-1, 3000)), max_size=20
    )
)
@settings(max_examples=60)
def test_a_reader_is_a_file(moves):
    """Any order of seeks and reads gives what a file in memory gives."""
    reader, plain = Reader(InMemory(DATA), "x"), io.BytesIO(DATA)
    reader._look_ahead = 16
    for offset, whence, size in moves:
        at = max(0, {0: 0, 1: plain.tell(), 2: len(DATA)}[whence] + offset)
        assert reader.seek(offset, whence) == plain.seek(at)
        assert reader.read(size) == plain.read(size) and reader.tell() == plain.tell()


def test_reading_in_a_row_asks_for_ever_more(monkeypatch):
    monkeypatch.setattr(remote, "_FIRST_LOOK_AHEAD", 64)
    monkeypatch.setattr(remote, "PART", 1024)
    files = InMemory(DATA)
    reader = Reader(files, "x")
    assert b"".join(iter(lambda: reader.read(10), b"")) == DATA
    sizes = [size for _, size in files.asked]
    assert sizes[:5] == [128, 256, 512, 1024, 1024] and sum(sizes) == len(DATA)
    reader.seek(7)
    assert reader.read(1) == DATA[7:8] and files.asked[-1] == (7, 64)  # a jump begins small again


def test_patience():
    pauses, left = [], [OSError("a"), OSError("b")]

    def request():
        if left:
            raise left.pop()
        return 5

    assert patiently(request, lambda error: True, sleep=pauses.append) == 5
    assert len(pauses) == 2 and 0.25 <= pauses[0] <= 0.5 <= pauses[1] <= 1
    left[:] = [OSError("b"), ValueError("a")]
    with pytest.raises(ValueError):
        patiently(request, lambda error: isinstance(error, OSError), sleep=pauses.append)
    left[:] = [OSError(str(n)) for n in range(99)]
    with pytest.raises(OSError, match="92"):
        patiently(request, lambda error: True, attempts=7, sleep=pauses.append)
    assert max(pauses) <= 20


@pytest.mark.parametrize(
    ("flags", "url", "expected"),
    [
        ({}, "hdfs://node:99/a/./b", ("node:99", "/a/b", "hdfs://node:99")),
        ({}, "hdfs://node/a", ("node:9870", "/a", "hdfs://node")),
        ({"hdfs_host": "n", "hdfs_port": 5}, "hdfs://a/b", ("n:5", "/a/b", "hdfs:/")),
        ({"hdfs_host": "n", "hdfs_full_urls": True}, "hdfs://s/b", ("n:9870", "/b", "hdfs://s")),
    ],
)
def test_urls_of_hdfs(flags, url, expected, monkeypatch):
    """The node of the URL; with Beam's flags theirs, and the URL as Beam takes it."""
    asked = []
    monkeypatch.setattr("dpbeam.storage.hdfs._client", lambda address, user: asked.append((address, user)))
    monkeypatch.setenv("HADOOP_USER_NAME", "ann")
    _, path, before = HdfsFiles(flags)._at(url)
    assert (asked[0][0], path, before) == expected and asked[0][1] == "ann"


@pytest.mark.parametrize("url", ["hdfs:///a", "hdfs://me:secret@node/a", "s3://a/b"])
def test_urls_that_name_no_node_are_not_repeated(url):
    with pytest.raises(OSError) as error:
        HdfsFiles({})._at(url)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("kind", "passing"),
    [
        *((kind, True) for kind in ("EOFException", "ConnectException", "SafeModeException", "")),
        *((f"{kind}Exception", False) for kind in ("FileNotFound", "AccessControl", "QuotaExceeded")),
    ],
)
def test_what_hdfs_answers_is_asked_again_where_it_may_pass(kind, passing):
    """A data node whose name node is being started anew says that its connection ended."""
    answers = [hdfs.HdfsError("End of File Exception between local host", exception=kind or None), b"found"]

    def request():
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    if passing:
        assert patiently(request, _passes, sleep=lambda _: None) == b"found"
    else:
        with pytest.raises(hdfs.HdfsError):
            patiently(request, _passes, sleep=lambda _: None)
