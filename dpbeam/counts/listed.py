"""Counts of the items of a public list, alone or beside those that a selection releases.

Users' items are counted on the two trips of `UserRounds`, and the hub adds noise to every sum. It knows the list, so
that an item that nobody holds gets its noise like any other: which of them users hold shows in the counts alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dpbeam.accounting.noise import NoiseSpec
from dpbeam.counts import DEVIATION, NOISY_COUNT
from dpbeam.counts.counted import COUNT, CountedProgram
from dpbeam.counts.gathered import WEIGHTS, gather, histogram
from dpbeam.counts.selection import USERS_PER_WEIGHT, CountNoises, SummedCounts
from dpbeam.counts.user_rounds import INSIDE, OTHERS, WEIGHT
from dpbeam.engine.program import Decided, Draw, HubNoise, Keys, Program
from dpbeam.kernels.canonical import METADATA_KEY
from dpbeam.kernels.columns import Columns
from dpbeam.kernels.pairs import Block, kinds_column
from dpbeam.kernels.shards import Shard


class ListedCounts(SummedCounts):
    """Counts at the hub.

    Args:
      inner: `CountProgram` on pairs of the list alone, or a `CountedProgram` that leaves the list's items out of its
        selection; what that releases is counted too.
      noises, others: see `SummedCounts`; domain: the list, from `public_domain`.
    """

    output = "hub"

    def __init__(self, inner: Program, noises: CountNoises, domain: Columns, others: bool = False):
        super().__init__(inner, noises, others)
        self.domain = domain

    def hub_noise(self, trip: int) -> HubNoise:
        if trip < self.trips - 1:
            return super().hub_noise(trip)
        return NoiseSpec("gaussian", self.noises_of_counts.sigma, self.noises_of_counts.round + 1)

    def meets(self, trip: int) -> str | None:
        return "shards" if trip == self.trips - 1 else super().meets(trip)

    def summarise(self, trip: int, part: Block | Shard, keys: Keys) -> Columns:
        if trip < self.trips - 1:
            return super().summarise(trip, part, keys)
        assert isinstance(part, Shard) and part.items is not None
        rows = np.flatnonzero(part.state[INSIDE])
        sums = histogram(part.items.take(pa.array(rows)), part.state[COUNT][rows], part.kinds)
        return {**sums, WEIGHTS: part.sums[WEIGHT][rows]}

    def decide(self, trip: int, state: Columns, summaries: Sequence[Columns], draw: Draw) -> Decided:
        if trip < self.trips - 1:
            return super().decide(trip, state, summaries, draw)
        beyond = isinstance(self.inner, CountedProgram)
        listed = gather(summaries, self.domain, draw.fingerprints, beyond=beyond)
        noisy = draw.noisy(listed.weights, listed.fp)
        count, deviation = self.noises_of_counts.counts(noisy, float(state[USERS_PER_WEIGHT][0]))
        numbers = {NOISY_COUNT: count, DEVIATION: deviation}
        broadcast = {OTHERS: state[OTHERS]} if self.others else {}
        return {"items": listed.items, "kinds": kinds_column(listed.kinds), **numbers}, broadcast

    def hub_output(self, state: Columns) -> pa.RecordBatch | None:
        """Item, count, deviation; None where nothing is listed or released."""
        if not len(state["items"]):
            return None
        numbers = [(name, pa.float64()) for name in (NOISY_COUNT, DEVIATION)]
        kinds = {METADATA_KEY: state["kinds"][0].as_py()}
        schema = pa.schema([("item", pa.large_binary()), *numbers], metadata=kinds)
        arrays = [state["items"], *(pa.array(state[name]) for name, _ in numbers)]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
