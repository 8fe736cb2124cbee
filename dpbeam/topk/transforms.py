"""`TopKItems`: the public PTransform of top-k, and its stages after the selection.

The domain's items and counts meet in one worker, which runs the mechanism: 24 bytes and the item itself per domain
item. limited-domain needs only the largest counts of each shard, except with kbar = 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import apache_beam as beam
import numpy as np
import pyarrow as pa

from dpbeam.engine.beam.stages import KINDS_KEY, RunTrips, SubsamplePerUser
from dpbeam.engine.beam.store import RunFolder, RunStore
from dpbeam.engine.program import Keys, Program, replies_by_link
from dpbeam.kernels.canonical import Kinds
from dpbeam.kernels.columns import Columns, decode, encode
from dpbeam.kernels.pairs import common_kinds, kinds_column, unique_fingerprints
from dpbeam.kernels.shards import Shard
from dpbeam.randomness import fingerprints
from dpbeam.selection.sizes import choose_sizes
from dpbeam.selection.transforms import check_batch_input, own_folder, to_batches
from dpbeam.topk.config import TopKConfig, TopKPlan, plan_topk
from dpbeam.topk.counted import CountedProgram, CountProgram, candidates
from dpbeam.topk.histogram import largest_positions
from dpbeam.topk.limited_domain import largest_needed
from dpbeam.topk.mechanisms import LimitedDomain

DOMAIN_FILE = "domain"
RANK, ITEM, NOISY_COUNT = "rank", "item", "noisy_count"


def program_of(plan: TopKPlan) -> Program:
    """What the blocks and shards run: a counted selection, or counting alone."""
    if plan.selection is not None:
        return CountedProgram(plan.selection.program)
    if isinstance(plan.mechanism, LimitedDomain):
        return CountProgram(plan.mechanism.max_items_per_user)
    return CountProgram()


class _Candidates(beam.DoFn):
    """(shard, Shard) -> (0, items of the domain with their fingerprints and counts)."""

    def __init__(self, program: Program, largest: int | None):
        self._program = program
        self._largest = largest

    def process(self, element: tuple[int, Shard]) -> Iterator[tuple[int, bytes]]:
        _, shard = element
        mask, counts = candidates(self._program, shard)
        rows = np.flatnonzero(mask)
        if self._largest is not None and len(rows) > self._largest:
            rows = rows[largest_positions(counts[rows], shard.fp[rows], self._largest)]
        if len(rows):
            yield 0, encode(_part(shard.items.take(pa.array(rows)), counts[rows], shard.kinds))


def _part(items: pa.Array, counts: np.ndarray, kinds: bytes) -> Columns:
    return {"items": items, "counts": counts, "kinds": kinds_column(kinds)}


def histogram_columns(items: pa.Array, counts: np.ndarray, kinds: Kinds) -> Columns:
    """A histogram for the run's folder: (d,) canonical items and (d,) int64 counts."""
    return _part(items, counts, kinds.metadata()[KINDS_KEY])


def store_domain(store: RunStore, items: pa.Array, kinds: Kinds) -> None:
    """Put a public domain where the workers find it; its items count as held by nobody so far."""
    store.write(DOMAIN_FILE, histogram_columns(items, np.zeros(len(items), np.int64), kinds))


class _Choose(beam.DoFn):
    """(0, parts of the histogram) -> record batch (rank, item, noisy_count) of at most k items."""

    def __init__(self, store: RunStore, plan: TopKPlan, domain: bool):
        self._store = store
        self._plan = plan
        self._domain = domain

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[pa.RecordBatch]:
        parts = [decode(data) for data in element[1] if data]
        key = self._store.run_key()
        if self._domain:
            parts.append(self._store.read(DOMAIN_FILE))
        kinds = common_kinds(parts)
        items = [part["items"] for part in parts]
        counts = [part["counts"] for part in parts]
        if not any(map(len, items)):
            return
        strings = pa.concat_arrays(items)
        first, inverse = unique_fingerprints(fp := fingerprints(Keys(key).pairs.item, strings))
        totals = np.zeros(len(first), np.int64)
        np.add.at(totals, inverse, np.concatenate(counts))
        yield choose(self._plan, strings.take(pa.array(first)), fp[first], totals, key, kinds)


