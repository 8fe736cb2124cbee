"""A file of this machine is whole or not there; one writer makes it once."""

import os

import pytest

from dpbeam.disk import BEING_WRITTEN, Writer


def test_nothing_is_seen_before_it_is_whole(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"before")
    with Writer(str(path)) as file:
        file.write(b"x" * 100_000)
        file.flush()
        assert path.read_bytes() == b"before"
        (other,) = {*os.listdir(tmp_path)} - {"a"}
        assert other.startswith(BEING_WRITTEN)
    assert path.read_bytes() == b"x" * 100_000 and os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("how", ["abort", "exception", "garbage", "no room"])
def test_what_is_given_up_leaves_nothing(how, tmp_path, monkeypatch):
    file = Writer(str(tmp_path / "a"))
    file.write(b"some")
    if how == "abort":
        file.abort()
        file.close()  # harmless
    elif how == "exception":
        with pytest.raises(KeyboardInterrupt), file:
            raise KeyboardInterrupt
    elif how == "no room":
        monkeypatch.setattr(os, "replace", lambda *_: os.open(tmp_path / "no/folder", os.O_RDONLY))
        with pytest.raises(FileNotFoundError):
            file.close()
    del file
    assert os.listdir(tmp_path) == []


def test_of_two_writers_one_makes_it_once(tmp_path):
    one, other = (Writer(str(tmp_path / "a"), once=True) for _ in range(2))
    one.write(b"1")
    other.write(b"2")
    other.close()
    with pytest.raises(FileExistsError):
        one.close()
    assert (tmp_path / "a").read_bytes() == b"2" and os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize(("private", "mode"), [(True, 0o600), (False, 0o666)])
def test_for_its_owner_alone(private, mode, tmp_path):
    umask = os.umask(0)
    try:
        file = Writer(str(tmp_path / "a"), private=private)
        (name,) = os.listdir(tmp_path)
        assert os.stat(tmp_path / name).st_mode & 0o777 == mode
        file.close()
    finally:
        os.umask(umask)
    assert os.stat(tmp_path / "a").st_mode & 0o777 == mode


@pytest.mark.parametrize("durable", [True, False])
def test_content_is_on_the_disk_before_the_name(durable, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: seen.append(os.fstat(descriptor).st_size))
    with Writer(str(tmp_path / "a"), durable=durable) as file:
        file.write(b"1234")
    assert seen == [4] * durable
