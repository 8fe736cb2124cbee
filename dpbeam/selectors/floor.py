"""A floor on users: no item of fewer than K users is released, whatever the noise.

What is added up loses T = (K - 1) c before noise, and is 0 where it would be negative; c is the most that one user
gives to one item. An item of fewer than K users weighs at most T, so it keeps nothing, and what keeps nothing is
treated like an item that nobody holds: it is no candidate.

Guarantee: privacy unit one user, add/remove one user; that of the selection, with its noise, thresholds and events as
they are, if a round

- either sends the same for all other users whether a user takes part or not, given the rounds before (candidates are
  the items that keep something);
- or sends `USERS`, how many users gave something to each item, and sees to it that what the newcomer adds to an item
  that K - 1 others hold is its own weight alone (candidates are the items of K users).

docs/explanation/privacy.md (A floor on users) proves it. *Rounding*: c is rounded up to the grid, all else is integers.
"""

from __future__ import annotations

import math

import numpy as np

from dpbeam.engine.forwarding import Forwarding
from dpbeam.engine.program import Exact, Program, with_state
from dpbeam.kernels.grid import UNITS
from dpbeam.kernels.shards import Shard

#: Sums of 1 per user and item, of programs where the weights of others move with a user's.
USERS = "users"
_ABOVE = "above_floor"


class Floored(Forwarding):
    """`inner` with a floor.

    Args:
      inner: a selection that a floor may be laid under (`Selector.takes_min_users`).
      min_users: K, from 2.
    """

    def __init__(self, inner: Program, min_users: int):
        super().__init__(inner)
        if min_users < 2:
            raise ValueError(f"a floor needs at least 2 users, got {min_users}")
        self.min_users = min_users

    def floor_units(self, trip: int) -> int:
        """T of a noisy trip in units of 2^-30: so much K - 1 users give to an item at most."""
        return (self.min_users - 1) * math.ceil(float(self.inner.touches(trip).weight.max()) * UNITS)

    def exact(self, trip: int, shard: Shard) -> Exact:
        return lowered(super().exact(trip, shard), self.floor_units(trip))

    def candidates(self, trip: int, shard: Shard, present: np.ndarray) -> np.ndarray:
        """(items,) bool: what this trip may release.

        Args:
          present: (items,) bool, what keeps something.
        """
        return shard.sums[USERS] >= self.min_users if USERS in shard.sums else present

    def observe(self, trip: int, shard: Shard, noisy: np.ndarray, present: np.ndarray) -> Shard:
        now = self.candidates(trip, shard, present)
        before = shard.state.get(_ABOVE)
        shard = with_state(shard, **{_ABOVE: now if before is None else before | now})
        return super().observe(trip, shard, noisy, now)

    def threshold(self, trip: int, shard: Shard) -> Shard:
        """What crosses without having been a candidate on this trip or before stays unreleased."""
        before = shard.state.get("released", False)
        after = super().threshold(trip, shard)
        return with_state(after, released=after.state["released"] & (before | after.state[_ABOVE]))


def lowered(exact: Exact, units: int) -> Exact:
    """max(0, w - units), exactly."""
    left = exact.units - units
    fraction = None if exact.fraction is None else np.where(left < 0, 0, exact.fraction)
    return Exact(np.maximum(left, 0), fraction, exact.fraction_bits)
