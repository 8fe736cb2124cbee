"""What the stages of a run share: its keys and its program, read from the private folder when a worker starts.

A stage carries the folder's path, the name of the program's file and the number of its trip, and nothing else: job
graphs grow with the number of trips alone, and tables of a million entries travel once.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, ClassVar

import apache_beam as beam
import cloudpickle
from apache_beam.pvalue import PCollection

from dpbeam.engine.beam.receipts import ReceiptDoFn, plan_result
from dpbeam.engine.beam.run_folder import in_run
from dpbeam.engine.beam.store import RunStore
from dpbeam.engine.binding import OTHER_DATA
from dpbeam.engine.program import Keys, Program, check_trips, replies_by_link
from dpbeam.errors import StoreError
from dpbeam.kernels.relays import Relays

_loaded: dict[tuple[str, str], Program] = {}
_KEPT = 4
_LAYOUT = 4  # of the files in a run's folder: a run goes on with the layout that it began with


def bind_settings(store: RunStore, what: str, settings: object) -> None:
    """Commit a run's folder to settings that say which noise meets which sums.

    Raises:
      InputError: it is bound to others.
    """
    if not store.bind(what, hashlib.sha256(repr(settings).encode()).digest()):
        raise StoreError(OTHER_DATA)


@dataclass(frozen=True)
class StoredProgram:
    """A program in the run's folder.

    Attributes:
      store: the folder; name: of the file.
      relays: between blocks and shards; None: they speak directly.
    """

    store: RunStore
    name: str
    relays: Relays | None = None

    @classmethod
    def put(
        cls, store: RunStore, program: Program, relays: Relays | None = None, *, one_step: bool = False
    ) -> StoredProgram:
        """Store a program; the same program twice is one file.

        Args:
          relays: left out where blocks receive different values about an item: a relay knows sums alone.
          one_step: all trips are made in one step, which binds its noise in a place of its own.

        Raises:
          ValueError: its trips do not hang together (`check_trips`).
          InputError: the folder is that of another program, or of another way through it.
        """
        check_trips(program)
        if replies_by_link(program):
            relays = None
        data = cloudpickle.dumps(program)
        digest = hashlib.sha256(data + (repr(relays).encode() if relays else b"")).hexdigest()
        bind_settings(store, "program", (digest, one_step, _LAYOUT))
        stored = cls(store, f"program-{digest[:16]}", relays)
        store.write_bytes(stored.name, data)
        meets = {} if one_step else {trip: program.meets(trip) for trip in range(program.trips)}
        result = "one" if one_step or program.output == "hub" else program.output
        plan_result(store, {trip: who for trip, who in meets.items() if who is not None}, result)
        return stored

    def load(self) -> Program:
        """The program, kept for the other stages of this worker."""
        place = (self.store.path, self.name)
        if place not in _loaded:
            while len(_loaded) >= _KEPT:
                _loaded.pop(next(iter(_loaded)))
            _loaded[place] = cloudpickle.loads(self.store.read_bytes(self.name))
        return _loaded[place]


class RunDoFn(ReceiptDoFn):
    """A DoFn with the run's keys, which draw for the data alone that they were bound to in the run's folder."""

    _store: RunStore
    _keys: Keys  # from `setup` on

    def __init__(self, store: RunStore):
        super().__init__(store)

    def setup(self) -> None:
        self._keys = Keys(self._store.run_key(), self._store.bind)


class TripDoFn(RunDoFn):
    """A DoFn of one trip of a program."""

    _program: Program  # from `setup` on

    def __init__(self, stored: StoredProgram, trip: int):
        super().__init__(stored.store)
        self._stored, self._trip = stored, trip

    def setup(self) -> None:
        super().setup()
        self._program = self._stored.load()


class TripStage(beam.PTransform):
    """One DoFn of a trip as a step; the classes below it say which, and what comes out.

    Attributes:
      gathers: label of the shuffle by receiver before it; None: there is none.
      step: label of the DoFn.
      does: the DoFn.
      gives: type of the elements that it gives.
    """

    gathers: ClassVar[str | None] = None
    step: ClassVar[str]
    does: ClassVar[type[TripDoFn]]
    gives: ClassVar[Any]

    def __init__(self, stored: StoredProgram, trip: int):
        super().__init__()
        self._fn = self.does(stored, trip)

    def expand(self, pcoll: PCollection) -> PCollection:
        if self.gathers is not None:
            pcoll = pcoll | self.gathers >> beam.GroupByKey()
        return pcoll | self.step >> in_run(self._fn).with_output_types(self.gives)
