"""Commands whose power is cut at every write: what their disk may hold then, and what the next commands make of it.

    python -m tests.support.cut_power FOLDER SCENARIO [IMAGES]

A recorder in the process of the command looks at its folder before every change of a name, and around every flush.
What the disk may hold after a power cut at such a moment, `tests.support.disk` says. The machine that starts again has
another number of its boot: nobody knows whether the processes of before live.
Prints a JSON list with what was found after each; IMAGES is the most that are tried, chosen by a seed.
"""

from __future__ import annotations

import functools
import json
import os
import pathlib
import pickle
import random
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner

from dpbeam.cli import main
from dpbeam.storage import processes
from tests.support import kill_at, series_nights
from tests.support.disk import Disk, Image, Moment, put
from tests.support.kill_at import from_child, in_child
from tests.support.quick_runner import QuickRunner

_CHANGES = ("open", "os.chmod", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.truncate")


class Recorder:
    """From its making on, all that this process and its threads write to the working folder."""

    def __init__(self) -> None:
        self.moments: list[Moment] = []
        self._lock, self._busy = threading.RLock(), False
        self._disk = Disk(os.getcwd(), (".db",), reads_all=True)
        self._fsync = os.fsync
        os.fsync = self._flush
        sys.addaudithook(self._audited)

    def look(self) -> None:
        """Something may have changed since."""
        self._after(self._disk.look)

    def _after(self, step: Callable[[], None]) -> None:
        """Take down what the disk may hold after a step."""
        with self._lock:
            if self._busy:
                return
            self._busy = True
            try:
                step()
                moment = self._disk.moment()
                if not self.moments or self.moments[-1] != moment:
                    self.moments.append(moment)
            finally:
                self._busy = False

    def _audited(self, event: str, _: tuple[Any, ...]) -> None:
        if event in _CHANGES and not self._busy:
            self.look()

    def _flush(self, descriptor: int) -> None:
        self.look()
        self._fsync(descriptor)
        self._after(lambda: self._disk.flush(os.fstat(descriptor).st_ino))


def whole(moment: Moment) -> Image:
    """All that was written: what a killed process leaves."""
    return moment.image(moment.names(lambda: True), lambda old, new: new)


def images(moment: Moment, chance: random.Random) -> Iterator[Image]:
    """Some that the disk may hold, the extremes among them."""
    yield whole(moment)
    yield moment.image(moment.names(lambda: False), lambda old, new: old)
    yield moment.image(moment.names(lambda: True), lambda old, new: old)
    yield moment.image(moment.names(lambda: False), lambda old, new: new)
    for _ in range(3):
        yield moment.image(
            moment.names(lambda: chance.random() < 0.5),
            lambda old, new: chance.choice([old, new, new[: len(new) // 2]]),
        )


def recorded(argv: list[str]) -> list[Moment]:
    """The moments of a command that comes to its end."""

    def work() -> list[Moment]:
        recorder = Recorder()
        assert main(argv) == 0
        recorder.look()
        return recorder.moments

    return from_child(work)


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
    if name == "checkpoint":
        FnApiRunner.run_pipeline = QuickRunner.run_pipeline  # type: ignore[method-assign]
    else:
        kill_at.stand_in()
    argv = COMMANDS[name]
    limit = ["--epsilon=0.5", "--delta=1e-6", "--quiet"]  # one release fits, and no other
    assert main(["budget", "create", "--budget=b.db", "--dataset=k", *limit]) == 0
    assert main([*argv, "--dry_run"]) == 0  # what this process has loaded and calibrated, its forks have
    if name == "overwrite":
        assert in_child(lambda: main(["select", *_RELEASE, "--method=basic", "--result_file=k.json"])) == 0
    if name != "resolve":
        return argv
    put(next(whole(moment) for moment in recorded(argv) if _out(moment)))
    return _RESOLVE


def _out(moment: Moment) -> dict[str, str]:
    """Shards that somebody may have read."""
    image = whole(moment)
    return {path: data.decode() for path, (_, data) in image.items() if path.startswith("out/k-") and data}


def of_release(name: str, most: int) -> list[dict[str, Any]]:
    """A release that is paid for: what the command makes of every image, perhaps after `budget resolve`."""
    moments = recorded(prepare(name))
    steps: list[dict[str, Any]] = []
    before, told = _out(moments[0]) if name == "overwrite" else {}, whole(moments[0]).get("k.json")
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
    series_nights.prepare()
    commands = {name: ["series", *argv, "--quiet"] for name, argv in series_nights.COMMANDS.items()}
    names = list(commands)
    for earlier in names[: names.index(name)]:
        assert in_child(functools.partial(main, commands[earlier])) == 0
    moments = recorded(commands[name])
    undisturbed = series_nights.look()
    later = names[names.index(name) + 1 :]
    for next in later:
        assert in_child(functools.partial(main, commands[next])) == 0
    expected = series_nights.items()
    steps: list[dict[str, Any]] = []
    for image, at in chosen(moments, name, most):
        put(image)
        step: dict[str, Any] = {"moment": at, "done": at == len(moments) - 1}
        if step["done"]:
            step["lost"] = series_nights.differ(undisturbed, series_nights.look())
        step["codes"] = [after(commands[name])]
        if name != "open":  # each has a name and a key of its own
            step["differs"] = series_nights.differ(undisturbed, series_nights.look())
        step["codes"] += [after(commands[next]) for next in later]
        step["items"] = series_nights.items() == expected
        step["charged"] = series_nights.look()["charged"]
        steps.append(step)
    return steps


def chosen(moments: list[Moment], seed: str, most: int) -> list[tuple[Image, int]]:
    """So many images, with the latest moment that may leave each, and one more that the end may leave."""
    chance = random.Random(seed)
    latest = {
        pickle.dumps(image): at for at, moment in enumerate(moments) for image in images(moment, chance)
    }
    end = [image for image, at in latest.items() if at == len(moments) - 1]
    kept = chance.sample(list(latest), min(most, len(latest)))
    kept = list(dict.fromkeys([*kept, *chance.sample(end, 1)]))
    return [(pickle.loads(image), latest[image]) for image in kept]


def cut(folder: str, command: str, most: int) -> list[dict[str, Any]]:
    """What was found after each image of a command in a new folder `disk`, where this process works from now on."""
    os.mkdir(os.path.join(folder, "disk"))
    os.chdir(os.path.join(folder, "disk"))
    os.umask(0o022)
    return (of_release if command in COMMANDS else of_series)(command, most)


if __name__ == "__main__":
    print(json.dumps(cut(sys.argv[1], sys.argv[2], int(sys.argv[3]) if sys.argv[3:] else 10**9)))
