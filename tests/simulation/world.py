"""The world of a simulation: processes of which one runs at a time, their disk, their store, and the clock."""

from __future__ import annotations

import errno
import os
import random
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from dpbeam.storage.files import UNAVAILABLE
from tests.simulation import inside
from tests.simulation.store import Objects
from tests.support.disk import Disk, put

#: Requests to the store; what else a process asks is of its disk, its account, its clock, or tells what it has done.
REQUESTS = ("list", "head", "get", "put", "make", "delete")
_PATIENCE = 25.0  # in seconds that are no simulation's
_TOLD = ("key", "drawn", "task", "renew", "sleep")
#: Before these nothing has to be looked at: what there is then is still there at the next operation.
_UNCHANGED = frozenset(("key", "drawn", "task", "sleep", "read", "listdir", "scandir", "list", "head", "get"))
#: Kinds of faults that strike at an operation; those of tasks are in `runner`.
KILL, POWER, PAUSE, BUSY, LOST_ANSWER, LOCKED, FULL, JUMP, STILL = (
    *("kill", "power", "pause", "busy", "lost answer", "locked", "full", "jump", "stand still"),
)


class Violation(AssertionError):
    """Something that must hold does not."""


@dataclass(frozen=True, order=True)
class Fault:
    """What strikes.

    Attributes:
      process: number of the process, from 0; at: of its operation, or of its task.
      kind: of this module, or of `runner` for a task.
      commits: of the account, after which operations are counted.
    """

    process: int
    at: int
    kind: str
    commits: int = 0

    def __str__(self) -> str:
        since = f" after commit {self.commits}" if self.commits else ""
        return f"{self.kind} of process {self.process} at {self.at}{since}"


@dataclass
class Process:
    """One command that runs, or ran.

    Attributes:
      asked: what it waits for an answer to; None: it has ended.
      count: of its operations so far; until: it sleeps until then.
      marks: the count at its beginning and after each commit of the account.
      code: how it has ended, negative if it was killed; said: what it wrote to its standard error.
    """

    number: int
    argv: list[str]
    pid: int
    connection: Connection
    asked: tuple[Any, ...] | None = None
    count: int = 0
    marks: list[int] = field(default_factory=lambda: [0])
    until: float = 0.0
    code: int | None = None
    said: str = ""
    path: str = field(default="", repr=False)

    def meets(self, fault: Fault) -> bool:
        """Whether a fault strikes at this operation."""
        began = self.marks[fault.commits] if fault.commits < len(self.marks) else self.count + 1
        return (fault.process, fault.at) == (self.number, self.count - began)


