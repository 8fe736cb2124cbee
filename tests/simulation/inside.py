"""A command of dpbeam in a process of its own, which asks before everything that somebody outside could see.

Names, keys and orders come from a generator; clock, store and runner are those of the simulation.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import hashlib
import os
import random
import sqlite3
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

import sqlalchemy as sa
from apache_beam.runners.runner import PipelineRunner

from dpbeam.budget import store as accounts
from dpbeam.cli import main
from dpbeam.engine.beam import shard_stages
from dpbeam.jobs import job, running
from dpbeam.kernels.relays import Relays
from dpbeam.packing import transforms as packing
from dpbeam.randomness import RunKey
from dpbeam.selection.sizes import Sizes
from dpbeam.storage import elsewhere, lease, processes
from tests.simulation import runner, store

RUNNER = ("--runner=tests.simulation.inside.SimulatedRunner", "--untested_runner", "--no_pipeline_type_check")
_CHANGES = ("os.chmod", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.truncate")
_LOOKS = ("os.listdir", "os.scandir", "open")


class SimulatedRunner(PipelineRunner):
    """Stands for an engine on the command line; `Inside` runs its pipelines."""


class WithRelays(Sizes):
    relays = Relays(2, 2, 1)


class Inside:
    """This process, from now on.

    Args:
      seed: of its names, keys and orders.
      machine: its name; another after every power cut.
      shape: blocks, shards, and how they speak: "one step", "relays" or "".
      fates: numbers of tasks -> what becomes of them.
    """

    def __init__(
        self,
        connection: Connection,
        seed: str,
        machine: str,
        shape: tuple[int, int, str],
        fates: dict[int, str],
    ):
        self._connection, self._seed, self._fates = connection, seed, fates
        self._chance = random.Random(seed)
        self._root = os.getcwd()
        self._lock, self._now = threading.RLock(), 0.0
        self._workers = runner.Workers(self._chance)
        self._tasks = self._keys = self._asked = 0
        self._names, self._place = random.Random(), ""
        self._replace(machine, shape)
        sys.addaudithook(self._audited)

    def ask(self, kind: str, *more: Any) -> Any:
        """What the world answers before this is done. Raises OSError where it says so."""
        self._workers.turn()
        with self._lock:
            self._connection.send((kind, *more))
            verdict, value, self._now = self._connection.recv()
            self._asked += 1
        if verdict == "error":
            raise value
        return value

    def _audited(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            kind = "write" if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) else "read"
        elif event in _CHANGES or event in _LOOKS:
            path, kind = arguments[0], event.removeprefix("os.")
        else:
            return
        if isinstance(path, bytes):
            path = os.fsdecode(path)
        if isinstance(path, str) and os.path.abspath(path).startswith(self._root):
            self.ask(kind, os.path.relpath(path, self._root))

    def _replace(self, machine: str, shape: tuple[int, int, str]) -> None:
        """Put the simulation in the place of what cannot be repeated."""
        anything: Any = None
        os.fsync = self._flush
        os.urandom = random._urandom = self._bytes
        RunKey.fresh = self._key
        tempfile.tempdir = None
        tempfile._get_candidate_names = lambda: iter(lambda: self._bytes(8).hex(), anything)
        random.seed(self._seed)
        time.time = time.monotonic = lambda: self._now
        time.sleep = lambda seconds: self.ask("sleep", seconds)
        processes._host = lambda: machine
        accounts._begin, accounts.WAIT_SECONDS = self._begin, 0
        connected = accounts.BudgetStore._connected
        accounts.BudgetStore._connected = lambda of: self._watched(connected(of))
        running.run_and_wait = self._run
        blocks, shards, how = shape
        sizes = (WithRelays if how == "relays" else Sizes)(blocks, shards, one_step=how == "one step")
        job.choose_sizes = lambda *_, **__: sizes
        packing.packing_sizes = lambda *_: packing.PackingSizes(blocks, how == "one step")
        noise = shard_stages.add_noise
        shard_stages.add_noise = lambda *arguments: self._drawn(noise, *arguments)
        store.world = self.ask
        elsewhere._OURS["s3"] = store.SimulatedFiles
        for module in with_pools(len(sys.modules)):
            module.ThreadPoolExecutor = store.AtOnce
        lease._beat = lambda *_: None

    def _flush(self, descriptor: int) -> None:
        self.ask("flush", os.fstat(descriptor).st_ino)

    def _bytes(self, number: int) -> bytes:
        """Bytes that depend on who wants them and when, whatever others have taken."""
        frame: Any = sys._getframe(1)
        while "/dpbeam/" not in frame.f_code.co_filename and frame.f_back is not None:
            frame = frame.f_back
        place = f"{self._seed} {self._asked} {frame.f_code.co_name} {frame.f_lineno}"
        if place != self._place:
            self._place = place
            self._names.seed(place)
        return self._names.randbytes(number)

    def _key(self) -> RunKey:
        """A fresh key, which the oracle learns."""
        self._keys += 1
        secret = hashlib.sha256(f"{self._seed} key {self._keys}".encode()).digest()
        self.ask("key", secret)
        return fresh(secret)

    def _begin(self, connection: sa.Connection) -> None:
        """As that of the store, whose patience is that of the simulation's clock."""
        writes = connection.get_execution_options().get("dpbeam_writes", False)
        for left in reversed(range(60)):
            locked = self.ask("transaction")
            try:
                if locked:
                    raise sa.exc.OperationalError("", {}, sqlite3.OperationalError("database is locked"))
                connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
                return
            except sa.exc.OperationalError as error:
                if not left or "locked" not in str(error):
                    raise
            self.ask("sleep", 1)

    def _watched(self, engine: sa.Engine) -> sa.Engine:
        sa.event.listen(engine, "commit", lambda _: self.ask("commit"))
        return engine

    def _drawn(self, noise: Callable[..., Any], program: Any, trip: int, shard: Any, keys: Any) -> Any:
        """The noise of a shard, of which the oracle learns for which sums it was drawn."""
        noisy = noise(program, trip, shard, keys)
        exact = program.exact(trip, shard)
        of = hashlib.sha256(keys._run_key.secret_bytes()).hexdigest()[:8]
        sums = {fp.tobytes().hex(): int(units) for fp, units in zip(shard.fp, exact.units)}
        self.ask("drawn", f"{of} round {program.noise(trip).round}", sums)
        return noisy

    def _run(self, pipeline: Any, *_: Any) -> None:
        runner.Runner(self._workers, self._chance, self._fate, lambda: self.ask("renew")).run(pipeline)

    def _fate(self, name: str) -> str:
        self._tasks += 1
        fate = self._fates.get(self._tasks, runner.ONCE)
        self.ask("task", f"{name} {fate}")
        return fate


