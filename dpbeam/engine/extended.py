"""A program that goes on where another one ends."""

from __future__ import annotations

from dpbeam.accounting.threshold import ReleaseTest
from dpbeam.engine.forwarding import Forwarding, check_goes_on
from dpbeam.engine.program import HubNoise, ItemNoise, Keys, Program, Reply, Touches, Weighed
from dpbeam.kernels.pairs import Block


class Extended(Forwarding):
    """All trips of `inner`, and trips of its own after them, without sums, noise of items or shards.

    A subclass says how many `trips` there are, and what happens after the last one of `inner`; its hub then has the
    state that the hub of `inner` left.

    Raises:
      ValueError: `inner` does not give its result from its shards, or its parts meet after its last trip.
    """

    def __init__(self, inner: Program):
        super().__init__(inner)
        check_goes_on(inner, inner.trips - 1)

    def is_first(self, trip: int) -> bool:
        """Whether the trip is one of `inner`."""
        return trip < self.inner.trips

    def sum_names(self, trip: int) -> tuple[str, ...]:
        return super().sum_names(trip) if self.is_first(trip) else ()

    def noise(self, trip: int) -> ItemNoise:
        return super().noise(trip) if self.is_first(trip) else None

    def touches(self, trip: int) -> Touches:
        return super().touches(trip) if self.is_first(trip) else Program.touches(self, trip)

    def norm_on(self, trip: int) -> str:
        return super().norm_on(trip) if self.is_first(trip) else Program.norm_on(self, trip)

    def release_test(self, trip: int) -> ReleaseTest | None:
        return super().release_test(trip) if self.is_first(trip) else None

    def hub_noise(self, trip: int) -> HubNoise:
        return super().hub_noise(trip) if self.is_first(trip) else None

    def meets(self, trip: int) -> str | None:
        return super().meets(trip) if self.is_first(trip) else None

    def reads_block(self, trip: int) -> bool:
        return super().reads_block(trip) if self.is_first(trip) else True

    def block_state_trip(self, trip: int) -> int | None:
        return super().block_state_trip(trip) if self.is_first(trip) else None

    def weigh(self, trip: int, block: Block, reply: Reply, keys: Keys) -> Weighed:
        return super().weigh(trip, block, reply, keys) if self.is_first(trip) else ({}, None)
