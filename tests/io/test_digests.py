"""What tells the content of a file from another."""

import hashlib

import pytest

from dpbeam.errors import InputError, UnavailableError
from dpbeam.io import released
from dpbeam.io.digests import content_digest
from dpbeam.storage import FileSystems
from dpbeam.storage.files import UNAVAILABLE
from tests.support import memory_store


def test_a_store_of_which_nothing_is_known_is_read(tmp_path, monkeypatch):
    objects = memory_store.install(monkeypatch, "mine").objects
    paths = ["mine://bucket/x", str(tmp_path / "a")]
    read_files = []
    for data in (b"one", b"two"):
        objects[paths[0]] = data
        (tmp_path / "a").write_bytes(data)
        read_files.append([content_digest(path) for path in paths])
    assert read_files == [[hashlib.sha256(data).hexdigest()] * 2 for data in (b"one", b"two")]


def test_the_checksum_of_a_store_that_keeps_one_is_taken(monkeypatch):
    monkeypatch.setattr(FileSystems, "checksum", staticmethod(lambda path: f"checksum of {path}"))
    assert content_digest("s3://bucket/x") == "checksum of s3://bucket/x"


def test_no_input(tmp_path):
    with pytest.raises(InputError, match=r"--input: cannot read '.*none': No such file"):
        content_digest(str(tmp_path / "none"))


def test_a_store_that_does_not_answer_may_do_so_later(monkeypatch):
    def silent(path):
        raise OSError(UNAVAILABLE, "the store does not answer", path)

    monkeypatch.setattr(released, "opened", silent)
    with pytest.raises(
        UnavailableError, match=r"--input: cannot read 'mine://b/x': the store does not answer$"
    ):
        content_digest("mine://b/x")
