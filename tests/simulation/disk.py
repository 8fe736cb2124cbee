"""A disk whose power is cut: what was flushed it holds, and of what was not any part.

Of the names that changed since their folder was flushed each change may be there or not, of which a rename is one; of a
file that was not flushed all, a half or nothing. A database of SQLite holds its transactions: that is its own promise,
for which `dpbeam.budget.store` asks. So does the input, which is nobody's concern here.
"""

from __future__ import annotations

import os
import pathlib
import random
import shutil
from collections.abc import Iterator

_ROOT = 0  # number of the folder in which all lies
#: Names of every folder: its number -> name -> number.
Names = dict[int, dict[str, int]]
#: A change of names: of a folder, name and number that go, and of those that come.
Change = tuple[tuple[int, str, int] | None, tuple[int, str, int] | None]


class Disk:
    """A folder as it is, and what of it would outlive a power cut. `look` is to be called before every change."""

    def __init__(self, root: str):
        self._root = root
        self._numbers: dict[int, int] = {}  # of inodes
        self._stamps: dict[int, tuple[int, int]] = {}
        self._last = _ROOT
        self._modes: dict[int, int] = {}
        self._live: dict[int, bytes] = {}
        self._names = self._scan()
        self._kept = {number: dict(entries) for number, entries in self._names.items()}
        self._flushed = dict(self._live)
        self._changes: list[Change] = []

    def look(self) -> None:
        """Something may have changed since."""
        before = set(_places(self._names))
        self._names = self._scan()
        now = set(_places(self._names))
        gone = {place[2]: place for place in before - now}
        for new in sorted(now - before):
            self._changes.append((gone.pop(new[2], None), new))
        replaced = {place[:2] for place in now - before}
        self._changes += [(place, None) for place in sorted(gone.values()) if place[:2] not in replaced]
        for name, number in self._names[_ROOT].items():
            if name.endswith((".db", ".csv")):
                self._flushed[number] = self._live[number]
                self._kept[_ROOT][name] = number

    def flush(self, inode: int) -> None:
        """A file or folder is flushed."""
        self.look()
        number = _ROOT if os.stat(self._root).st_ino == inode else self._numbers.get(inode)
        if number in self._live:
            self._flushed[number] = self._live[number]
        elif number is not None:
            for change in [c for c in self._changes if number in {place[0] for place in c if place}]:
                self._changes.remove(change)
                _apply(self._kept, change)

    def cut(self, chance: random.Random) -> None:
        """The power is cut: the folder holds what a disk may hold then."""
        self.look()
        names = {number: dict(entries) for number, entries in self._kept.items()}
        share = chance.choice([0, 0.5, 1])
        for change in self._changes:
            if chance.random() < share:
                _apply(names, change)
        content = chance.choice(["old", "new", "half", "any"])
        image = dict(self._image(names, "", _ROOT, chance, content))
        for entry in os.scandir(self._root):
            shutil.rmtree(entry.path) if entry.is_dir() else os.remove(entry.path)
        for path, (mode, data) in image.items():
            place = pathlib.Path(self._root, path)
            place.mkdir() if data is None else place.write_bytes(data)
            place.chmod(mode)

    def _image(
        self, names: Names, folder: str, number: int, chance: random.Random, content: str
    ) -> Iterator[tuple[str, tuple[int, bytes | None]]]:
        for name, child in sorted(names.get(number, {}).items()):
            path = f"{folder}{name}"
            if child not in self._live:
                yield path, (self._modes[child], None)
                yield from self._image(names, f"{path}/", child, chance, content)
                continue
            old, new = self._flushed.get(child, b""), self._live[child]
            versions = {"old": old, "new": new, "half": new[: len(new) // 2]}
            made = versions.get(content) if content != "any" else chance.choice(list(versions.values()))
            yield path, (self._modes[child], new if old == new else made)

    def _scan(self) -> Names:
        names: Names = {}
        seen = set()
        pending = [(self._root, _ROOT)]
        while pending:
            folder, number = pending.pop()
            entries = names.setdefault(number, {})
            for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
                if entry.name.endswith("-journal"):
                    continue
                status = entry.stat(follow_symlinks=False)
                seen.add(status.st_ino)
                if status.st_ino not in self._numbers:
                    self._last += 1
                    self._numbers[status.st_ino] = self._last
                child = entries[entry.name] = self._numbers[status.st_ino]
                self._modes[child] = status.st_mode & 0o7777
                if entry.is_dir(follow_symlinks=False):
                    pending.append((entry.path, child))
                elif self._stamps.get(child) != (stamp := (status.st_mtime_ns, status.st_size)):
                    self._stamps[child] = stamp
                    self._live[child] = pathlib.Path(entry.path).read_bytes()
        self._numbers = {inode: number for inode, number in self._numbers.items() if inode in seen}
        return names


def _apply(names: Names, change: Change) -> None:
    gone, new = change
    if gone is not None and names.get(gone[0], {}).get(gone[1]) == gone[2]:
        del names[gone[0]][gone[1]]
    if new is not None:
        names.setdefault(new[0], {})[new[1]] = new[2]


def _places(names: Names) -> Iterator[tuple[int, str, int]]:
    for folder, entries in names.items():
        for name, number in entries.items():
            yield folder, name, number
