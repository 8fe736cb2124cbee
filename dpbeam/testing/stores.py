"""What a store of somebody's own must do, as tests to inherit (docs/how-to/add_a_store.md)."""

from __future__ import annotations

import contextlib
import gc
import io
import threading
import uuid
from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

from dpbeam.storage.files import Files, HeldError, NewFile, Put

_LARGE = 20 << 20  # more than one part of an upload


class StoreContract:
    """Tests of `dpbeam.storage.files.Files`, for pytest: a class that inherits them says what they try.

    One of them takes ten seconds: so long a lock is watched whose process may live.

    Attributes:
      place: URL of a folder in which each test makes one of its own.
    """

    place: str

    @abstractmethod
    def files(self) -> Files:
        """What is tried; called for each test."""

    def _new(self) -> tuple[Files, str]:
        """The files, and a folder that was not there."""
        files = self.files()
        folder = files.join(self.place, uuid.uuid4().hex)
        files.make_folder(folder)
        return files, folder

    def test_a_file_appears_whole_when_it_is_closed(self) -> None:
        files, folder = self._new()
        path = files.join(folder, "file")
        for data in (b"one", b"", bytes(range(256)) * (_LARGE // 256) + b"end"):
            before = files.read(path) if files.exists(path) else None
            file = files.put(path)
            for start in range(0, len(data), 1 << 20):
                file.write(data[start : start + (1 << 20)])
            assert (files.read(path) if files.exists(path) else None) == before
            file.close()
            assert files.read(path) == data

    def test_what_is_given_up_does_not_appear(self) -> None:
        files, folder = self._new()
        for number, give_up in enumerate((_abort, _raise, _lose)):
            for size in (10, _LARGE):
                path = files.join(folder, f"{number}-{size}")
                give_up(files, path, bytes(size))
                assert not files.exists(path), f"{give_up.__name__}: half a file appears"
                assert path not in files.list_prefix(files.join(folder, ""))

    def test_a_file_is_made_once(self) -> None:
        files, folder = self._new()
        path, together, made = files.join(folder, "once"), threading.Barrier(8), []

        def make(data: bytes) -> None:
            together.wait()
            if self.files().put_once(path, data):
                made.append(data)

        threads = [threading.Thread(target=make, args=(bytes([number]),)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(made) == 1 and files.read(path) == made[0]
        assert files.put_once(path, made[0]) and not files.put_once(path, b"another")
        assert files.read(path) == made[0]

    def test_reads_are_exact(self) -> None:
        files, folder = self._new()
        data = bytes(range(251)) * 200
        path = _write(files, files.join(folder, "file"), data)
        assert files.read_range(path, 7, 1000) == data[7:1007] and files.read_range(path, 3, 0) == b""
        with _fails(OSError):
            files.read_range(path, len(data) - 5, 10)
        with files.open(path) as file:
            assert file.read(5) == data[:5] and file.read() == data[5:] and file.read(5) == b""
            assert file.seek(-9, io.SEEK_END) == len(data) - 9 and file.read(4) == data[-9:-5]
        missing = files.join(folder, "missing")
        reads: tuple[Callable[[], Any], ...] = (
            lambda: files.read(missing),
            lambda: files.read_range(missing, 0, 1),
            lambda: files.open(missing),
        )
        for read in reads:
            with _fails(FileNotFoundError):
                read()
        assert not files.exists(missing)

    def test_a_reader_sees_one_version(self) -> None:
        files, folder = self._new()
        path = _write(files, files.join(folder, "file"), bytes(1 << 20))
        with contextlib.suppress(OSError), files.open(path) as file:
            begin = file.read(10)
            _write(files, path, b"\1" * (1 << 20))
            assert set(begin + file.read()) == {0}, "bytes of two versions"

    def test_listings_are_literal_and_of_one_folder(self) -> None:
        files, folder = self._new()
        names = ["a", "a#1", "ab", "b[1]"]
        for number, name in enumerate(names):
            _write(files, files.join(folder, name), bytes(number))
        inside = files.join(folder, "f")
        files.make_folder(inside)
        _write(files, files.join(inside, "deep"), b"x")
        assert files.sizes(files.join(folder, "a")) == {
            files.join(folder, name): number for number, name in enumerate(names[:3])
        }
        assert files.list_prefix(files.join(folder, "b[1")) == [files.join(folder, "b[1]")]
        assert files.list_prefix(files.join(folder, "none")) == []
        assert files.match(files.join(folder, "a?")) == {files.join(folder, "ab"): 2}
        assert len(files.match(files.join(folder, "a*"), 2)) == 2
        assert files.folders(folder, "f", "deep") == [inside] and files.folders(folder, "g", "deep") == []

    def test_names_change_and_go(self) -> None:
        files, folder = self._new()
        old = _write(files, files.join(folder, "old"), b"new")
        new = _write(files, files.join(folder, "new"), b"old")
        files.rename(old, new)
        assert files.read(new) == b"new" and not files.exists(old)
        files.delete([new, old])
        files.delete([new])
        assert files.list_prefix(files.join(folder, "")) == []

    def test_nobody_writes_to_a_folder_that_was_removed(self) -> None:
        files, folder = self._new()
        for name in ("key", "a", "z"):
            _write(files, files.join(folder, name), b"x")
        late = files.put(files.join(folder, "b"), Put(make_folder=False, beside="key"))
        late.write(b"late")
        assert files.remove_folder(folder, first="key") is None
        assert files.remove_folder(folder, first="key") is None
        with _fails(OSError):
            late.close()
        assert files.list_prefix(files.join(folder, "")) == []

    def test_one_is_alone(self) -> None:
        files, folder = self._new()
        path = files.join(folder, "lock")
        with files.alone(path), _fails(HeldError), self.files().alone(path):
            pass
        with self.files().alone(path):
            pass


def _write(files: Files, path: str, data: bytes) -> str:
    with files.put(path) as file:
        file.write(data)
    return path


def _abort(files: Files, path: str, data: bytes) -> None:
    file = files.put(path)
    file.write(data)
    file.abort()


def _raise(files: Files, path: str, data: bytes) -> None:
    with contextlib.suppress(ZeroDivisionError), files.put(path) as file:
        file.write(data)
        raise ZeroDivisionError


def _lose(files: Files, path: str, data: bytes) -> None:
    file: NewFile | None = files.put(path)
    assert file is not None
    file.write(data)
    file = None
    gc.collect()


@contextlib.contextmanager
def _fails(kind: type[Exception]) -> Iterator[None]:
    try:
        yield
    except kind:
        return
    raise AssertionError(f"no {kind.__name__}")
