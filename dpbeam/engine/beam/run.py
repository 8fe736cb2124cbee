"""What the stages of a run share: its keys and its program, read from the private folder when a worker starts.

A stage carries the folder's path, the name of the program's file and the number of its trip, and nothing else: job
graphs grow with the number of rounds alone, and tables of a million entries travel once.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import apache_beam as beam
import cloudpickle

from dpbeam.engine.beam.store import RunStore
from dpbeam.engine.program import Keys, Program, check_trips, replies_by_link
from dpbeam.kernels.relays import Relays

_loaded: dict[tuple[str, str], Program] = {}
_KEPT = 4


@dataclass(frozen=True)
class StoredProgram:
    """A program in the run's folder.

    Attributes:
      store: the folder; name: of the file; digest: of the program and the relays.
      relays: between blocks and shards; None: they speak directly.
    """

    store: RunStore
    name: str
    digest: str
    relays: Relays | None = None

    @classmethod
    def put(cls, store: RunStore, program: Program, relays: Relays | None = None) -> StoredProgram:
        """Store a program; the same program twice is one file.

        Args:
          relays: left out where blocks are told different things about an item: a relay knows sums alone.

        Raises:
          ValueError: its trips do not hang together (`check_trips`).
        """
        check_trips(program)
        if replies_by_link(program):
            relays = None
        data = cloudpickle.dumps(program)
        digest = hashlib.sha256(data + (repr(relays).encode() if relays else b"")).hexdigest()
        stored = cls(store, f"program-{digest[:16]}", digest, relays)
        store.write_bytes(stored.name, data)
        return stored

    def load(self) -> Program:
        """The program, kept for the other stages of this worker."""
        place = (self.store.path, self.name)
        if place not in _loaded:
            while len(_loaded) >= _KEPT:
                _loaded.pop(next(iter(_loaded)))
            _loaded[place] = cloudpickle.loads(self.store.read_bytes(self.name))
        return _loaded[place]


class RunDoFn(beam.DoFn):
    """A DoFn with the run's keys."""

    _keys: Keys  # from `setup` on

    def __init__(self, store: RunStore):
        self._store = store

    def setup(self) -> None:
        self._keys = Keys(self._store.run_key())


class TripDoFn(RunDoFn):
    """A DoFn of one trip of a program."""

    _program: Program  # from `setup` on

    def __init__(self, stored: StoredProgram, trip: int):
        super().__init__(stored.store)
        self._stored, self._trip = stored, trip

    def setup(self) -> None:
        super().setup()
        self._program = self._stored.load()
