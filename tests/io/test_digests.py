"""The digest of an input: only its owner's key makes anything of it."""

import hashlib
import hmac
import os
import stat

import pytest

from dpbeam.errors import InputError, UnavailableError
from dpbeam.io import released
from dpbeam.io.digests import content_digest, digest_input, digest_key
from dpbeam.storage import FileSystems
from dpbeam.storage.remote import UNAVAILABLE
from tests.support import objects

KEY = bytes(range(32))


@pytest.fixture
def files(tmp_path):
    for name, data in {"b": b"two", "a": b"one", "c": b""}.items():
        (tmp_path / name).write_bytes(data)
    return [str(tmp_path / name) for name in "bac"]


def test_the_definition(files):
    digest = digest_input(files, KEY)
    key = hmac.new(KEY, b"dpbeam input digest" + bytes.fromhex(digest.nonce), hashlib.sha256).digest()
    parts = b"".join(hashlib.sha256(data).digest() for data in (b"one", b"two", b""))
    assert digest.hmac_sha256 == hmac.new(key, parts, hashlib.sha256).hexdigest()
    assert digest_input(reversed(files), KEY, bytes.fromhex(digest.nonce)) == digest


def test_a_store_without_checksums_is_read(files, tmp_path):
    """`dpfake` gives the size for a checksum, as some of Beam's own do."""
    paths = ["dpfake://bucket/x", files[1]]
    read_files = []
    for data in (b"one", b"two"):
        objects.STORE[paths[0]] = data
        (tmp_path / "a").write_bytes(data)
        read_files.append([content_digest(path) for path in paths])
    assert read_files == [[hashlib.sha256(data).hexdigest()] * 2 for data in (b"one", b"two")]


def test_the_checksum_of_a_store_that_keeps_one_is_taken(monkeypatch):
    monkeypatch.setattr(FileSystems, "checksum", staticmethod(lambda path: f"checksum of {path}"))
    assert content_digest("s3://bucket/x") == "checksum of s3://bucket/x"


def test_two_runs_and_two_keys_differ(files):
    macs = [digest_input(files, key).hmac_sha256 for key in (KEY, KEY, bytes(32))]
    assert len(set(macs)) == 3
    again = digest_input(files, bytes(32), bytes(32))
    assert digest_input(files, KEY, bytes(32)).hmac_sha256 != again.hmac_sha256


@pytest.mark.parametrize("change", [b"onf", b"on", b"onee"])
def test_a_changed_byte_shows(files, change):
    before = digest_input(files, KEY, bytes(32))
    with open(files[1], "wb") as file:
        file.write(change)
    assert digest_input(files, KEY, bytes(32)) != before


def test_bytes_that_move_to_the_next_file_show(files):
    before = digest_input(files, KEY, bytes(32))
    for path, data in zip(sorted(files), (b"on", b"etwo", b"")):
        with open(path, "wb") as file:
            file.write(data)
    assert digest_input(files, KEY, bytes(32)) != before


def test_a_key_is_made_once_and_is_the_owners_alone(tmp_path):
    path = str(tmp_path / "key")
    made = digest_key(path, make=True)
    assert len(made) == 32 and digest_key(path, make=True) == digest_key(path, make=False) == made
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert digest_key(str(tmp_path / "other"), make=True) != made


@pytest.mark.parametrize("text", ["", "ab" * 31, "ab" * 33, "x" * 64, "é" * 64])
def test_what_is_no_key(tmp_path, text):
    path = tmp_path / "key"
    path.write_text(text)
    with pytest.raises(InputError, match=r"^--input_digests: '.*key' is no key file: 64 hexadecimal digits$"):
        digest_key(str(path), make=True)


def test_no_key_and_no_input(tmp_path):
    with pytest.raises(InputError, match=r"--input_digests: cannot use '.*none': No such file"):
        digest_key(str(tmp_path / "none"), make=False)
    with pytest.raises(InputError, match=r"--input: cannot read '.*none': No such file"):
        digest_input([str(tmp_path / "none")], KEY)


def test_a_store_that_does_not_answer_may_do_so_later(monkeypatch):
    def silent(path):
        raise OSError(UNAVAILABLE, "the store does not answer", path)

    monkeypatch.setattr(released, "opened", silent)
    with pytest.raises(
        UnavailableError, match=r"--input: cannot read 's3://b/x': the store does not answer$"
    ):
        digest_input(["s3://b/x"], KEY)
