"""What is simulated of a seed: a command with its input and account, faults, and what comes after; and the oracle."""

from __future__ import annotations

import contextlib
import csv
import functools
import gc
import hashlib
import importlib
import io
import itertools
import json
import os
import pathlib
import random
import re
import shutil
import sqlite3
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow.parquet as pq

import dpbeam
from dpbeam.cli import main
from dpbeam.review.verification import check_ledger
from tests.simulation import inside, runner, world
from tests.simulation.world import Fault, Process, Violation, World
from tests.support import quick_beam
from tests.support.kill_at import from_child, in_child
from tests.support.plans import PLANS

Columns = dict[str, list[Any]]
#: What is released: rows with the names of their columns.
Rows = frozenset[tuple[tuple[str, str | float], ...]]
_BUDGET = {"epsilon": 8.0, "delta": 1e-4}
#: What of a file nobody else may read: how the names of users begin, and of items that are one user's alone.
_USER, _OWN = b"user-", b"rare-"
#: A store has no files of one owner alone: the shares are told by their name.
_PRIVATE_ON_STORE = tuple(
    f"s3://bucket/{start}" for start in ("private/", "kept/", "out/x.not_for_publication-")
)
#: Of a packing, whose shares are for each agent alone, the prices are the output that others read, in one file.
_SHARD = re.compile(r"(out/x(?:-\d)?)(?:(?:\.not_for_publication)?-\d{5}-of-(\d{5})\.csv|\.prices\.parquet)$")
#: Of Python: what a command works on is gone, or it is wrong itself.
_RAW = re.compile(r"\b(FileNotFound|Attribute|Assertion|Index|Key|Name|Type|Unbound\w*)Error\b")
_STAGED = re.compile(r"/(?:shard-\d{5}-of-\d{5}\.csv|extra-prices\.parquet)$")
_LEDGER = "out/x.ledger.json"
_RELEASE = ["--budget=b.db", "--dataset=logs", "--release_id=night"]
_MOST = 6  # attempts at a command
_NIGHTS = 2
_ERASED = ["user-0", "user-12", "user-20"]


def pairs_of(version: int) -> Columns:
    """The input: items that many hold, some that a few do, and one of each user's own.

    In each version the same users hold as many, but others: no number of rows tells one from another.
    """
    held = [(n, f"c{(item + version) % 9}") for n in range(40) for item in range(9) if n % (item + 1) == 0]
    own = [(n, f"rare-{n}-{version}") for n in range(0, 40, 3)]
    users, items = zip(*held, *own)
    return {"u": [f"user-{n}" for n in users], "i": list(items)}


def agents_of(version: int) -> Columns:
    """The input of a packing: the same agents in each version, with other values and demands."""
    agents = range(40)
    return {
        "agent": [f"user-{n}" for n in agents],
        "value": [(7 * n + 3 * version) % 11 / 10 for n in agents],
        "beds": [float((n + version) % 3 > 0) for n in agents],
        "hours": [(5 * n + version) % 9 / 8 for n in agents],
    }


_SUPPLIES = {"beds": 15, "hours": 12}
_PACKING: dict[str, Any] = {"alpha": 0.5, "start_rounds": 2, "max_rounds": 4}


@dataclass(frozen=True)
class Command:
    """A command that is simulated.

    Attributes:
      flags: its name and its own flags; expected: what it releases of its input, in memory.
      size: its operations and its tasks, about.
      read: flags of its input; columns: the input, of a version.
    """

    flags: tuple[str, ...]
    expected: Callable[[Any], Any]
    size: tuple[int, int]
    read: tuple[str, ...] = ("--input=pairs.csv", "--user_column=u", "--item_column=i")
    columns: Callable[[int], Columns] = pairs_of


def _in_memory(release: Callable[..., Any], **settings: Any) -> Callable[[Columns], Rows]:
    return lambda columns: rows_of(release(columns, user="u", item="i", **settings, **_BUDGET).table)


def _packed(agents: Columns) -> Rows:
    """Shares and prices."""
    result = dpbeam.pack(agents, supplies=_SUPPLIES, allow_small_supply=True, **_PACKING, **_BUDGET)
    return rows_of(result.table) | rows_of(result.prices.to_table())


