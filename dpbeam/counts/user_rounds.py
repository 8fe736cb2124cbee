"""Rounds after a domain is known: how many of its items users hold, with noise, and sums of clipped weights.

After the last trip of the counting program, shards tell blocks which items are in the domain and the hub how many,
which is public. On the next trip blocks restrict their users' full sets to the domain and send the hub how many users
hold how many items; it adds the stated noise and announces how to go on. On the last trip blocks send clipped weights,
where that is the way. What becomes of the sums is for the programs that use these rounds.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np

from dpbeam.accounting.noise import NoiseSpec
from dpbeam.counts.counted import COUNT, candidates
from dpbeam.counts.items_per_user import bucket_edges, clipped_weights, items_per_user
from dpbeam.engine.extended import Extended
from dpbeam.engine.program import Decided, Draw, HubNoise, Keys, Reply, ReplyColumn, Weighed, with_state
from dpbeam.kernels.columns import Columns
from dpbeam.kernels.csr import Csr
from dpbeam.kernels.grid import UNITS
from dpbeam.kernels.pairs import Block
from dpbeam.kernels.shards import Shard

INSIDE, WAY, WEIGHT = "inside", "way", "weight"
#: What the hub announces where it is asked for: (1,) int64, a noisy number of users without an item of the domain.
OTHERS = "others"
_DOMAIN, _SIZE, _USERS = "domain", "size", "users"
_OTHERS_FP = np.array([[0, 1]], np.uint64)  # buckets have (number, 0)


class UserRounds(Extended):
    """A counting program and two trips more; to be completed by what the last one is for.

    Attributes:
      inner: a counted selection, or `CountProgram`.
      domain: a list of items that are public; None: there is none.
      domain_trip: the last trip of the counting, after which the domain is known.
      others: whether the histogram has a bucket for users without an item of the domain; a user is still in one bucket.
    """

    domain: Columns | None = None
    others: bool = False

    def add_rounds(self) -> None:
        """Add the two trips; call it once `inner` is there."""
        self.domain_trip = self.inner.trips - 1
        self.trips = self.inner.trips + 2
        reply = {_DOMAIN: ReplyColumn(np.uint8, 0)}
        self.reply_columns = {**self.inner.reply_columns, self.domain_trip: reply}

    @property
    @abstractmethod
    def histogram_noise(self) -> NoiseSpec:
        """The noise of the histogram of items per user."""

    @abstractmethod
    def choose_way(self, noisy: np.ndarray, size: int) -> Columns:
        """What the hub announces: WAY, (1,) the clip of the weights, or 0 and below for none.

        Args:
          noisy: numbers of users per bucket with noise.
          size: items of the domain.
        """

    def sum_names(self, trip: int) -> tuple[str, ...]:
        return (WEIGHT,) if trip == self.trips - 1 else super().sum_names(trip)

    def norm_on(self, trip: int) -> str:
        return "l2" if trip == self.trips - 1 else super().norm_on(trip)

    def hub_noise(self, trip: int) -> HubNoise:
        return self.histogram_noise if trip == self.domain_trip + 1 else super().hub_noise(trip)

    def block_state_trip(self, trip: int) -> int | None:
        return trip - 1 if trip == self.trips - 1 else super().block_state_trip(trip)

    def weigh(self, trip: int, block: Block, reply: Reply, keys: Keys) -> Weighed:
        if self.is_first(trip):
            return super().weigh(trip, block, reply, keys)
        if trip < self.trips - 1:
            rows = Csr(block.offsets, block.links).restrict(reply[_DOMAIN].take(block.links) > 0)
            return {}, rows.to_state(_DOMAIN)
        rows, way = Csr.from_state(block.state, _DOMAIN), int(block.broadcast[WAY][0])
        if way <= 0:
            return {WEIGHT: np.zeros(block.num_items, np.int64)}, None
        return {WEIGHT: rows.item_sums(clipped_weights(rows, way), block.num_items)}, None

    def reply(self, trip: int, shard: Shard) -> tuple[Shard, dict[str, np.ndarray]]:
        if trip < self.domain_trip:
            return super().reply(trip, shard)
        inside, counts = candidates(self.inner, shard)
        return with_state(shard, **{INSIDE: inside, COUNT: counts}), {_DOMAIN: inside.astype(np.uint8)}

    def meets(self, trip: int) -> str | None:
        return {self.domain_trip: "shards", self.domain_trip + 1: "blocks"}.get(trip) or super().meets(trip)

    def summarise(self, trip: int, part: Block | Shard, keys: Keys) -> Columns:
        if trip < self.domain_trip:
            return super().summarise(trip, part, keys)
        if isinstance(part, Block):
            rows = Csr.from_state(part.state, _DOMAIN)
            users = {_USERS: items_per_user(rows.degrees, int(part.broadcast[_SIZE][0]))}
            return (
                {**users, OTHERS: np.array([np.count_nonzero(rows.degrees == 0)])} if self.others else users
            )
        new, _ = candidates(self.inner, part, listed=self.domain is None)
        return {_SIZE: np.array([np.count_nonzero(new)], np.int64)}

    def decide(self, trip: int, state: Columns, summaries: Sequence[Columns], draw: Draw) -> Decided:
        if trip < self.domain_trip:
            return super().decide(trip, state, summaries, draw)
        if trip == self.domain_trip:
            listed = 0 if self.domain is None else len(self.domain["items"])
            size = listed + sum(int(part[_SIZE][0]) for part in summaries)
            sizes: Columns = {_SIZE: np.array([size], np.int64)}
            return sizes, sizes
        size = int(state[_SIZE][0])
        edges = bucket_edges(size)
        exact = sum((part[_USERS] for part in summaries), np.zeros(len(edges), np.int64))
        fp = np.stack((np.arange(len(edges)), np.zeros(len(edges))), axis=1).astype(np.uint64)
        way = self.choose_way(draw.noisy(exact * UNITS, fp) / UNITS, size)
        if self.others:
            units = sum((part[OTHERS] for part in summaries), np.zeros(1, np.int64)) * UNITS
            way[OTHERS] = np.rint(draw.noisy(units, _OTHERS_FP) / UNITS).astype(np.int64)
        return way, way