def choose(
    plan: TopKPlan, items: pa.Array, fp: np.ndarray, counts: np.ndarray, key, kinds: bytes
) -> pa.RecordBatch:
    """The plan's choice from a histogram, in rank order.

    Args:
      items: (d,) large_binary, distinct; fp: (d, 2) uint64; counts: (d,) int64.

    Returns:
      record batch of at most min(k, d) rows: rank (from 1), item, noisy_count (null unless planned).
    """
    positions = plan.mechanism.at_most(len(items)).select(counts, fp, key)
    noisy = pa.nulls(len(positions), pa.int64())
    if plan.counts is not None:
        noisy = pa.array(plan.counts.release(counts[positions], fp[positions], key))
    schema = pa.schema(
        [(RANK, pa.int64()), (ITEM, pa.large_binary()), (NOISY_COUNT, pa.int64())],
        metadata={KINDS_KEY: kinds},
    )
    ranks = pa.array(np.arange(1, len(positions) + 1))
    return pa.RecordBatch.from_arrays([ranks, items.take(pa.array(positions)), noisy], schema=schema)


class ChooseTopK(beam.PTransform):
    """Parts of a histogram, PCollection[(0, bytes)], -> PCollection of one record batch, or none without items."""

    def __init__(self, store: RunStore, plan: TopKPlan, *, domain: bool = False):
        super().__init__()
        self._fn = _Choose(store, plan, domain)

    def expand(self, parts):
        # A part without items: the mechanism also runs where nobody holds anything.
        empty = parts.pipeline | "NoItems" >> beam.Create([(0, b"")]).with_output_types(tuple[int, bytes])
        return (
            (parts, empty)
            | beam.Flatten()
            | "GatherHistogram" >> beam.GroupByKey()
            | "Choose" >> beam.ParDo(self._fn).with_output_types(pa.RecordBatch)
        )


class TopKItems(beam.PTransform):
    """The (at most) k items that most users hold, in rank order, under (epsilon, delta)-differential privacy.

    PCollection of (user, item) tuples or record batches -> PCollection of one `pyarrow.RecordBatch` (rank, item:
    canonical bytes, noisy_count) with the kinds in its metadata; see `SelectPartitions` for input and `run`.

    Guarantee: add/remove one user; users may hold any number of items, of which all count. Replacing a user costs
    twice as much.

    Args:
      config: settings.
      domain: the run's folder holds a public domain (`DOMAIN_FILE`); items outside it must have been removed.
      run, num_shards, pairs, item_bytes, complete: as in `SelectPartitions`.
    """

    def __init__(
        self,
        config: TopKConfig,
        *,
        run: RunFolder | None = None,
        domain: bool = False,
        num_shards: int | None = None,
        pairs: int | None = None,
        item_bytes: float | None = None,
        complete: bool = False,
    ):
        super().__init__()
        self.plan = plan_topk(config)
        self._run = run
        self._domain = domain
        self._sizes = choose_sizes(pairs, num_shards, item_bytes)
        self._complete = complete

    def expand(self, pcoll):
        check_batch_input(pcoll)
        store = (self._run or own_folder(pcoll)).store
        program = program_of(self.plan)
        batches = pcoll if self._complete else to_batches(pcoll)
        shards = (
            batches
            | "SubsamplePerUser"
            >> SubsamplePerUser(
                store,
                num_blocks=self._sizes.num_blocks,
                num_shards=self._sizes.num_shards,
                cap=program.cap,
                complete=self._complete,
                ranges=replies_by_link(program),
            )
            | "Rounds" >> RunTrips(store, program)
        )
        parts = shards | "Candidates" >> beam.ParDo(
            _Candidates(program, largest_needed(self.plan.mechanism))
        ).with_output_types(tuple[int, bytes])
        return parts | "ChooseTopK" >> ChooseTopK(store, self.plan, domain=self._domain)