def _select(method: str, size: tuple[int, int], *flags: str, **settings: Any) -> Command:
    named = [f"--set={name}={value}" for name, value in settings.items()]
    return Command(
        ("select", f"--method={method}", "--noisy_weights", *named, *flags),
        _in_memory(dpbeam.select, method=method, noisy_weights=True, **settings),
        size,
    )


COMMANDS = {
    "basic": _select("basic", (280, 12)),
    "gsu": _select("gsu", (390, 15), rounds=2),
    "mad": _select("mad", (370, 15)),
    "bits": Command(("select", "--method=bits"), _in_memory(dpbeam.select, method="bits"), (510, 20)),
    "vote": _select("vote", (850, 41)),
    "top-k": Command(
        ("top-k", "--k=3", "--noisy_counts"), _in_memory(dpbeam.top_k, k=3, noisy_counts=True), (990, 35)
    ),
    "hitting-set": Command(("hitting-set", "--k=2"), _in_memory(dpbeam.hitting_set, k=2), (920, 30)),
    "count": Command(
        ("count", "--domain=list.txt"),
        _in_memory(dpbeam.count, domain=[f"c{item}" for item in range(12)]),
        (510, 22),
    ),
    "overwrite": _select("basic", (270, 12), "--overwrite"),
    "series": Command(("series",), dpbeam.Series, (920, 27)),  # played by `Nights`
    "jobs": _select("dp-sips", (660, 31), "--checkpoint=kept", "--passes_per_job=1"),
    "pack": Command(
        ("pack", *(f"--{name}={value}" for name, value in _PACKING.items())),
        _packed,
        (610, 36),
        ("--agents=pairs.csv", "--supplies=supplies.json", "--allow_small_supply"),
        agents_of,
    ),
}