@functools.cache  # a fork copies each page that it looks through
def with_pools(_: int) -> list[Any]:
    """The modules of dpbeam that use threads, of so many modules."""
    ours = [module for name, module in sys.modules.items() if name.startswith("dpbeam.")]
    return [module for module in ours if hasattr(module, "ThreadPoolExecutor")]


def fresh(secret: bytes) -> RunKey:
    """A key of these bytes that has served nobody."""
    key = RunKey(secret)
    key._once = type(key._once)()
    return key


def work(argv: list[str], said: str, **more: Any) -> int:
    """Exit code of a command in this process, which is a fork; what it says goes to the file `said`."""
    sys.unraisablehook = lambda _: None  # of what a lost worker leaves to the garbage collector
    gc.disable()  # a fork ends soon
    code = 99
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    with open(said, "w", buffering=1) as sys.stderr, contextlib.suppress(BaseException):
        try:
            os.umask(0o022)
            Inside(**more)
            code = main(argv)
        except BaseException:
            traceback.print_exc()
    return code


@contextlib.contextmanager
def with_key(secret: bytes) -> Iterator[None]:
    """Within, a fresh key is this one."""
    before = RunKey.__dict__["fresh"]
    RunKey.fresh = classmethod(lambda cls: fresh(secret))
    try:
        yield
    finally:
        RunKey.fresh = before
