"""Who holds a folder of a store, and when another may take it."""

import errno
import json
import threading
import time

import pytest

from dpbeam.storage import FileSystems, lease
from dpbeam.storage.files import HeldError
from dpbeam.storage.processes import Owner
from tests.support import memory_store

FOLDER = "s3://bucket/folder"
LOCK = f"{FOLDER}/lock"


@pytest.fixture
def store(monkeypatch):
    monkeypatch.setattr(lease, "SECONDS", 0.15)
    monkeypatch.setattr(lease, "BEAT", 0.02)
    monkeypatch.setattr(lease, "_LOOK", 0.01)
    return memory_store.install(monkeypatch)


def locks(store) -> list[str]:
    return sorted(url.rpartition("/")[2] for url in store.objects)


def left(store, number: int, **owner) -> None:
    """The lock of a process that is not here any more."""
    said = {**vars(Owner.this_process()), **owner}
    store.objects[f"{FOLDER}/lock-{number:08d}"] = json.dumps({"owner": said, "free": False}).encode()


def test_one_holds_it_and_then_the_next(store):
    for number in (1, 2, 3):
        with FileSystems.alone(LOCK):
            assert locks(store) == [f"lock-{number:08d}"]
            with pytest.raises(HeldError), FileSystems.alone(LOCK):
                pass
            assert locks(store) == [f"lock-{number:08d}"]


def test_it_is_free_after_an_error(store):
    with pytest.raises(KeyError), FileSystems.alone(LOCK):
        raise KeyError
    begin = time.monotonic()
    with FileSystems.alone(LOCK):
        assert time.monotonic() - begin < lease.SECONDS


@pytest.mark.parametrize(
    ("owner", "waits"),
    [
        ({"pid": 2**22 + 1}, False),  # gone: on this machine there is no such process
        ({"started": "ended"}, False),  # and this one is another of its number
        ({"host": "elsewhere"}, True),
        ({}, True),  # this very process, which does not beat
    ],
)
def test_the_lock_of_a_dead_process_is_taken(store, owner, waits):
    left(store, 7, **owner)
    begin = time.monotonic()
    with FileSystems.alone(LOCK):
        assert (time.monotonic() - begin > lease.SECONDS) == waits
        assert locks(store) == ["lock-00000008"]


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"free": false}'])
def test_a_lock_that_cannot_be_read_is_waited_for(store, text):
    store.objects[f"{FOLDER}/lock-00000001"] = text
    begin = time.monotonic()
    with FileSystems.alone(LOCK):
        assert time.monotonic() - begin > lease.SECONDS


def test_a_lock_that_changes_while_it_is_read_is_that_of_a_living_process(store):
    left(store, 1, host="elsewhere")

    def watch(kind: str, url: str) -> None:
        if kind == "get":
            raise OSError(errno.ESTALE, "the object was replaced while it was read", url)

    store.watch = watch
    begin = time.monotonic()
    with pytest.raises(HeldError), FileSystems.alone(LOCK):
        store.watch = lambda kind, url: None
    assert time.monotonic() - begin < 5


def test_a_process_elsewhere_that_lives_keeps_it(store):
    left(store, 1, host="elsewhere")
    ended = threading.Event()
    beats = threading.Thread(target=lease._beat, args=(FileSystems.at(LOCK), f"{LOCK}-00000001", ended))
    beats.start()
    try:
        with pytest.raises(HeldError), FileSystems.alone(LOCK):
            pass
    finally:
        ended.set()
        beats.join()


def test_of_many_at_once_one_holds_it(store):
    inside, most, entered = [0], [0], [0]
    one = threading.Lock()

    def work() -> None:
        for _ in range(10):
            try:
                with FileSystems.alone(LOCK):
                    with one:
                        inside[0] += 1
                        most[0] = max(most[0], inside[0])
                        entered[0] += 1
                    time.sleep(0.002)
                    with one:
                        inside[0] -= 1
            except HeldError:
                pass

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] and entered[0] >= 1


def test_who_looked_long_ago_does_not_take_a_number_that_was_used(store, monkeypatch):
    """Between its look and its lock others held the folder twice, and removed the number that it makes."""
    left(store, 1, started="ended")
    put_once, held = memory_store.MemoryFiles.put_once, []

    def late(files, path: str, data: bytes) -> bool:
        if not held:
            held.append(FileSystems.alone(LOCK))
            with FileSystems.alone(LOCK):
                pass
            held[0].__enter__()
        return put_once(files, path, data)

    monkeypatch.setattr(memory_store.MemoryFiles, "put_once", late)
    with pytest.raises(HeldError), FileSystems.alone(LOCK):
        pass
    assert locks(store) == ["lock-00000003"]
    held[0].__exit__(None, None, None)