@dataclass(frozen=True)
class Story:
    """What happens.

    Attributes:
      seed: of all that is not said here; command: a key of `COMMANDS`; on_store: output and private folder lie there.
      shape: blocks, shards, and how they speak; faults: that strike; between: what is done after the first attempt.
    """

    seed: int
    command: str
    on_store: bool
    shape: tuple[int, int, str]
    faults: tuple[Fault, ...]
    between: str

    @classmethod
    def drawn(cls, seed: int, commands: list[str]) -> Story:
        chance = random.Random(f"story {seed}")
        command, on_store = chance.choice(commands), chance.random() < 0.3
        shape = chance.choice([(1, 1, "one step"), (2, 2, ""), (3, 2, ""), (2, 3, ""), (2, 2, "relays")])
        kinds = _ON_STORE if on_store else _ON_DISK
        operations, tasks = COMMANDS[command].size
        processes = _PROCESSES.get(command, [0, 0, 0, 0, 1, 1, 2])
        faults = []
        if chance.random() < 0.5:  # an attempt has not come to its end, or another begins before it has
            at = chance.randrange(operations)
            faults.append(Fault(chance.choice(processes[:4]), at, chance.choice([world.KILL, world.PAUSE])))
        for _ in range(chance.choice([1, 1, 2, 2, 3])):
            process = chance.choice(processes)
            if chance.random() < 0.35:
                at = chance.randrange(1, chance.choice([8, tasks]))
                faults.append(Fault(process, at, chance.choice(_OF_TASKS)))
            elif command != "series" and chance.random() < 0.4:
                commits = chance.choice(_COMMITS)
                faults.append(Fault(process, chance.randrange(_PUBLISHING), chance.choice(kinds), commits))
            else:  # a retry is short where little was left to do
                at = chance.randrange(chance.choice([operations // 8, operations]))
                faults.append(Fault(process, at, chance.choice(kinds)))
        between = chance.choice(["", "", "clean", "resolve", "other columns", *["renew"] * 3])
        return cls(seed, command, on_store, shape, tuple(sorted(faults)), between)

    def __str__(self) -> str:
        blocks, shards, how = self.shape
        place = "a store" if self.on_store else "the disk"
        lines = [
            f"seed {self.seed}: {self.command} on {place}, {blocks} blocks, {shards} shards, {how or 'directly'}"
        ]
        lines += [f"  {fault}" for fault in self.faults]
        return "\n".join(lines + [f"  between: {self.between}"] * bool(self.between))


#: Commits of the account around which a run reserves, publishes and ends, and about how far one is from the next.
_COMMITS, _PUBLISHING = (3, 4, 5, 5, 6, 6), 40
#: Of a series: opened, a night, its users erased, another night, closed. Of `overwrite` the first is undisturbed.
_PROCESSES = {"series": [1, 1, 1, 3, 0, 2, 2, 4, 5], "overwrite": [1, 1, 1, 1, 2, 2, 3]}
_OF_TASKS = (runner.TWICE, runner.SPECULATE, runner.LOST, *[runner.AGAIN] * 2, runner.DROPPED)
_ANYWHERE = (world.KILL, world.KILL, world.PAUSE, world.JUMP, world.STILL)
_ON_DISK = (*_ANYWHERE, world.KILL, world.POWER, world.POWER, world.FULL, world.LOCKED)
_ON_STORE = (*_ANYWHERE, world.BUSY, world.LOST_ANSWER, world.LOST_ANSWER)


@dataclass
class Oracle:
    """What is seen, and what is true.

    Attributes:
      seen: shards that others could read, at any time: (path, content).
      keys: that were made; drawn_by: the start of a key's digest -> process that drew with it last;
      window: of nights, whose own ledger has no shards;
      draws: (key, round, item) -> the sum that met the noise;
      true: the outputs that the keys give, each in its parts.
    """

    of: World | None = None
    seen: dict[tuple[str, bytes], None] = field(default_factory=dict)
    keys: list[bytes] = field(default_factory=list)
    drawn_by: dict[str, int] = field(default_factory=dict)
    draws: dict[tuple[str, str], int] = field(default_factory=dict)
    stamps: dict[str, Any] = field(default_factory=dict)
    unpaid: bool = False
    paid_for: bool = True
    before: set[bytes] = field(default_factory=set)
    window: bool = False
    true: Callable[[], list[list[Rows]]] = list
    inputs: frozenset[str] = frozenset(
        ["pairs.csv", "pairs.tmp", "list.txt", "users.txt", "supplies.json", "b.db", "b.db-journal"]
    )

    def begin_anew(self) -> None:
        """What was seen so far is of an earlier release."""
        self.before, self.paid_for = {data for _, data in self.seen}, True
        self.seen, self.keys, self.draws, self.drawn_by = {}, [], {}, {}

    def told(self, process: int, kind: str, *more: Any) -> None:
        if kind == "key":
            self.keys.append(more[0])
        elif kind == "drawn" and not self.window:  # what an attempt at a night has drawn goes with its folder
            place, sums = more
            self.drawn_by[place.partition(" ")[0]] = process
            assert self.of is not None
            files = [*self.of.objects.objects, *map(str, pathlib.Path("out").glob("x.staging-*/*"))]
            if staged := [path for path in files if _STAGED.search(path)]:
                raise Violation(f"noise is drawn while {staged} is there, another release")
            for item, units in sums.items():
                if self.draws.setdefault((place, item), units) != units:
                    raise Violation(
                        f"{place}: the noise of an item was drawn for {units} and for another sum"
                    )

    def _given(self, path: str, data: bytes) -> bool:
        """Whether a shard holds what a key gives: one user's own item is released with a probability of delta."""
        rows = frozenset(row for parts in self.true() for part in parts for row in part)
        return _SHARD.search(path) is not None and parsed({path: data}) <= rows

    def look(self) -> None:
        """What others can read now."""
        now = sorted(self._readable(), key=lambda each: (each[0].endswith(".json"), each[0]))
        before, self.stamps = self.stamps, {path: stamp for path, stamp, _ in now}
        for path, stamp, read in now:
            if before.get(path) == stamp:
                continue
            data = read()
            if _USER in data or (_OWN in data and not self._given(path, data)):
                raise Violation(f"{path} can be read by others, and holds private names")
            if path.endswith(".ledger.json"):
                self._check_whole(path)
            if (
                (_SHARD.search(path) or _STAGED.search(path))
                and parsed({path: data})
                and data not in self.before
            ):
                self.seen[path, data] = None
                self.unpaid = self.paid_for
        if self.unpaid:
            self._check_paid()

    def _readable(self) -> Iterator[tuple[str, Any, Callable[[], bytes]]]:
        assert self.of is not None
        for name, (version, data) in self.of.objects.objects.items():
            if not name.startswith(_PRIVATE_ON_STORE):
                yield name, version, lambda data=data: data
        folders = ["."]
        while folders:
            for entry in os.scandir(folders.pop()):
                status = entry.stat(follow_symlinks=False)
                path = entry.path.removeprefix("./")
                if path in self.inputs:
                    continue
                if stat.S_ISDIR(status.st_mode):
                    if status.st_mode & 0o005:
                        folders.append(path)
                elif status.st_mode & 0o004:
                    stamp = status.st_ino, status.st_mtime_ns, status.st_size
                    yield path, stamp, lambda path=path: pathlib.Path(path).read_bytes()

    def _check_whole(self, ledger: str) -> None:
        """It is the mark of an output that is complete; that of a window comes before any night."""
        found = [match for path in self.stamps if (match := _SHARD.search(path))]
        numbers = [int(match[2] or 1) for match in found if ledger.endswith(f"{match[1]}.ledger.json")]
        if len(set(numbers)) > 1 or len(numbers) != (numbers[0] if numbers else self.window):
            raise Violation(f"{ledger} is there before all shards are")

    def _check_paid(self) -> None:
        try:
            kinds = entries()
        except sqlite3.OperationalError:  # somebody is at work there: at the next look
            return
        self.unpaid = False
        if "publish" not in kinds or kinds.count("reserve") - kinds.count("return") != 1:
            raise Violation(f"a part of the output can be read, and the account says {kinds}")


def entries() -> list[str]:
    """Kinds of the account's entries of the release."""
    with contextlib.closing(sqlite3.connect("file:b.db?mode=ro", uri=True, timeout=0)) as account:
        rows = account.execute(
            "SELECT kind FROM dpbeam_budget_entries WHERE release_id = 'night' ORDER BY number"
        )
        return [kind for (kind,) in rows]


def parsed(shards: dict[str, bytes]) -> Rows:
    rows: list[Any] = []
    for path, data in shards.items():
        if path.endswith(".parquet"):
            rows += rows_of(pq.read_table(io.BytesIO(data)))
            continue
        for row in csv.DictReader(io.StringIO(data.decode())):
            rows.append(tuple(sorted((name, _number(value)) for name, value in row.items())))
    return frozenset(rows)


def _number(value: Any) -> str | float:
    try:
        return float(value)
    except ValueError:
        return str(value)


class Play:
    """A story as it is played, in a working folder of its own."""

    def __init__(self, story: Story):
        self.story = story
        self._version = 0
        self._began_with: dict[int, int] = {}  # process -> version of the input
        self._oracle = Oracle(true=self._true)

    def run(self, instead: Callable[[list[str]], int] | None = None) -> World:
        """Play it. Raises Violation.

        Args:
          instead: gets the command, in this process, and nothing is played.
        """
        before = os.getcwd()
        with _folder(self.story.seed) as folder:
            os.mkdir(f"{folder}/root")
            os.mkdir(f"{folder}/beside")
            os.chdir(f"{folder}/root")
            try:
                self.world = World(
                    f"{self.story.seed}",
                    list(self.story.faults),
                    self._oracle.look,
                    self._oracle.told,
                    f"{folder}/beside",
                )
                self.world.renew = self._renew
                self._oracle.of = self.world
                self._prepare()
                if instead is None:
                    self._play()
                else:
                    assert instead([word for word in self._argv() if word not in inside.RUNNER]) == 0
            finally:
                for process in self.world.processes:
                    self.world._end(process)
                os.chdir(before)
        return self.world

    @property
    def _base(self) -> str:
        return "s3://bucket/" if self.story.on_store else ""

    def _prepare(self) -> None:
        self._write(0)
        pathlib.Path("supplies.json").write_text(json.dumps(_SUPPLIES))
        pathlib.Path("list.txt").write_text("".join(f"c{item}\n" for item in range(12)))
        pathlib.Path("users.txt").write_text("".join(f"{user}\n" for user in _ERASED))
        for folder in ("private", "kept", "out"):
            os.mkdir(folder)
        os.chmod("kept", 0o700)
        shutil.copy(_account(), "b.db")

    def _write(self, version: int) -> None:
        columns = COMMANDS[self.story.command].columns(version)
        lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values()))]
        pathlib.Path("pairs.tmp").write_text("\n".join(lines) + "\n")
        os.rename("pairs.tmp", "pairs.csv")

    def _renew(self) -> None:
        self._version += 1
        self._write(self._version)

    def _argv(self) -> list[str]:
        first, *flags = COMMANDS[self.story.command].flags
        budget = [f"--{name}={value}" for name, value in _BUDGET.items()]
        places = [f"--output={self._base}out/x", f"--temp_location={self._base}private"]
        flags = [f"--checkpoint={self._base}kept" if f == "--checkpoint=kept" else f for f in flags]
        read = [*COMMANDS[self.story.command].read, "--output_format=csv", "--quiet"]
        return [first, *flags, *budget, *read, *places, *_RELEASE, *inside.RUNNER]

    def _play(self) -> None:
        for argv in self._commands():
            self._until_done(argv)
        self._check_output()

    def _commands(self) -> Iterator[list[str]]:
        """The commands that are given, each until it is done."""
        if self.story.command == "overwrite":  # an earlier output that nobody has paid for
            self._oracle.paid_for = False
            before = [word for word in self._argv() if word not in (*_RELEASE, "--overwrite")]
            assert self.world.run(before, self.story.shape).code == 0
            self._oracle.begin_anew()
        yield self._argv()

    def _until_done(self, argv: list[str]) -> None:
        """Give a command until it ends well, and nothing has struck it: once more is enough for that."""
        undisturbed = 0
        for attempt in range(_MOST):
            struck, number = len(self.world.struck), len(self.world.processes)
            version = self._version
            process = self.world.run(argv, self.story.shape)
            going = self.world.processes[number:]
            for each in going:
                self._check_end(each)
                self._began_with[each.number] = version
            quiet = struck == len(self.world.struck) and not any(
                fault.process in [each.number for each in going] for fault in self.story.faults
            )
            if process.code == 0 and quiet:
                return
            undisturbed += quiet
            if self._put_right(process):
                undisturbed = 0
            if undisturbed > 1:
                break
            if attempt == 0 and self.story.between:
                self._between()
        raise Violation(f"the retry does not end: {process.code} {process.said}")

    def _put_right(self, process: Process) -> bool:
        """What a person does who is told that the input has changed; whether there was anything."""
        told = self._version and "kept' holds a run of an input that has changed since" in process.said
        if told:
            argv = ["clean", f"--temp_location={self._base}kept", "--force", "--quiet"]
            self._check_end(self.world.run(argv, self.story.shape))
        return bool(told)

    def _between(self) -> None:
        if self.story.between == "renew":
            self._renew()
        elif self.story.between == "clean":
            self._clean()
        elif self.story.between == "other columns":
            self._give_other()
        else:
            argv = ["budget", "resolve", *_RELEASE, "--quiet"]
            self._check_end(self.world.run(argv, self.story.shape))

    def _give_other(self) -> None:
        """What was begun is not taken for the same with users and items exchanged. A series opens without columns."""
        exchanged = {"--user_column=u": "--user_column=i", "--item_column=i": "--item_column=u"}
        argv = [exchanged.get(word, word) for word in self._argv()]
        if argv == self._argv() or entries().count("reserve") == entries().count("return"):
            return
        process = self.world.run(argv, self.story.shape)
        self._check_end(process)
        if process.code == 0:
            raise Violation("a release goes on under other columns")

    def _clean(self, *flags: str) -> None:
        argv = [
            "clean",
            f"--temp_location={self._base}private",
            f"--output={self._base}out/x",
            "--quiet",
            *flags,
        ]
        while (process := self.world.run(argv, self.story.shape)).code == -9:
            pass
        self._check_end(process)

    def _clean_all(self) -> None:
        """Leftovers go, those of a machine that was switched off, or of a process that was killed before it gave its
        name or found no room for that, by --force.
        """
        self._clean()
        held = [path for path in self._files("private") if path.endswith("/key")]
        full = [fault for fault in self.story.faults if fault.kind == world.FULL]
        off = [fault for fault in self.world.struck if fault.kind == world.POWER]
        if held and not full and not off:
            raise Violation(f"clean leaves {held}")
        self._force_clean()
        if self._files("kept"):
            argv = ["clean", f"--temp_location={self._base}kept", "--force", "--quiet"]
            self._check_end(self.world.run(argv, self.story.shape))
            if rest := self._files("kept"):
                raise Violation(f"clean --force leaves {sorted(rest)}")

    def _force_clean(self) -> None:
        if self._left():
            self._clean("--force")
        if rest := self._files("private"):
            raise Violation(f"clean --force leaves {sorted(rest)}")

    def _left(self) -> list[str]:
        """What a run leaves beside what it published."""
        beside = [path for path in self._files("out") if ".not_for_" in path or ".staging-" in path]
        return [*self._files("private"), *beside]

    def _check_end(self, process: Process) -> None:
        lines = process.said.splitlines()
        errors = [line for line in lines if ": error: " in line]
        strange = [line for line in lines if not line.startswith("dpbeam ")]
        right = {0: 0, 1: 1, 2: 1}.get(process.code or 0, 0)
        if _RAW.search(process.said):
            raise Violation(f"no word of dpbeam's own: {process.said}")
        if process.code not in (0, 1, 2, -9) or strange or (process.code != -9 and len(errors) != right):
            raise Violation(
                f"{' '.join(process.argv[:2])} ended with {process.code} and said:\n{process.said}"
            )

    def _files(self, folder: str) -> dict[str, bytes]:
        if self.story.on_store:
            start = f"{self._base}{folder}/"
            return {
                n.removeprefix(self._base): data
                for n, (_, data) in self.world.objects.objects.items()
                if n.startswith(start)
            }
        files = pathlib.Path(folder).rglob("*")
        return {str(path): path.read_bytes() if path.is_file() else b"" for path in sorted(files)}

    def _check_output(self) -> None:
        self._clean_all()
        rows = self._published("out/x")
        if set(self._files("out")) != {*self._shards("out/x"), _LEDGER}:
            raise Violation(f"the output's folder holds {sorted(self._files('out'))}")
        self._check_true([rows])

    def _true(self) -> list[list[Rows]]:
        return [
            [self._expected(version, key)]
            for key in self._oracle.keys
            for version in range(self._first_version(key), self._version + 1)
        ]

    def _first_version(self, key: bytes) -> int:
        """The oldest input that whoever drew last with a key can have read."""
        last = self._oracle.drawn_by.get(hashlib.sha256(key).hexdigest()[:8], 0)
        return self._began_with.get(last, 0)

    def _check_true(self, published: list[Rows]) -> None:
        """What was published is what a key gives, of one input, and so is what could be read at any time."""
        if published not in (true := self._true()):
            raise Violation(
                f"what was published no key gives: {list(map(sorted, published))}; keys give {true}"
            )
        rows = frozenset(row for part in published for row in part)
        for path, data in self._oracle.seen:
            if not parsed({path: data}) <= rows:
                raise Violation(f"{path} could be read, and holds what was not released in the end")
        if not rows:
            raise Violation("the story releases nothing")
        if (kinds := entries()).count("reserve") - kinds.count("return") != 1 or kinds[-1] != "commit":
            raise Violation(f"the account says {kinds}")

    def _shards(self, prefix: str) -> dict[str, bytes]:
        files = self._files("out").items()
        return {path: data for path, data in files if (match := _SHARD.match(path)) and match[1] == prefix}

    def _published(self, prefix: str) -> Rows:
        """The rows of an output, which its ledger describes."""
        argv = ["verify", "--contents", "--quiet", f"{self._base}{prefix}.ledger.json"]
        while (process := self.world.run(argv, self.story.shape)).code == -9:
            self._clean_all()  # a power cut brings back what was removed
        if process.code != 0:
            raise Violation(f"verify says of {prefix}: {process.said}")
        return parsed(self._shards(prefix))

    def _expected(self, version: int, key: bytes) -> Rows:
        return expected(self.story.command, version, key)