class World:
    """Processes in one folder, which is the working folder of this process.

    Args:
      seed: of the order in which processes run, and of what a power cut leaves.
      faults: that strike.
      look: is called before each operation.
      told: of what processes tell: a key, a draw.
    """

    def __init__(
        self, seed: str, faults: list[Fault], look: Callable[[], None], told: Callable[..., None], beside: str
    ):
        self._seed, self.faults, self._look, self._told, self._beside = seed, faults, look, told, beside
        self._chance = random.Random(f"{seed} world")
        self.objects = Objects()
        self.now = 1e9
        self.lines: list[str] = []
        self.processes: list[Process] = []
        self.struck: list[Fault] = []
        self._left = [fault for fault in faults if fault.kind in _AT_ANY]
        self.renew: Callable[[], None] = lambda: None
        self._power_cuts = 0
        self._disk: Disk | None = None

    def run(self, argv: list[str], shape: tuple[int, int, str]) -> Process:
        """Run a command to its end. Where a fault lets it pause, the same command runs beside it."""
        first = self._start(argv, shape)
        going = [first]
        while going := [process for process in going if process.asked is not None]:
            awake = [process for process in going if process.until <= self.now]
            if not awake:
                self.now = min(process.until for process in going)
                continue
            process = self._chance.choice(awake)
            for fault in [f for f in self._left if process.meets(f)]:
                self._left.remove(fault)
                self.struck.append(fault)
                self.lines.append(f"{process.number}: *** {fault.kind}")
                if fault.kind == KILL:
                    self._end(process)
                elif fault.kind == POWER:
                    for each in going:
                        self._end(each)
                    self._cut()
                    self._power_cuts += 1
                elif fault.kind == PAUSE:
                    if self._chance.random() < 0.7:
                        self.renew()  # two people, each with a file of their own
                    process.until = self.now + self._chance.choice([0.0, *_STILL, *_STILL])
                    going.append(self._start(argv, shape))
                elif fault.kind == STILL:
                    process.until = self.now + self._chance.choice(_STILL)
                elif fault.kind == JUMP:
                    self.now += self._chance.choice([-4000.0, 4000.0])
            if process.asked is not None and process.until <= self.now:
                self._step(process)
        return first

    def _cut(self) -> None:
        """The power is cut: the folder holds what a disk may hold then. The input, in .csv, is nobody's concern."""
        assert self._disk is not None
        self._disk.look()
        moment, chance = self._disk.moment(), self._chance
        share = chance.choice([0, 0.5, 1])
        names = moment.names(lambda: chance.random() < share)
        how = chance.choice(["old", "new", "half", "any"])

        def content(old: bytes, new: bytes) -> bytes:
            versions = {"old": old, "new": new, "half": new[: len(new) // 2]}
            return versions[how] if how in versions else chance.choice(list(versions.values()))

        put(moment.image(names, content))

    def _start(self, argv: list[str], shape: tuple[int, int, str]) -> Process:
        number = len(self.processes)
        ours, theirs = Pipe()
        path = f"{self._beside}/said-{number}"
        fates = {f.at: f.kind for f in self.faults if f.process == number}
        if any(fault.kind == POWER and fault.process >= number for fault in self.faults):
            self._disk = Disk(os.getcwd(), (".db", ".csv"), reads_all=False)
        seed, machine = f"{self._seed} process {number}", f"machine {self._power_cuts}"
        pid = os.fork()
        if pid == 0:
            code = 99
            try:
                ours.close()
                code = inside.work(
                    argv, path, connection=theirs, seed=seed, machine=machine, shape=shape, fates=fates
                )
            finally:
                os._exit(code)
        theirs.close()
        process = Process(number, argv, pid, ours, path=path)
        self.processes.append(process)
        self.lines.append(f"{number}: dpbeam {' '.join(argv)}")
        self._hear(process)
        return process

    def _hear(self, process: Process) -> None:
        if not process.connection.poll(_PATIENCE):
            raise Violation(f"process {process.number} stands still")
        try:
            process.asked = process.connection.recv()
        except EOFError:
            self._ended(process)
            return
        self.lines.append(f"{process.number}: {process.count} {' '.join(map(_shown, process.asked))}")

    def _end(self, process: Process) -> None:
        if process.asked is not None:
            os.kill(process.pid, signal.SIGKILL)
            self._ended(process)

    def _ended(self, process: Process) -> None:
        process.asked = None
        process.connection.close()
        process.code = os.waitstatus_to_exitcode(os.waitpid(process.pid, 0)[1])
        with open(process.path) as file:
            process.said = file.read()
        self.lines.append(f"{process.number}: ends with {process.code} {process.said.strip()}")
        self._look()

    def _step(self, process: Process) -> None:
        """Answer what a process has asked, and wait for what it asks next."""
        assert process.asked is not None
        kind, *more = process.asked
        if kind not in _UNCHANGED:
            self._look()
        if self._disk is not None and kind not in (*_UNCHANGED, *_TOLD, *REQUESTS):
            self._disk.look()
            if kind == "flush":
                self._disk.flush(more[0])
        struck = {fault.kind for fault in self.faults if process.meets(fault)}
        answer: tuple[str, Any] = "done", None
        try:
            if kind == "sleep":
                process.until = self.now + more[0]
            elif kind == "renew":
                self.renew()
            elif kind in _TOLD:
                self._told(process.number, kind, *more)
            elif kind == "transaction":
                answer = "done", LOCKED in struck
            elif kind in REQUESTS:
                answer = "done", self._request(kind, more, struck)
            elif FULL in struck and kind in ("write", "mkdir", "link"):
                raise OSError(errno.ENOSPC, "No space left on device", more[0])
        except OSError as error:
            answer = "error", error
        process.count += 1
        if kind == "commit":
            process.marks.append(process.count)
        self.now += self._chance.choice([0, 0, 0.01, 1.0])
        process.connection.send((*answer, self.now))
        self._hear(process)

    def _request(self, kind: str, more: list[Any], struck: set[str]) -> Any:
        """Raises OSError."""
        busy = OSError(UNAVAILABLE, "the store answers 503 SlowDown", more[0])
        if BUSY in struck:
            raise busy
        answer = self.objects.answer(kind, *more)
        if LOST_ANSWER in struck:
            raise busy
        return answer


#: In seconds: longer than a lease, and than a night takes.
_STILL = (150.0, 1500.0)
_AT_ANY = (KILL, POWER, PAUSE, JUMP, STILL)


def _shown(word: Any) -> str:
    if isinstance(word, int):
        return ""  # the number of a file differs each time
    text = word.hex()[:8] if isinstance(word, bytes) else str(word)
    return text if len(text) < 90 else f"{text[:87]}..."
