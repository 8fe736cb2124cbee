"""What a power cut leaves: of a model that watches flushes, and of a filesystem whose disk is copied."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from dpbeam.budget.account import Account
from dpbeam.engine.beam import owner


class Disk:
    """The worst disk that keeps its promise: it holds what was flushed, and nothing else.

    Attributes:
      moments: of every step after which a file must outlive a power cut, its name and the files that would not.
    """

    def __init__(self, root: pathlib.Path, patch: pytest.MonkeyPatch):
        self.moments: list[tuple[str, list[str]]] = []
        self._root = str(root)
        self._contents: dict[int, tuple[int, int]] = {}
        self._names: dict[int, frozenset[str]] = {}
        self._fsync, self._rename = os.fsync, os.rename
        self._publish, self._commit = Account.publish, Account.commit
        patch.setattr(os, "fsync", self._flushed)
        patch.setattr(os, "rename", self._renamed)
        patch.setattr(Account, "publish", lambda *arguments: self._published(*arguments))
        patch.setattr(Account, "commit", lambda *arguments: self._committed(*arguments))

    def lost(self, *paths: str) -> list[str]:
        """Files that a power cut would take, or empty: by content, or by the name of theirs or of a folder."""
        return [path for path in paths if not self._outlives(path)]

    def contents_kept(self, path: str) -> bool:
        """Whether a file holds after a power cut what it holds now, if its name is there."""
        state = os.stat(path)
        return self._contents.get(state.st_ino) == (state.st_size, state.st_mtime_ns)

    def _outlives(self, path: str) -> bool:
        if not self.contents_kept(path):
            return False
        path = os.path.abspath(path)
        while path != self._root:
            path, name = os.path.split(path)
            if name not in self._names.get(os.stat(path).st_ino, ()):
                return False
        return True

    def _flushed(self, descriptor: int) -> None:
        state = os.fstat(descriptor)
        self._contents[state.st_ino] = state.st_size, state.st_mtime_ns
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            self._names[state.st_ino] = frozenset(os.listdir(descriptor))
        self._fsync(descriptor)

    def _renamed(self, source: str, target: str, **more: object) -> None:
        source, target = os.fspath(source), os.fspath(target)
        if target.endswith(".ledger.json"):  # the mark: all that it stands for is kept by then
            self.moments.append((f"ledger {os.path.basename(target)}", self.lost(*_of_output(target))))
        self._rename(source, target, **more)

    def _published(self, account: Account, release: str, attempt: int, output: dict, ledger: str):
        names = [name for name in os.listdir(output["staging"]) if name != owner.FILE]
        assert len(names) > 1  # shards and ledger
        self.moments.append(("publish", self.lost(*(f"{output['staging']}/{name}" for name in names))))
        return self._publish(account, release, attempt, output, ledger)

    def _committed(self, account: Account, release: str, attempt: int):
        ledger = f"{account.releases[release].output['prefix']}.ledger.json"
        self.moments.append(("commit", self.lost(ledger, *_of_output(ledger))))
        return self._commit(account, release, attempt)


def _of_output(ledger: str) -> list[str]:
    """Files of the output whose ledger is this one."""
    prefix = pathlib.Path(ledger.removesuffix(".ledger.json"))
    files = [*prefix.parent.glob(f"{prefix.name}*-of-*"), *prefix.parent.glob(f"{prefix.name}.*.parquet")]
    assert files
    return [str(file) for file in files]


@contextlib.contextmanager
def loop_mount(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """An ext4 in a file, mounted; skips the test where none may be mounted."""
    missing = [name for name in ("mkfs.ext4", "mount", "losetup") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"no loop mount here: {', '.join(missing)} not installed")
    image, place = folder / "image", folder / "disk"
    place.mkdir()
    with open(image, "wb") as file:
        file.truncate(100 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
    mounted = subprocess.run(["mount", "-o", "loop", image, place], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"no loop mount here: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


def cut_power(place: pathlib.Path) -> None:
    """What the disk below a `loop_mount` holds at this moment becomes what is mounted there."""
    image, copy = place.parent / "image", place.parent / "copy"
    shutil.copyfile(image, copy)
    subprocess.run(["umount", place], check=True)
    os.replace(copy, image)
    subprocess.run(["mount", "-o", "loop", image, place], check=True)