class Nights(Play):
    """A series from its opening to its end, night by night, in this process or on an engine."""

    def __init__(self, story: Story):
        super().__init__(story)
        self._oracle.window = True
        self._versions = dict.fromkeys(range(1, _NIGHTS + 1), 0)
        self._night = 1

    def _write(self, version: int) -> None:
        self._versions[self._night] = max(self._version, self._versions[self._night])
        super()._write(version + 3 * self._night)

    def _renew(self) -> None:
        self._version = 1 - self._version
        self._write(self._version)

    def _commands(self) -> Iterator[list[str]]:
        folder = [f"--folder={self._base}kept/f", "--quiet"]
        yield self._argv()
        for night in self._versions:
            self._night, self._version = night, 0
            self._write(0)
            read = COMMANDS["series"].read
            engine = [*inside.RUNNER, "--num_shards=2", f"--temp_location={self._base}private"]
            engine = engine if self.story.shape[2] == "" else []
            yield ["series", "run", *folder, f"--night={self._night}", *read, *engine]
            if night == 1:
                yield ["series", "erase", *folder, "--users=users.txt"]
        yield ["series", "close", *folder]

    def _argv(self) -> list[str]:
        budget = [f"--{name}={value}" for name, value in _BUDGET.items()]
        places = [f"--folder={self._base}kept/f", f"--output={self._base}out/x", "--output_format=csv"]
        return [
            "series",
            "open",
            *places,
            f"--nights={_NIGHTS}",
            "--noisy_counts",
            *budget,
            *_RELEASE,
            "--quiet",
        ]

    def _put_right(self, process: Process) -> bool:
        """Whoever is told that a night was made from other pairs puts those back."""
        told = process.code == 2 and any(self._versions.values())
        if told:
            self._renew()
        return told

    def _clean_all(self) -> None:
        self._clean()
        self._force_clean()

    def _check_output(self) -> None:
        self._clean_all()
        published = [self._published(f"out/x-{night}") for night in self._versions]
        self._check_true(published)

    def _true(self) -> list[list[Rows]]:
        chosen = list(itertools.product(*(range(last + 1) for last in self._versions.values())))
        return [nights(key, versions) for key in self._oracle.keys for versions in chosen]


