"""The job graph of a program: all of its trips, or some of them, or one step where one worker holds everything."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import PBegin, PCollection

from dpbeam.engine.beam.block_stages import WeightPerUser, bind_block
from dpbeam.engine.beam.hub import FinishBlocks, MeetAtHub, TellBlocks
from dpbeam.engine.beam.messages import receive, send
from dpbeam.engine.beam.receipts import FIRST, RESULT
from dpbeam.engine.beam.relays import RelayReplies, RelaySums, RelayTurns, tells_blocks
from dpbeam.engine.beam.run import RunDoFn, StoredProgram, TripDoFn, TripStage
from dpbeam.engine.beam.run_folder import in_run
from dpbeam.engine.beam.shard_stages import AddNoise, GroupByItem, Release, RerouteExcess, Threshold, sliced
from dpbeam.engine.beam.store import RunStore
from dpbeam.engine.beam.trip_files import (
    IN_INBOX,
    block_name,
    broadcast_name,
    keep_block,
    keep_ending,
    keep_inbox,
    stored_block,
)
from dpbeam.engine.beam.trip_messages import receivers
from dpbeam.engine.in_process import output_batches, run_trips
from dpbeam.engine.program import Keys, Program
from dpbeam.errors import RunnerError
from dpbeam.kernels.pairs import Block
from dpbeam.kernels.relays import Relays


class RunTrips(beam.PTransform):
    """Trips `first` to `last` (not included) of a program.

    Takes PCollection[(int, Block)] where `first` is 0, else PCollection[(int block, bytes)] of messages to blocks.
    Returns what flows after the last of these trips: messages to blocks, PCollection[(int, bytes)], or after the
    program's last trip its result, PCollection[pa.RecordBatch].

    Args:
      kept: the blocks are stored already, by `KeepBlock`.
      release: what is done with the shards after the last trip, PCollection[(int, Shard)]; None: their released items
        are the result.
    """

    def __init__(
        self,
        stored: StoredProgram,
        program: Program,
        first: int = 0,
        last: int | None = None,
        *,
        kept: bool = False,
        release: beam.PTransform | None = None,
    ):
        super().__init__()
        self._stored, self._program, self._kept = stored, program, kept
        self._release = release or Release(stored, program.trips - 1)
        self._first, self._last = first, program.trips if last is None else last

    def expand(self, flowing: PCollection) -> PCollection:
        stored, program = self._stored, self._program
        for trip in range(self._first, self._last):
            name = f"Trip{trip + 1}"
            ends, meets = trip == program.trips - 1, program.meets(trip)
            flowing = flowing | f"{name}WeightPerUser" >> WeightPerUser(stored, trip, kept=self._kept)
            if meets != "blocks":
                if stored.relays is not None:
                    flowing = flowing | f"{name}RelaySums" >> RelaySums(stored, trip)
                flowing = flowing | f"{name}GroupByItem" >> GroupByItem(stored, trip)
                if program.noise(trip) is not None:
                    flowing = (
                        flowing
                        | f"{name}AddNoise" >> AddNoise(stored, trip)
                        | f"{name}Threshold" >> Threshold(stored, trip)
                    )
            if meets is not None:
                answers = ends and program.output == "hub"
                flowing = flowing | f"{name}MeetAtHub" >> MeetAtHub(stored, trip, meets, answers=answers)
            if trip in program.reply_columns:
                flowing = flowing | f"{name}RerouteExcess" >> RerouteExcess(stored, trip)
                if stored.relays is not None:
                    flowing = flowing | f"{name}RelayReplies" >> RelayReplies(stored, trip)
        if self._last < program.trips or program.output == "hub":
            return flowing
        if program.output == "blocks":
            if tells_blocks(program):
                tell = TellBlocks()  # type: ignore[no-untyped-call]
                flowing = flowing | "TellBlocks" >> beam.ParDo(tell).with_output_types(tuple[int, bytes])
                if stored.relays is not None:
                    flowing = flowing | "RelayTurns" >> RelayTurns(stored, program.trips - 1)
            return flowing | "FinishBlocks" >> FinishBlocks(stored, program.trips - 1)
        return flowing | "Release" >> self._release


class RunProgram(beam.PTransform):
    """All of a program: PCollection[(int, Block)] -> PCollection[pa.RecordBatch], its result.

    Args:
      one_step: all blocks fit one worker, which runs all trips without the engine: the same kernels, the same result.
      threads: of that worker.
      relays: between blocks and shards; None: they speak directly.
    """

    def __init__(
        self,
        store: RunStore,
        program: Program,
        *,
        one_step: bool = False,
        threads: int = 1,
        relays: Relays | None = None,
    ):
        super().__init__()
        self._store, self._program, self._one_step, self._relays = store, program, one_step, relays
        self._threads = threads

    def expand(self, blocks: PCollection) -> PCollection:
        stored = StoredProgram.put(self._store, self._program, self._relays, one_step=self._one_step)
        if not self._one_step:
            return blocks | "Trips" >> RunTrips(stored, self._program)
        gathered = blocks | "SendBlock" >> in_run(_SendBlock(self._store)).with_output_types(
            tuple[int, bytes]
        )
        nobody = blocks.pipeline | "Nobody" >> beam.Create([(0, b"")]).with_output_types(tuple[int, bytes])
        return (
            (gathered, nobody)
            | beam.Flatten()
            | "GatherBlocks" >> beam.GroupByKey()
            | "AllTrips" >> in_run(_AllTrips(stored, self._threads)).with_output_types(pa.RecordBatch)
        )


class _SendBlock(RunDoFn):
    """(block, Block) -> (0, the block as a message)."""

    def process(self, element: tuple[int, Block]) -> Iterator[tuple[int, bytes]]:
        yield from send(self._store, [(0, element[1])], pack=Block.to_columns)


class _AllTrips(TripDoFn):
    """(0, all blocks) -> the program's result."""

    def __init__(self, stored: StoredProgram, threads: int):
        super().__init__(stored, 0)
        self._threads = threads

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[pa.RecordBatch]:
        received = receive(self._store, (data for data in element[1] if data), Block.from_columns)
        blocks: list[Block] = sorted(received, key=lambda block: block.id)
        if len({block.id for block in blocks}) < len(blocks):
            raise RunnerError("the runner doubled a block")
        for block in blocks:
            self.receipt(FIRST, block.id, 0)  # it sends nothing any further
        if not self._store.in_memory:  # where every message is taken once, and noise is drawn once
            self._keys.bind("blocks", (block.to_columns(with_items=False) for block in blocks))
        keys = Keys(self._store.run_key())  # which draw for these blocks alone
        kept = self._store.kept_items
        finished = run_trips(self._program, blocks, keys, threads=self._threads, kept=kept)
        del blocks
        if finished.broadcast:
            met = max(trip for trip in range(finished.trip + 1) if self._program.meets(trip) is not None)
            self._store.write(broadcast_name(met), finished.broadcast)
        if self._program.may_end:
            keep_ending(self._store, finished.trip)
        rows = 0
        for batch in output_batches(self._program, finished):
            rows += batch.num_rows
            yield from sliced(batch)
        self.receipt(RESULT, 0, rows)


