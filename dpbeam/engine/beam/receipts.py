"""Receipts: what every unit of input, block and shard took and passed on, so that no loss is taken for an empty result.

A runner that loses elements does not fail: what is lost is never asked for. So every step at which something could go
missing leaves a receipt in the run's folder, and the launcher holds them against what it planned before anything is
published:

    planned units = units read; batches of these = batches partitioned     (UNITS, BATCHES)
    rows that files say they have = rows read                              (STATED, READ)
    rows of the batches = rows from which blocks were built                (BATCHES, ROWS)
    blocks built = blocks that sent their first messages                   (BLOCKS, FIRST)
    first messages sent = received, by relays and shards or by the hub     (FIRST, RELAYS, RELAYED, SHARDS, MET)
    parts at every meeting at the hub = all blocks, or all shards          (MET)
    parts that gave a result = all shards, or all blocks, or the one       (RESULT)

On later trips blocks and shards themselves miss each other's messages: both know from whom they have to hear. The rows
of the results are those of the staged files (`dpbeam.jobs.running`). Of rows on their way to blocks the number alone is
compared: as many lost as doubled would pass.

A receipt is named by its part, and says what is a function of the input and the run's key. So a step that is tried
again, or twice at once, repeats it. A file holds all receipts of a bundle, so their number grows with the bundles and
not with the messages. They hold exact private counts, and stay in the folder.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import apache_beam as beam
import numpy as np

from dpbeam.engine.ahead import few_ahead
from dpbeam.errors import RunnerError

if TYPE_CHECKING:
    from dpbeam.engine.beam.store import RunStore

UNITS = "units"  # unit of input -> batches that it was read as
STATED = "stated"  # unit of input -> rows of the files that begin in it, as they say
READ = "read"  # unit of input -> rows that were read
BATCHES = "batches"  # `batch_number` -> rows
ROWS = "rows"  # block -> rows that came to it, of which a sample may stay
BLOCKS = "blocks"  # block -> 1
FIRST = "first"  # block -> messages that it sent on the first trip
RELAYS, RELAYED = "relays", "relayed"  # relay -> messages that it received, and sent, on the first trip
SHARDS = "shards"  # shard -> messages that it received on the first trip
MET = "met"  # trip -> parts that met at the hub
RESULT = "result"  # shard, block or 0 for the only part -> rows of the result

_KINDS = (UNITS, STATED, READ, BATCHES, ROWS, BLOCKS, FIRST, RELAYS, RELAYED, SHARDS, MET, RESULT)
_STEM = "receipts-"
_PLANNED_UNITS, _PLANNED_TRIPS = "planned-units", "planned-trips"
_REQUESTS = 16  # at once, to a store that takes milliseconds to answer
_BATCH = b"dpbeam batch"  # key in the metadata of a batch's schema

_Receipts = dict[str, dict[int, int]]


class ReceiptDoFn(beam.DoFn):
    """A DoFn that leaves receipts.

    Args:
      store: of the run; None: it leaves none.
    """

    def __init__(self, store: RunStore | None):
        self._store = store
        self._receipts: _Receipts = {}

    def start_bundle(self) -> None:
        self._receipts = {}  # those of a bundle that failed count for nothing

    def receipt(self, kind: str, part: int, number: int) -> None:
        """Leave a receipt of this kind, once the bundle has come to its end."""
        self._receipts.setdefault(kind, {})[part] = number

    def finish_bundle(self) -> Iterable[Any] | None:
        receipts, self._receipts = self._receipts, {}
        if receipts and self._store is not None:
            columns = {}
            for kind, numbers in receipts.items():
                columns[kind] = np.array(list(numbers.items()), np.int64).reshape(-1)
            self._store.write(f"{_STEM}{uuid.uuid4().hex}", columns)
        return None


def batch_number(unit: int, place: int) -> int:
    """The number of a batch, which no other of the input has."""
    return unit << 32 | place


def mark_batch(batch: Any, unit: int, place: int) -> Any:
    """A record batch that carries its number in its schema's metadata, through all that keeps those."""
    metadata = {**(batch.schema.metadata or {}), _BATCH: b"%d" % batch_number(unit, place)}
    return batch.replace_schema_metadata(metadata)


def mark_of(batch: Any) -> int | None:
    """The number of a batch; None: it has none, since something else than `dpbeam.io` has read it."""
    mark = (batch.schema.metadata or {}).get(_BATCH)
    return None if mark is None else int(mark)