def nights(key: bytes, versions: tuple[int, ...]) -> list[Rows]:
    """What the nights of a series release, in memory."""
    made = []
    with inside.with_key(key):
        series = dpbeam.Series(nights=_NIGHTS, noisy_counts=True, user="u", item="i", **_BUDGET)
    for night, version in enumerate(versions, 1):
        made.append(rows_of(series.run(pairs_of(version + 3 * night)).table))
        if night == 1:
            series.erase(_ERASED)
    return made


@contextlib.contextmanager
def _folder(seed: int) -> Iterator[str]:
    """An empty folder, of the same name each time: names of files have an order."""
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir()
    folder = f"{place}/simulation-{seed}"
    try:
        os.mkdir(folder)
    except FileExistsError:  # another simulation, or one that was killed
        folder = tempfile.mkdtemp(prefix="simulation-", dir=place)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@functools.lru_cache(maxsize=1)
def _account() -> str:
    """A database with an account that one release fits into, and no other."""
    path = os.path.join(tempfile.mkdtemp(prefix="simulation-"), "b.db")
    limit = [*(f"--{name}={value}" for name, value in _BUDGET.items()), "--quiet"]
    assert in_child(lambda: main(["budget", "create", f"--budget={path}", "--dataset=logs", *limit])) == 0
    return path


