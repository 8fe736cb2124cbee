"""Top-k as a program: a selection with counts, or counts alone, whose shards meet at the hub for the choice.

The domain's items and counts meet in the hub, which runs the mechanism: 24 bytes and the item itself per domain item.
limited-domain needs only the largest counts of each shard, except with kbar = 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpbeam.accounting.noise import NoiseSpec
from dpbeam.accounting.tables import TableNoise
from dpbeam.engine.program import Draw, Exact, Keys, Program
from dpbeam.kernels.canonical import METADATA_KEY, Kinds
from dpbeam.kernels.columns import Columns
from dpbeam.kernels.pairs import Block, common_kinds, kinds_column, unique_fingerprints
from dpbeam.kernels.shards import Shard
from dpbeam.randomness import RunKey, fingerprints
from dpbeam.topk.config import TopKPlan
from dpbeam.topk.counted import CountedProgram, CountProgram, candidates
from dpbeam.topk.histogram import largest_positions
from dpbeam.topk.limited_domain import largest_needed
from dpbeam.topk.mechanisms import LimitedDomain

RANK, ITEM, NOISY_COUNT = "rank", "item", "noisy_count"


def counting_program(plan: TopKPlan) -> Program:
    """What blocks and shards do before the choice: a counted selection, or counting alone."""
    if plan.selection is not None:
        return CountedProgram(plan.selection.program)
    if isinstance(plan.mechanism, LimitedDomain):
        return CountProgram(plan.mechanism.max_items_per_user)
    return CountProgram()


def histogram(items: pa.Array, counts: np.ndarray, kinds: bytes) -> Columns:
    """A histogram as columns: (d,) canonical items, (d,) int64 counts, kinds of the items."""
    return {"items": items, "counts": counts, "kinds": kinds_column(kinds)}


def public_domain(items: pa.Array, kinds: Kinds) -> Columns:
    """A public domain as a histogram: its items count as held by nobody so far."""
    return histogram(items, np.zeros(len(items), np.int64), kinds.metadata()[METADATA_KEY])


def choose_from(
    plan: TopKPlan, parts: Sequence[Columns], domain: Columns | None, key: RunKey
) -> pa.RecordBatch:
    """The plan's choice from the parts of a histogram, in rank order.

    Args:
      parts: of `histogram`; an item may stand in several.
      domain: a public domain; all of its items take part, and nothing else does.

    Returns:
      record batch of at most min(k, d) rows: rank (from 1), item, noisy_count (null unless planned).
    """
    parts = [part for part in (*parts, domain) if part is not None]
    kinds = common_kinds(parts)
    items = pa.concat_arrays([part["items"] for part in parts] or [pa.array([], pa.large_binary())])
    counts = np.concatenate([part["counts"] for part in parts] or [np.zeros(0, np.int64)])
    if domain is not None:
        inside = pc.is_in(items, value_set=domain["items"])
        items, counts = items.filter(inside), counts[inside.to_numpy(zero_copy_only=False)]
    fp = fingerprints(Keys(key).pairs.item, items)
    first, inverse = unique_fingerprints(fp)
    totals = np.zeros(len(first), np.int64)
    np.add.at(totals, inverse, counts)
    return choose(plan, items.take(pa.array(first)), fp[first], totals, key, kinds)


def choose(
    plan: TopKPlan, items: pa.Array, fp: np.ndarray, counts: np.ndarray, key: RunKey, kinds: bytes
) -> pa.RecordBatch:
    """The plan's choice from a histogram of distinct items; see `choose_from`.

    Args:
      items: (d,) large_binary, distinct; fp: (d, 2) uint64; counts: (d,) int64.
    """
    positions = plan.mechanism.at_most(len(items)).select(counts, fp, key) if len(items) else np.zeros(0, int)
    noisy = pa.nulls(len(positions), pa.int64())
    if plan.counts is not None:
        noisy = pa.array(plan.counts.release(counts[positions], fp[positions], key))
    schema = pa.schema(
        [(RANK, pa.int64()), (ITEM, pa.large_binary()), (NOISY_COUNT, pa.int64())],
        metadata={METADATA_KEY: kinds},
    )
    ranks = pa.array(np.arange(1, len(positions) + 1))
    return pa.RecordBatch.from_arrays([ranks, items.take(pa.array(positions)), noisy], schema=schema)


class TopKProgram(Program):
    """A counting program whose shards meet after its last trip; the hub chooses.

    Args:
      plan: calibrated; domain: a public domain, from `public_domain`, exactly where the plan says so.

    Raises:
      ValueError: plan and domain disagree: without its domain, items of the data would be chosen as if public.
    """

    output = "hub"

    def __init__(self, plan: TopKPlan, domain: Columns | None = None):
        if plan.config.public_domain != (domain is not None):
            raise ValueError(
                "a top-k job with public_domain=True needs the domain's items, and one without takes none"
            )
        self.plan, self.domain = plan, domain
        self.counting = counting_program(plan)
        self.trips, self.norm, self.cap = self.counting.trips, self.counting.norm, self.counting.cap
        self.weight_grid, self.reply_columns = self.counting.weight_grid, self.counting.reply_columns

    # What the rounds of selection and counting do, unchanged.

    def sum_names(self, trip: int) -> tuple[str, ...]:
        return self.counting.sum_names(trip)

    def noise(self, trip: int) -> NoiseSpec | TableNoise | None:
        return self.counting.noise(trip)

    def block_state_trip(self, trip: int) -> int | None:
        return self.counting.block_state_trip(trip)

    def weigh(
        self, trip: int, block: Block, reply: Mapping[str, np.ndarray], keys: Keys
    ) -> tuple[dict[str, np.ndarray], Columns | None]:
        return self.counting.weigh(trip, block, reply, keys)

    def exact(self, trip: int, shard: Shard) -> Exact:
        return self.counting.exact(trip, shard)

    def observe(self, trip: int, shard: Shard, noisy: np.ndarray, present: np.ndarray) -> Shard:
        return self.counting.observe(trip, shard, noisy, present)

    def threshold(self, trip: int, shard: Shard) -> Shard:
        return self.counting.threshold(trip, shard)

    def reply(self, trip: int, shard: Shard) -> tuple[Shard, dict[str, np.ndarray]]:
        return self.counting.reply(trip, shard)

    # The choice.

    def meets(self, trip: int) -> str | None:
        return "shards" if trip == self.trips - 1 else None

    def summarise(self, trip: int, part: Shard, keys: Keys) -> Columns:
        mask, counts = candidates(self.counting, part)
        rows = np.flatnonzero(mask)
        largest = largest_needed(self.plan.mechanism)
        if largest is not None and len(rows) > largest:
            rows = rows[largest_positions(counts[rows], part.fp[rows], largest)]
        return histogram(part.items.take(pa.array(rows)), counts[rows], part.kinds)

    def decide(
        self, trip: int, state: Columns, summaries: Sequence[Columns], draw: Draw
    ) -> tuple[Columns, Columns]:
        chosen = choose_from(self.plan, summaries, self.domain, draw.run_key)
        noisy = chosen.column(NOISY_COUNT)
        return {
            "items": chosen.column(ITEM),
            "noisy": noisy.fill_null(0).to_numpy(),
            "kinds": kinds_column(chosen.schema.metadata[METADATA_KEY]),
        }, {}

    def hub_output(self, state: Columns) -> pa.RecordBatch | None:
        """The ranking; None where there is no item at all."""
        count = len(state["items"])
        if not count:
            return None
        noisy = pa.nulls(count, pa.int64()) if self.plan.counts is None else pa.array(state["noisy"])
        schema = pa.schema(
            [(RANK, pa.int64()), (ITEM, pa.large_binary()), (NOISY_COUNT, pa.int64())],
            metadata={METADATA_KEY: state["kinds"][0].as_py()},
        )
        columns = [pa.array(np.arange(1, count + 1)), state["items"], noisy]
        return pa.RecordBatch.from_arrays(columns, schema=schema)