class _KeepInbox(TripDoFn):
    """(block, messages) -> block id; the messages of this trip wait for the next job."""

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[int]:
        number, elements = element
        keep_inbox(self._store, number, self._trip, elements)
        yield number


class KeepForNextJob(TripStage):
    """Messages to blocks, PCollection[(int, bytes)], -> PCollection[int], the blocks; they wait for `trip`."""

    gathers = "GroupByBlock"
    step, does, gives = "Keep", _KeepInbox, int


class KeepBlock(TripDoFn):
    """(block, Block) -> block id; the block waits in files for the first trip, in the next job."""

    def process(self, element: tuple[int, Block]) -> Iterator[int]:
        number, block = element
        bind_block(self._keys, block)
        keep_block(self._store, self._program, block, receivers(self._stored, block))
        yield number


class LoadBlock(TripDoFn):
    """(block, anything) -> (block, Block) as it was built and kept by `KeepBlock`; its items stay in their file."""

    def process(self, element: tuple[int, bytes]) -> Iterator[tuple[int, Block]]:
        number, _ = element
        if not self._store.exists(block_name(number)):
            raise FileNotFoundError(errno.ENOENT, "a block is gone from the run's folder", self._store.path)
        yield number, stored_block(self._store, number, self._keys)


class ContinueBlocks(beam.PTransform):
    """The blocks of the job before, as messages that say where their messages lie: PCollection[(int, bytes)]."""

    def __init__(self, blocks: np.ndarray):
        super().__init__()
        self._blocks = [(int(block), IN_INBOX) for block in blocks]

    def expand(self, pipeline: beam.Pipeline | PBegin) -> PCollection:
        return (
            pipeline
            | "Blocks" >> beam.Create(self._blocks).with_output_types(tuple[int, bytes])
            | "Spread" >> beam.Reshuffle()
        )