def expected(command: str, version: int, key: bytes) -> Rows:
    """What a command releases of an input under a key, in memory."""
    with inside.with_key(key):
        return COMMANDS[command].expected(COMMANDS[command].columns(version))


def rows_of(table: Any) -> Rows:
    return frozenset(
        tuple(sorted((name, _number(value)) for name, value in row.items())) for row in table.to_pylist()
    )


def player(story: Story) -> Play:
    return (Nights if story.command == "series" else Play)(story)


@functools.lru_cache
def warm(command: str) -> None:
    """Load and calibrate what a command needs, for the forks of this process."""
    quick_beam.remember()
    for family, plan in PLANS.items():
        family.plan = plan
    story = Story(0, command, False, (2, 2, ""), (), "")

    def loaded() -> tuple[list[str], list[str]]:
        ledgers: list[str] = []

        def released(argv: list[str]) -> int:
            ended = main(argv)
            ledgers.extend(path.read_text() for path in pathlib.Path("out").glob("*.ledger.json"))
            return ended

        player(story).run(released)
        return list(sys.modules), ledgers

    modules, ledgers = from_child(loaded)
    for name in modules:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    player(story).run(lambda argv: main([*argv, "--dry_run"]))
    for ledger in ledgers:
        check_ledger(ledger)
    inside.with_pools(len(sys.modules))
    gc.collect()
    gc.freeze()


def play(story: Story) -> tuple[str | None, World]:
    """What does not hold, if anything, and the world with its schedule."""
    warm(story.command)
    played = player(story)
    try:
        played.run()
    except Violation as error:
        return str(error), played.world
    return None, played.world
