"""The hub: where the parts of a trip meet and decide something together.

Every part sends a summary of few bytes. One worker decides, keeps the hub's state and the broadcast in the run's
folder, and gives every part its turn; parts read the broadcast there. A retry decides the same: everything is a
function of the summaries, the state and the run's key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import PCollection

from dpbeam.engine.beam.messages import receive, send
from dpbeam.engine.beam.receipts import MET, RESULT, taken_for_lost
from dpbeam.engine.beam.run import StoredProgram, TripDoFn, TripStage
from dpbeam.engine.beam.run_folder import in_run
from dpbeam.engine.beam.shard_stages import sliced
from dpbeam.engine.beam.trip_files import broadcast_name, ended_before, keep_ending, load_block
from dpbeam.engine.beam.trip_messages import addressed, check_trip
from dpbeam.engine.program import decide_at_hub
from dpbeam.errors import RunnerError
from dpbeam.kernels.columns import Columns
from dpbeam.kernels.shards import Shard

YOUR_TURN = b""  # the message of a hub to a part: what it said lies in the run's folder
_PARTS, _SPENT = "hub parts", "hub filter"


def hub_state_name(trip: int) -> str:
    """File of the hub's state after `trip`."""
    return f"hub-state-{trip}"


class _Summarise(TripDoFn):
    """(shard, Shard) -> (0, summary); keeps the shard for when the hub has decided."""

    def process(self, element: tuple[int, Shard]) -> Iterator[tuple[int, bytes]]:
        number, shard = element
        self._store.write(waiting_name(number, self._trip), shard.to_columns())
        summary = self._program.summarise(self._trip, shard, self._keys)
        yield from send(self._store, [(0, addressed(number, self._trip) | summary)])


def waiting_name(shard: int, trip: int) -> str:
    """File of a shard that waits for the hub."""
    return f"shard-{shard}-waits-{trip}"


class _Decide(TripDoFn):
    """(0, summaries of all parts) -> (part, its turn); state and broadcast go to the run's folder."""

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[tuple[int, bytes]]:
        _, parts = self._decided(element[1])
        yield from ((part, YOUR_TURN) for part in parts)

    def _decided(self, elements: Iterable[bytes]) -> tuple[Columns, list[int]]:
        """The hub's new state, stored with the broadcast, and the parts that met."""
        trip, program = self._trip, self._program
        summaries: dict[int, Columns] = {}
        for message in receive(self._store, (data for data in elements if data)):
            check_trip(message, trip)
            part = int(message["from"][0])
            if part in summaries:
                raise RunnerError("the runner doubled a summary on its way to the hub")
            summaries[part] = {n: v for n, v in message.items() if n not in ("from", "trip")}
        parts = sorted(summaries)
        self.receipt(MET, trip, len(parts))
        state, spent = self._state(parts)
        if ended_before(program, self._store, trip) is not None:
            return state, parts
        in_order = [summaries[part] for part in parts]
        state, broadcast, spent = decide_at_hub(program, trip, state, in_order, self._keys, spent)
        ours = {_PARTS: np.array(parts, np.int64), _SPENT: np.array(spent, np.float64)}
        self._store.write(hub_state_name(trip), {**state, **ours})
        self._store.write(broadcast_name(trip), broadcast)
        if program.may_end and program.done(trip, broadcast):
            keep_ending(self._store, trip)
        return state, parts

    def _state(self, parts: list[int]) -> tuple[Columns, tuple[float, ...]]:
        """The hub's state of the last meeting, and what was taken from its filter; the same parts must have come."""
        ended = ended_before(self._program, self._store, self._trip)
        for trip in range(self._trip - 1 if ended is None else ended, -1, -1):
            if self._program.meets(trip) is None:
                continue
            with taken_for_lost("a decision of the hub"):
                state = dict(self._store.read(hub_state_name(trip)))
            before, spent = state.pop(_PARTS), tuple(state.pop(_SPENT).tolist())
            who = self._program.meets(trip)
            if who == self._program.meets(self._trip) and before.tolist() != parts:
                raise RunnerError(f"the runner lost or doubled {who} on their way to the hub")
            return state, spent
        return {}, ()


class _WakeShard(TripDoFn):
    """(shard, its turn) -> (shard, Shard as it was, with the broadcast)."""

    def process(self, element: tuple[int, bytes]) -> Iterator[tuple[int, Shard]]:
        number, _ = element
        shard = Shard.from_columns(self._store.read(waiting_name(number, self._trip)))
        shard.broadcast = self._store.read(broadcast_name(self._trip))
        yield number, shard


class _Answer(_Decide):
    """The last meeting, where the hub gives the result: (0, summaries of all parts) -> record batch."""

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[pa.RecordBatch]:
        state, _ = self._decided(element[1])
        batch = self._program.hub_output(state)
        self.receipt(RESULT, 0, 0 if batch is None else batch.num_rows)
        if batch is not None:
            yield batch


class MeetAtHub(beam.PTransform):
    """All parts' summaries meet in one worker, which decides.

    Shards: PCollection[(int, Shard)] -> the same, with the broadcast. Blocks: PCollection[(0, bytes summary)] ->
    PCollection[(int block, bytes)], a turn for every block. Where the hub gives the result after this trip:
    -> PCollection[pa.RecordBatch].

    Memory of that worker: all summaries of a trip, and the hub's state.
    """

    def __init__(self, stored: StoredProgram, trip: int, meets: str, *, answers: bool = False):
        super().__init__()
        self._stored, self._trip, self._meets, self._answers = stored, trip, meets, answers

    def expand(self, pcoll: PCollection) -> PCollection:
        stored, trip = self._stored, self._trip
        if self._meets == "shards":
            fn = _Summarise(stored, trip)
            pcoll = pcoll | "Summarise" >> in_run(fn).with_output_types(tuple[int, bytes])
        # A message without content: the hub also decides where nobody holds anything.
        nobody = pcoll.pipeline | "Nobody" >> beam.Create([(0, b"")]).with_output_types(tuple[int, bytes])
        met = (pcoll, nobody) | beam.Flatten() | "GroupAtHub" >> beam.GroupByKey()
        if self._answers:
            return met | "Decide" >> in_run(_Answer(stored, trip)).with_output_types(pa.RecordBatch)
        turns = met | "Decide" >> in_run(_Decide(stored, trip)).with_output_types(tuple[int, bytes])
        if self._meets == "shards":
            turns = turns | "Spread" >> beam.Reshuffle()
            return turns | "Wake" >> in_run(_WakeShard(stored, trip)).with_output_types(tuple[int, Shard])
        return turns


class TellBlocks(beam.DoFn):
    """(shard, Shard) -> (block, its turn) for every block that holds an item of the shard."""

    def process(self, element: tuple[int, Shard]) -> Iterator[tuple[int, bytes]]:
        yield from ((int(block), YOUR_TURN) for block in element[1].block_ids)


class _FinishBlock(TripDoFn):
    """(block, its turns) -> the block's part of the result."""

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[pa.RecordBatch]:
        block = load_block(self._store, self._program, element[0], self._program.trips, self._keys)
        batch = self._program.finish_block(block)
        self.receipt(RESULT, block.id, 0 if batch is None else batch.num_rows)
        if batch is not None:
            yield from sliced(batch)


class FinishBlocks(TripStage):
    """The blocks' parts of the result, after the last trip: PCollection[(int block, bytes turn)], one or more turns
    each, -> PCollection[pa.RecordBatch]."""

    gathers = "GroupTurns"
    step, does, gives = "Finish", _FinishBlock, pa.RecordBatch
