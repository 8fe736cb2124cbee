"""The program: users' listed items are counted on two trips, and the hub adds noise to the sum of every item listed.

The hub knows the list, so that an item that nobody holds gets its noise like any other: which of them users hold shows
in the counts alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dpbeam.accounting.noise import NoiseSpec, check_same_noise
from dpbeam.counting.config import CountPlan
from dpbeam.counts.counted import COUNT, CountProgram
from dpbeam.counts.selection import DEVIATION, NOISY_COUNT, USERS_PER_WEIGHT
from dpbeam.counts.user_rounds import INSIDE, WEIGHT, UserRounds
from dpbeam.engine.program import Draw, HubNoise, Keys
from dpbeam.kernels.canonical import METADATA_KEY
from dpbeam.kernels.columns import Columns
from dpbeam.kernels.pairs import Block, kinds_column
from dpbeam.kernels.shards import Shard
from dpbeam.topk.program import WEIGHTS, gather, histogram


class ListedCounts(UserRounds):
    """Counts of the items of a public list.

    Args:
      plan: calibrated; domain: the list, from `dpbeam.topk.program.public_domain`.

    Raises:
      NoiseMismatchError: the plan's events state other noise than is drawn.
    """

    output = "hub"

    def __init__(self, plan: CountPlan, domain: Columns):
        super().__init__(CountProgram())
        self.plan, self.domain = plan, domain
        self.add_rounds()
        check_same_noise(plan.event.noises(), self.noises())

    @property
    def histogram_noise(self) -> NoiseSpec:
        return NoiseSpec("gaussian", self.plan.noises.histogram_sigma, self.plan.noises.round)

    def choose_way(self, noisy: np.ndarray, size: int) -> Columns:
        return self.plan.noises.way(noisy, size)

    def hub_noise(self, trip: int) -> HubNoise:
        if trip < self.trips - 1:
            return super().hub_noise(trip)
        return NoiseSpec("gaussian", self.plan.noises.sigma, self.plan.noises.round + 1)

    def meets(self, trip: int) -> str | None:
        return "shards" if trip == self.trips - 1 else super().meets(trip)

    def summarise(self, trip: int, part: Block | Shard, keys: Keys) -> Columns:
        if trip < self.trips - 1:
            return super().summarise(trip, part, keys)
        assert isinstance(part, Shard) and part.items is not None
        rows = np.flatnonzero(part.state[INSIDE])
        sums = histogram(part.items.take(pa.array(rows)), part.state[COUNT][rows], part.kinds)
        return {**sums, WEIGHTS: part.sums[WEIGHT][rows]}

    def decide(
        self, trip: int, state: Columns, summaries: Sequence[Columns], draw: Draw
    ) -> tuple[Columns, Columns]:
        if trip < self.trips - 1:
            return super().decide(trip, state, summaries, draw)
        listed = gather(summaries, self.domain, draw.run_key)
        noisy = listed.weights + draw.noise(listed.fp)
        count, deviation = self.plan.noises.counts(noisy, float(state[USERS_PER_WEIGHT][0]))
        numbers = {NOISY_COUNT: count, DEVIATION: deviation}
        return {"items": listed.items, "kinds": kinds_column(listed.kinds), **numbers}, {}

    def hub_output(self, state: Columns) -> pa.RecordBatch | None:
        """Item, count, deviation; None where nothing is listed."""
        if not len(state["items"]):
            return None
        numbers = [(name, pa.float64()) for name in (NOISY_COUNT, DEVIATION)]
        kinds = {METADATA_KEY: state["kinds"][0].as_py()}
        schema = pa.schema([("item", pa.large_binary()), *numbers], metadata=kinds)
        arrays = [state["items"], *(pa.array(state[name]) for name, _ in numbers)]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
