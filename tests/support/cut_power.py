"""Commands whose power is cut at every write: what their disk may hold then, and what the next commands make of it.

    python -m tests.support.cut_power FOLDER SCENARIO [IMAGES]

A recorder in the process of the command looks at its folder before every change of a name, and around every flush. Of
a power cut at such a moment it knows what the disk must hold, for it was flushed, and what it may hold: any of the
changes of names since, of which a rename is one, and of each file that was not flushed all, a half or nothing.
A database of SQLite holds its transactions: that is its own promise, for which `dpbeam.budget.store` asks.
The machine that starts again has another number of its boot: nobody knows whether the processes of before live.
Prints a JSON list with what was found after each; IMAGES is the most that are tried, chosen by a seed.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pathlib
import pickle
import random
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from dpbeam.cli import main
from dpbeam.storage import processes
from tests.support import kill_at, kill_series
from tests.support.kill_at import in_child

_CHANGES = ("open", "os.chmod", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.truncate")
_ROOT = 0  # number of the folder in which all lies
#: Path -> permissions and content; None of a folder.
Image = dict[str, tuple[int, bytes | None]]
#: Names of every folder: its number -> name -> number.
Names = dict[int, dict[str, int]]
#: A change of names: of a folder, name and number that go, and of those that come.
Change = tuple[tuple[int, str, int] | None, tuple[int, str, int] | None]


def _apply(names: Names, change: Change) -> None:
    gone, new = change
    if gone is not None and names.get(gone[0], {}).get(gone[1]) == gone[2]:
        del names[gone[0]][gone[1]]
    if new is not None:
        names.setdefault(new[0], {})[new[1]] = new[2]


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

    def image(self, changes: Callable[[], bool], content: Callable[[bytes, bytes], bytes]) -> Image:
        """One that the disk may hold.

        Args:
          changes: whether a change was made; asked for each in order.
          content: what a file holds, from what was flushed and what was written.
        """
        names = {number: dict(entries) for number, entries in self.kept.items()}
        for change in self.changes:
            if changes():
                _apply(names, change)
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
            yield path, (self.modes[child], old if old == new else content(old, new))

    @property
    def whole(self) -> Image:
        """All that was written: what a killed process leaves."""
        return self.image(lambda: True, lambda old, new: new)

    def images(self, chance: random.Random) -> Iterator[Image]:
        yield self.whole
        yield self.image(lambda: False, lambda old, new: old)
        yield self.image(lambda: True, lambda old, new: old)
        yield self.image(lambda: False, lambda old, new: new)
        for _ in range(3):
            yield self.image(
                lambda: chance.random() < 0.5,
                lambda old, new: chance.choice([old, new, new[: len(new) // 2]]),
            )


class Recorder:
    """From its making on, all that this process and its threads write to the working folder."""

    def __init__(self) -> None:
        self.moments: list[Moment] = []
        self._numbers: dict[int, int] = {}  # of inodes
        self._last = _ROOT
        self._modes: dict[int, int] = {}
        self._lock, self._busy = threading.RLock(), False
        self._root = os.getcwd()
        self._names, self._live = self._scan()
        self._kept = {number: dict(entries) for number, entries in self._names.items()}
        self._flushed = dict(self._live)
        self._changes: list[Change] = []
        self._fsync = os.fsync
        os.fsync = self._flush
        sys.addaudithook(self._audited)

    def look(self) -> None:
        """Something may have changed since."""
        with self._lock:
            if self._busy:
                return
            self._busy = True
            try:
                before = set(_places(self._names))
                self._names, written = self._scan()
                self._live.update(written)  # also of files whose names are gone
                self._note(before, set(_places(self._names)))
                self._add()
            finally:
                self._busy = False

    def _note(self, before: set[tuple[int, str, int]], now: set[tuple[int, str, int]]) -> None:
        gone = {place[2]: place for place in before - now}
        for new in sorted(now - before):
            change = (gone.pop(new[2], None), new)
            self._changes.append(change)
        replaced = {place[:2] for place in now - before}
        self._changes += [(place, None) for place in gone.values() if place[:2] not in replaced]

    def _add(self) -> None:
        for number, name in _databases(self._names):
            self._flushed[number] = self._live[number]
            self._kept[_ROOT][name] = number
        moment = Moment(
            {number: dict(entries) for number, entries in self._kept.items()},
            tuple(self._changes),
            dict(self._flushed),
            dict(self._live),
            dict(self._modes),
        )
        if not self.moments or self.moments[-1] != moment:
            self.moments.append(moment)

    def _scan(self) -> tuple[Names, dict[int, bytes]]:
        names: Names = {}
        contents: dict[int, bytes] = {}
        seen = set()
        pending = [(self._root, _ROOT)]
        while pending:
            folder, number = pending.pop()
            entries = names.setdefault(number, {})
            for entry in os.scandir(folder):
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
                else:
                    contents[child] = pathlib.Path(entry.path).read_bytes()
        self._numbers = {inode: number for inode, number in self._numbers.items() if inode in seen}
        return names, contents

    def _audited(self, event: str, _: tuple[Any, ...]) -> None:
        if event in _CHANGES and not self._busy:
            self.look()

    def _flush(self, descriptor: int) -> None:
        self.look()
        self._fsync(descriptor)
        with self._lock:
            number = self._numbers.get(os.fstat(descriptor).st_ino)
            if os.path.samestat(os.fstat(descriptor), os.stat(self._root)):
                number = _ROOT
            if number in self._live:
                self._flushed[number] = self._live[number]
            elif number is not None:
                for change in [c for c in self._changes if number in {place[0] for place in c if place}]:
                    self._changes.remove(change)
                    _apply(self._kept, change)
            self._add()


def _places(names: Names) -> Iterator[tuple[int, str, int]]:
    for folder, entries in names.items():
        for name, number in entries.items():
            yield folder, name, number


def _databases(names: Names) -> Iterator[tuple[int, str]]:
    return ((number, name) for name, number in names[_ROOT].items() if name.endswith(".db"))


def recorded(argv: list[str]) -> list[Moment]:
    """The moments of a command that comes to its end."""
    with contextlib.ExitStack() as removed:
        place = pathlib.Path("..", f"moments-{os.getpid()}").resolve()
        removed.callback(place.unlink)

        def work() -> int:
            recorder = Recorder()
            code = main(argv)
            recorder.look()
            place.write_bytes(pickle.dumps(recorder.moments))
            return code

        assert in_child(work) == 0
        return pickle.loads(place.read_bytes())


def put(image: Image) -> None:
    """The working folder holds this, and nothing else."""
    for entry in os.scandir():
        shutil.rmtree(entry.path) if entry.is_dir() else os.remove(entry.path)
    for path, (mode, content) in image.items():
        if content is None:
            os.mkdir(path)
        else:
            pathlib.Path(path).write_bytes(content)
        os.chmod(path, mode)


def after(argv: list[str]) -> int:
    """Exit code of a command on the machine that was started again."""

    def work() -> int:
        processes._host = lambda: "started again"  # type: ignore[assignment]
        return main(argv)

    return in_child(work)


#: Of every command that is cut, and given again then.
_RELEASE = [
    *("--input=pairs.csv", "--user_column=u", "--item_column=i", "--epsilon=0.5", "--delta=1e-6"),
    *("--output=out/k", "--output_format=text", "--quiet"),
]
_ACCOUNT = ["--budget=b.db", "--dataset=k", "--release_id=night"]
_CHARGED = [*_RELEASE, *_ACCOUNT, "--result_file=k.json"]
_RESOLVE = ["budget", "resolve", *_ACCOUNT, "--quiet"]
_VERIFY = ["verify", "--contents", "--quiet", "out/k.ledger.json"]
COMMANDS = {
    "select": ["select", *_CHARGED, "--method=basic"],
    "overwrite": ["select", *_CHARGED, "--method=basic", "--overwrite"],
    "top-k": ["top-k", *_CHARGED, "--k=2", "--selector=basic"],
    "resolve": ["select", *_CHARGED, "--method=basic"],
    "checkpoint": ["select", *_CHARGED, "--method=dp-sips", "--checkpoint=c", "--passes_per_job=1"],
}


def prepare(name: str) -> list[str]:
    """The folder before the command, and the command."""
    # The noise decides which items are released.
    rows = [f"u{(7 * n + item) % 600},i{item}" for item in range(25) for n in range(8 * item)]
    pathlib.Path("pairs.csv").write_text("\n".join(["u,i", *rows]) + "\n")
    os.mkdir("c")
    if name != "checkpoint":
        kill_at.stand_in()
    argv = COMMANDS[name]
    limit = ["--epsilon=0.5", "--delta=1e-6", "--quiet"]  # one release fits, and no other
    assert main(["budget", "create", "--budget=b.db", "--dataset=k", *limit]) == 0
    assert main([*argv, "--dry_run"]) == 0  # what this process has loaded and calibrated, its forks have
    if name == "overwrite":
        assert in_child(lambda: main(["select", *_RELEASE, "--method=basic", "--result_file=k.json"])) == 0
    if name != "resolve":
        return argv
    put(next(moment.whole for moment in recorded(argv) if _out(moment)))
    return _RESOLVE


def _out(moment: Moment) -> dict[str, str]:
    """Shards that somebody may have read."""
    image = moment.whole
    return {path: data.decode() for path, (_, data) in image.items() if path.startswith("out/k-") and data}


def of_release(name: str, most: int) -> list[dict[str, Any]]:
    """A release that is paid for: what the command makes of every image, perhaps after `budget resolve`."""
    moments = recorded(prepare(name))
    steps: list[dict[str, Any]] = []
    before, told = _out(moments[0]) if name == "overwrite" else {}, moments[0].whole.get("k.json")
    for number, (image, at) in enumerate(chosen(moments, name, most)):
        seen = [_out(moment).items() for moment in moments[: at + 1]]
        step: dict[str, Any] = {"moment": at, "done": at == len(moments) - 1}
        step["seen"] = dict(entry for entries in seen for entry in entries if entry not in before.items())
        step["tells of before"] = bool(step["seen"]) and told is not None and image.get("k.json") == told
        put(image)
        if step["done"]:
            step["kept"] = after(_VERIFY)
        if number % 2:
            step["resolve"] = after(_RESOLVE)
        step["codes"] = [after(COMMANDS[name]), after(COMMANDS[name]), after(_VERIFY)]
        step |= kill_at.state("b.db", "k", "out/k")
        step["result"] = json.loads(pathlib.Path("k.json").read_text())["budget"]
        step["staged"] = sorted(map(str, pathlib.Path("out").glob("*staging-*/[!o]*")))  # beside `owner.json`
        steps.append(step)
    return steps


def of_series(name: str, most: int) -> list[dict[str, Any]]:
    """A command of a series: what it and those after it make of every image, beside what they make undisturbed."""
    kill_series.prepare()
    commands = {name: ["series", *argv, "--quiet"] for name, argv in kill_series.COMMANDS.items()}
    del commands["again"]  # where a file was taken away
    names = list(commands)
    for earlier in names[: names.index(name)]:
        assert in_child(functools.partial(main, commands[earlier])) == 0
    moments = recorded(commands[name])
    undisturbed = kill_series.look()
    later = names[names.index(name) + 1 :]
    for next in later:
        assert in_child(functools.partial(main, commands[next])) == 0
    expected = kill_series.items()
    steps: list[dict[str, Any]] = []
    for image, at in chosen(moments, name, most):
        put(image)
        step: dict[str, Any] = {"moment": at, "done": at == len(moments) - 1}
        if step["done"]:
            step["lost"] = kill_series.differ(undisturbed, kill_series.look())
        step["codes"] = [after(commands[name])]
        if name != "open":  # each has a name and a key of its own
            step["differs"] = kill_series.differ(undisturbed, kill_series.look())
        step["codes"] += [after(commands[next]) for next in later]
        step["items"] = kill_series.items() == expected
        step["charged"] = kill_series.look()["charged"]
        steps.append(step)
    return steps


def chosen(moments: list[Moment], seed: str, most: int) -> list[tuple[Image, int]]:
    """So many images, with the latest moment that may leave each, and one more that the end may leave."""
    chance = random.Random(seed)
    images = {pickle.dumps(image): at for at, moment in enumerate(moments) for image in moment.images(chance)}
    end = [image for image, at in images.items() if at == len(moments) - 1]
    kept = chance.sample(list(images), min(most, len(images)))
    kept = list(dict.fromkeys([*kept, *chance.sample(end, 1)]))
    return [(pickle.loads(image), images[image]) for image in kept]


if __name__ == "__main__":
    os.chdir(sys.argv[1])
    os.mkdir("disk")
    os.chdir("disk")
    os.umask(0o022)
    command = sys.argv[2]
    cut = of_release if command in COMMANDS else of_series
    print(json.dumps(cut(command, int(sys.argv[3]) if sys.argv[3:] else 10**9)))
