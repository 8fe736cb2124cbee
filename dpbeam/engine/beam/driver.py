"""Runs a program in one job, or in several with checkpoints between them.

Up to `trips_per_job` trips stay one job. Longer programs become a chain of jobs: each ends with the messages to its
blocks in files and a checkpoint, and the next goes on from there. A run that was killed goes on from its last
checkpoint, with the same key, and gives the same result: nothing in the folder depends on how often it was tried.
Between two jobs the folder loses what no later one reads (`dpbeam.engine.beam.sweep`); so large data on one machine
take a job for the blocks and one for each trip.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import PCollection
from apache_beam.transforms import combiners

from dpbeam.engine.beam.graph import (
    ContinueBlocks,
    KeepBlock,
    KeepForNextJob,
    LoadBlock,
    RunProgram,
    RunTrips,
)
from dpbeam.engine.beam.receipts import check_receipts, taken_for_lost
from dpbeam.engine.beam.run import StoredProgram
from dpbeam.engine.beam.store import RunStore
from dpbeam.engine.beam.sweep import sweep
from dpbeam.engine.beam.trip_files import ended_before
from dpbeam.engine.program import Program
from dpbeam.kernels.pairs import Block
from dpbeam.kernels.relays import Relays

TRIPS_PER_JOB = 32

Read = Callable[[beam.Pipeline], PCollection]
Write = Callable[[PCollection], None]


@dataclass(frozen=True)
class ProgramRun:
    """A program with its input and what is done with its result.

    Attributes:
      program: what runs.
      read: adds the input to a pipeline: pipeline -> PCollection[(int, Block)].
      write: adds what is done with the result, PCollection[pa.RecordBatch].
      one_step: all blocks fit one worker, which may run all trips without the engine, with so many `threads`.
      relays: between blocks and shards; None: they speak directly.
    """

    program: Program
    read: Read
    write: Write
    one_step: bool = False
    threads: int = 1
    relays: Relays | None = None

    @property
    def fits_one_job(self) -> bool:
        """Whether one job is what such a program takes."""
        return self.one_step or self.program.trips <= TRIPS_PER_JOB

    def add_to(self, pipeline: beam.Pipeline, store: RunStore) -> None:
        """The whole of it as one job."""
        blocks = self.read(pipeline)
        rounds = RunProgram(
            store, self.program, one_step=self.one_step, threads=self.threads, relays=self.relays
        )
        self.write(blocks | "Rounds" >> rounds)


@dataclass(frozen=True)
class Checkpoint:
    """Where a run stands.

    Attributes:
      trip: the next trip.
      blocks: (blocks,) int64, those that have messages waiting.
    """

    trip: int
    blocks: np.ndarray

    def save(self, store: RunStore) -> None:
        """It is there only where all that it stands for is, and is kept."""
        store.flush()
        store.write(_name(self.trip), {"blocks": self.blocks})
        store.flush()

    @classmethod
    def read(cls, store: RunStore, trip: int) -> Checkpoint:
        """The checkpoint before a trip. Raises OSError if there is none."""
        return cls(trip, store.read(_name(trip))["blocks"])

    @classmethod
    def last(cls, store: RunStore, trips: int) -> Checkpoint | None:
        """The last checkpoint of a program of so many trips; None where there is none yet."""
        trip = cls.last_trip(store, trips)
        return None if trip is None else cls.read(store, trip)

    @staticmethod
    def last_trip(store: RunStore, trips: int) -> int | None:
        """The trip of the last checkpoint, by the names of files alone."""
        kept = [int(name.removeprefix(_STEM)) for name in store.names(_STEM)]
        return max((trip for trip in kept if trip < trips), default=None)


_STEM = "checkpoint-"


def _name(trip: int) -> str:
    # A name of its own for each: some filesystems do not rename onto a file that is there.
    return f"{_STEM}{trip}"


class _Save(beam.DoFn):
    """Block ids of the whole job -> the checkpoint; after everything that it stands for is stored."""

    def __init__(self, store: RunStore, trip: int):
        self._store, self._trip = store, trip

    def process(self, blocks: list[int]) -> None:
        Checkpoint(self._trip, np.array(sorted(blocks), np.int64)).save(self._store)


def run_in_jobs(
    store: RunStore,
    program: Program,
    *,
    read: Read,
    write: Write,
    run: Callable[[Callable[[beam.Pipeline], None]], None],
    trips_per_job: int = TRIPS_PER_JOB,
    blocks_first: bool = False,
    relays: Relays | None = None,
) -> None:
    """Run a program to its end, from its last checkpoint where there is one.

    Args:
      store: the run's folder; must outlive a failure for the run to go on.
      read: adds the input to the first job: pipeline -> PCollection[(int, Block)].
      write: adds what is done with the result, PCollection[pa.RecordBatch], to the last job.
      run: makes a pipeline, hands it to the given function, runs it and waits; called once per job.
      blocks_first: the first job builds the blocks and makes no trip, so that what was shuffled for them goes before.
      relays: between blocks and shards; None: they speak directly.

    Raises:
      InputError: the folder is that of another program, or its key would meet other data (`dpbeam.engine.binding`).
      RunnerError: the runner has lost something; there is nothing to go on with then.
      ValueError: fewer than one trip per job.
    """
    if trips_per_job < 1:
        raise ValueError(f"trips_per_job must be at least 1, got {trips_per_job}")
    stored = StoredProgram.put(store, program, relays)
    at = Checkpoint.last(store, program.trips)
    while True:
        first = 0 if at is None else at.trip
        if at is not None:
            sweep(store, program, first)
        if ended_before(program, store, program.trips) is not None:
            first = program.trips  # nothing is left but the result
        only_blocks = blocks_first and at is None
        last = 0 if only_blocks else min(first + trips_per_job, program.trips)

        def build(
            pipeline: beam.Pipeline, first: int = first, last: int = last, at: Checkpoint | None = at
        ) -> None:
            flowing = read(pipeline) if at is None else pipeline | "Continue" >> ContinueBlocks(at.blocks)
            kept = at is not None and at.trip == 0
            if kept:
                load = beam.ParDo(LoadBlock(stored, 0)).with_output_types(tuple[int, Block])
                flowing = flowing | "LoadBlocks" >> load
            if last:
                flowing = flowing | "Trips" >> RunTrips(stored, program, first, last, kept=kept)
            if last == program.trips:
                write(flowing)
                return
            if last:
                blocks = flowing | "KeepForNextJob" >> KeepForNextJob(stored, last)
            else:
                keep = beam.ParDo(KeepBlock(stored, 0)).with_output_types(int)
                blocks = flowing | "KeepBlocks" >> keep
            _ = (
                blocks
                | "AllBlocks" >> combiners.ToList()
                | "SaveCheckpoint" >> beam.ParDo(_Save(store, last))
            )

        run(build)
        if last == program.trips:
            return
        check_receipts(store, last)
        with taken_for_lost("the checkpoint of a job"):
            at = Checkpoint.read(store, last)  # by its name: a listing may lag behind
