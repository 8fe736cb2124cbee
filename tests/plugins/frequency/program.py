"""Shares of users at the hub: a noisy number of all users, then noisy sums of the items of a public list."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import pyarrow as pa
from frequency.family import DEVIATION, SHARE

from dpbeam.accounting.noise import NoiseSpec
from dpbeam.counts.counted import FULL_SETS
from dpbeam.counts.items_per_user import clipped_weights
from dpbeam.engine.program import Decided, Draw, HubNoise, ItemNoise, Keys, Program, Reply, Weighed
from dpbeam.kernels.canonical import METADATA_KEY
from dpbeam.kernels.columns import Columns
from dpbeam.kernels.csr import Csr
from dpbeam.kernels.grid import UNITS
from dpbeam.kernels.pairs import Block, common_kinds, kinds_column, positions_in
from dpbeam.kernels.shards import Shard

_USERS_FP = np.array([[0, 2]], np.uint64)


class Shares(Program):
    """Two trips on which blocks, which hold all pairs, meet at the hub; no shard takes part.

    Args:
      users_sigma, sums_sigma: of the noise; clip: of the weights; domain: the list.
    """

    trips, norm, cap, weight_grid, output = 2, "l2", FULL_SETS, 1.0, "hub"
    reply_columns: ClassVar = {}
    released_names = (SHARE, DEVIATION)

    def __init__(self, users_sigma: float, sums_sigma: float, clip: int, domain: Columns):
        self.sigmas, self.clip, self.items = (users_sigma, sums_sigma), clip, domain["items"]

    def sum_names(self, trip: int) -> tuple[str, ...]:
        return ()

    def weigh(self, trip: int, block: Block, reply: Reply, keys: Keys) -> Weighed:
        return {}, None

    def noise(self, trip: int) -> ItemNoise:
        return None

    def meets(self, trip: int) -> str:
        return "blocks"

    def hub_noise(self, trip: int) -> HubNoise:
        return NoiseSpec("gaussian", self.sigmas[trip], trip + 1)

    def summarise(self, trip: int, part: Block | Shard, keys: Keys) -> Columns:
        assert isinstance(part, Block)
        if trip == 0:
            return {"users": np.array([len(part.offsets) - 1], np.int64)}
        place = positions_in(keys.fingerprints(self.items), part.item_fp)
        listed = place >= 0
        rows = Csr(part.offsets, part.links).restrict(listed[part.links])
        weights = rows.item_sums(clipped_weights(rows, self.clip), part.num_items)
        sums = np.zeros(len(self.items), np.int64)
        sums[place[listed]] = weights[listed]
        return {"sums": sums, "kinds": kinds_column(part.kinds)}

    def decide(self, trip: int, state: Columns, summaries: Sequence[Columns], draw: Draw) -> Decided:
        if trip == 0:
            exact = sum((part["users"] for part in summaries), np.zeros(1, np.int64))
            users = np.maximum(1, np.rint(draw.noisy(exact * UNITS, _USERS_FP) / UNITS))
            return {"users": users}, {"users": users}
        sums = sum((part["sums"] for part in summaries), np.zeros(len(self.items), np.int64))
        noisy = draw.noisy(sums, draw.fingerprints(self.items))
        users, per_weight = float(state["users"][0]), math.sqrt(self.clip)
        share = noisy / UNITS * per_weight / users
        deviation = np.hypot(per_weight * self.sigmas[1], share * self.sigmas[0]) / users
        kinds = kinds_column(common_kinds(summaries))
        return {SHARE: share, DEVIATION: deviation, "kinds": kinds}, {}

    def hub_output(self, state: Columns) -> pa.RecordBatch | None:
        """Item, share, deviation; None where nothing is listed."""
        if not len(self.items):
            return None
        numbers = [(name, pa.float64()) for name in self.released_names]
        kinds = {METADATA_KEY: state["kinds"][0].as_py()}
        schema = pa.schema([("item", pa.large_binary()), *numbers], metadata=kinds)
        arrays = [self.items, *(pa.array(state[name]) for name, _ in numbers)]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
