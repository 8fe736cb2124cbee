"""A folder, and what of it a power cut may leave.

Of a power cut one knows what the disk must hold, for it was flushed, and what it may hold: any of the changes of names
since, of which a rename is one, and of each file that was not flushed all, a half or nothing. A database of SQLite
holds its transactions: that is its own promise, for which `dpbeam.budget.store` asks.
"""

from __future__ import annotations

import os
import pathlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_ROOT = 0  # number of the folder in which all lies
#: Path -> permissions and content; None of a folder.
Image = dict[str, tuple[int, bytes | None]]
#: Names of every folder: its number -> name -> number.
Names = dict[int, dict[str, int]]
#: A change of names: of a folder, name and number that go, and of those that come.
Change = tuple[tuple[int, str, int] | None, tuple[int, str, int] | None]


@dataclass(frozen=True)
class Moment:
    """What a disk must hold, and what may be there besides.

    Attributes:
      kept: names that were flushed; changes: those since, in order.
      flushed, live: contents by the number of the file: what was flushed, and what was written.
      modes: permissions by number.
    """

    kept: Names
    changes: tuple[Change, ...]
    flushed: dict[int, bytes]
    live: dict[int, bytes]
    modes: dict[int, int]

    def names(self, changes: Callable[[], bool]) -> Names:
        """Names that the disk may hold; `changes`: whether a change was made, asked for each in order."""
        names = _copied(self.kept)
        for change in self.changes:
            if changes():
                _apply(names, change)
        return names

    def image(self, names: Names, content: Callable[[bytes, bytes], bytes]) -> Image:
        """What the disk may hold under these names.

        Args:
          content: what a file holds, from what was flushed and what was written; asked for each.
        """
        return dict(self._walk(names, content, "", _ROOT))

    def _walk(
        self, names: Names, content: Callable[[bytes, bytes], bytes], folder: str, number: int
    ) -> Iterator[tuple[str, tuple[int, bytes | None]]]:
        for name, child in sorted(names.get(number, {}).items()):
            path = f"{folder}{name}"
            if child not in self.live:
                yield path, (self.modes[child], None)
                yield from self._walk(names, content, f"{path}/", child)
                continue
            old, new = self.flushed.get(child, b""), self.live[child]
            held = content(old, new)
            yield path, (self.modes[child], new if old == new else held)


class Disk:
    """A folder as it is, and what of it would outlive a power cut. `look` is to be called before every change.

    Args:
      safe: ends of names in the folder itself whose files hold what was written to them.
      reads_all: read every file at each look, also where neither its time nor its size has changed.
    """

    def __init__(self, root: str, safe: tuple[str, ...], *, reads_all: bool):
        self._root, self._safe, self._reads_all = root, safe, reads_all
        self._numbers: dict[int, int] = {}  # of inodes
        self._stamps: dict[int, tuple[int, int]] = {}
        self._last = _ROOT
        self._modes: dict[int, int] = {}
        self._live: dict[int, bytes] = {}  # also of files whose names are gone
        self._names = self._scan()
        self._kept = _copied(self._names)
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
            if name.endswith(self._safe):
                self._flushed[number] = self._live[number]
                self._kept[_ROOT][name] = number

    def flush(self, inode: int) -> None:
        """A file or folder is flushed as it was at the last look."""
        number = _ROOT if os.stat(self._root).st_ino == inode else self._numbers.get(inode)
        if number in self._live:
            self._flushed[number] = self._live[number]
        elif number is not None:
            for change in [c for c in self._changes if number in {place[0] for place in c if place}]:
                self._changes.remove(change)
                _apply(self._kept, change)

    def moment(self) -> Moment:
        """As of the last look."""
        contents = dict(self._flushed), dict(self._live)
        return Moment(_copied(self._kept), tuple(self._changes), *contents, dict(self._modes))

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
                stamp = status.st_mtime_ns, status.st_size
                if entry.is_dir(follow_symlinks=False):
                    pending.append((entry.path, child))
                elif self._reads_all or self._stamps.get(child) != stamp:
                    self._stamps[child] = stamp
                    self._live[child] = pathlib.Path(entry.path).read_bytes()
        self._numbers = {inode: number for inode, number in self._numbers.items() if inode in seen}
        return names


def put(image: Image) -> None:
    """The working folder holds this, and nothing else."""
    for entry in os.scandir():
        shutil.rmtree(entry.path) if entry.is_dir() else os.remove(entry.path)
    for path, (mode, content) in image.items():
        place = pathlib.Path(path)
        place.mkdir() if content is None else place.write_bytes(content)
        place.chmod(mode)


def _copied(names: Names) -> Names:
    return {number: dict(entries) for number, entries in names.items()}


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