def plan_reading(store: RunStore, units: Collection[int]) -> None:
    """Remember the units of input that must be read."""
    store.write(_PLANNED_UNITS, {"units": np.array(sorted(units), np.int64)})


def plan_result(store: RunStore, meets: Mapping[int, str], result: str) -> None:
    """Remember the trips with a meeting at the hub, and who gives the result: "shards", "blocks" or "one"."""
    store.write_bytes(_PLANNED_TRIPS, json.dumps({"meets": list(meets.items()), "result": result}).encode())


def check_receipts(store: RunStore, trips: int | None = None) -> int:
    """Hold the receipts of a run against what was planned; the number of rows of its result.

    Args:
      trips: made so far; None: all, and the run has come to its end.

    Raises:
      RunnerError: something is missing. What it says follows from the plan and from where something is missing.
    """
    units = store.read(_PLANNED_UNITS)["units"] if store.exists(_PLANNED_UNITS) else None
    planned = json.loads(store.read_bytes(_PLANNED_TRIPS)) if store.exists(_PLANNED_TRIPS) else None
    if units is None and planned is None:
        return 0
    receipts = _gathered(store)
    if units is not None:
        _check_reading(receipts, units.tolist())
    if planned is None or trips == 0:
        return 0
    _check_trips(receipts, {int(trip): who for trip, who in planned["meets"]})
    if trips is not None:
        return 0
    parts = {"shards": receipts[SHARDS], "blocks": receipts[BLOCKS], "one": {0: 0}}[planned["result"]]
    _same(set(parts), set(receipts[RESULT]), "results")
    return sum(receipts[RESULT].values())


def _check_reading(receipts: _Receipts, planned: list[int]) -> None:
    _same(set(planned), set(receipts[UNITS]), "units of input")
    if receipts[STATED] and sum(receipts[STATED].values()) != sum(receipts[READ].values()):
        raise RunnerError(
            "not as many rows of the input were read as its files say they have; one may be damaged"
        )
    batches = {batch_number(unit, place) for unit, n in receipts[UNITS].items() for place in range(n)}
    _same(batches, set(receipts[BATCHES]), "batches of rows that were read")
    _same(sum(receipts[BATCHES].values()), sum(receipts[ROWS].values()), "rows on their way to blocks")


def _check_trips(receipts: _Receipts, meets: Mapping[int, str]) -> None:
    blocks, shards = receipts[BLOCKS], receipts[SHARDS]
    _same(set(blocks), set(receipts[FIRST]), "blocks")
    sent, last = sum(receipts[FIRST].values()), sum(shards.values())
    if meets.get(0) == "blocks":
        last = receipts[MET].get(0, 0)
    if receipts[RELAYS]:
        _same(sent, sum(receipts[RELAYS].values()), "messages from blocks to relays")
        sent = sum(receipts[RELAYED].values())
    _same(sent, last, "messages from blocks to shards")
    for trip, met in receipts[MET].items():
        _same(
            len(blocks if meets[trip] == "blocks" else shards), met, f"{meets[trip]} on their way to the hub"
        )


def _same(wanted: object, there: object, what: str) -> None:
    if wanted != there:
        raise RunnerError(f"the runner lost or doubled {what}")


def _gathered(store: RunStore) -> _Receipts:
    """All receipts of a run. Raises RunnerError where two of one part differ."""
    receipts: _Receipts = {kind: {} for kind in _KINDS}
    for columns in _files(store):
        for kind, pairs in columns.items():
            for part, number in pairs.reshape(-1, 2).tolist():
                if receipts[kind].setdefault(part, number) != number:
                    raise RunnerError(f"a step that the runner made again told of other {kind} than before")
    return receipts


def _files(store: RunStore) -> Iterator[dict[str, np.ndarray]]:
    names = store.names(_STEM)
    if store.is_near:
        yield from map(store.read, names)
        return
    with ThreadPoolExecutor(_REQUESTS) as pool:
        yield from few_ahead(pool, _REQUESTS + 1, store.read, names)


@contextlib.contextmanager
def taken_for_lost(what: str) -> Iterator[None]:
    """Within, a file of the run that is not there is one that its runner has not made."""
    try:
        yield
    except FileNotFoundError:
        raise RunnerError(f"the runner lost {what}") from None
