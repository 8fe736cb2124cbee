"""A program under observation: exact sums and noisy state of every round by item, and replay of a history.

Replay is the strongest test of a selector's privacy. Let S' be S and one more user v, under the same key. S' is run
while the noisy sums of every round are replaced by those of S (pure noise for items that S lacks). Then
whatever the rounds learn from noise is equal in both runs, and the exact sums may differ by v's own contribution
alone. Anything else -- a global function of the items present, a sample that moves, somebody else's rounding --
shows as a difference elsewhere or as a norm above one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from dpbeam.engine.forwarding import Forwarding
from dpbeam.engine.program import Exact, Keys, Program
from dpbeam.kernels.grid import UNIT_BITS
from dpbeam.kernels.pairs import Block
from dpbeam.kernels.shards import Shard

EXACT_BITS = 76  # exact sums are Python integers in units of 2^-76, the finest grid in use
ONE = 1 << EXACT_BITS
_STATISTICS = ("noisy", "z")
_BELOW = EXACT_BITS - UNIT_BITS


@dataclass
class Round:
    """One noisy round by item: exact sum before noise, noisy sum, what is tested, presence and release."""

    exact: dict[bytes, int] = field(default_factory=dict)
    noisy: dict[bytes, int] = field(default_factory=dict)
    state: dict[str, dict[bytes, float]] = field(default_factory=dict)
    present: set[bytes] = field(default_factory=set)
    released: set[bytes] = field(default_factory=set)


class Watched(Forwarding):
    """Runs `inner` and records it; with `history`, the noisy sums of each round are replaced by the recorded one."""

    def __init__(self, inner: Program, history: Mapping[int, Round] | None = None):
        super().__init__(inner)
        self.history = history
        self.rounds: dict[int, Round] = {}
        self.replies: dict[int, dict[str, dict[bytes, float]]] = {}

    def observe(self, trip: int, shard: Shard, noisy: np.ndarray, present: np.ndarray) -> Shard:
        names = shard.items.to_pylist()
        exact = self.exact(trip, shard)
        here = self.rounds.setdefault(trip, Round())
        here.exact.update(zip(names, in_finest_units(exact)))
        here.present.update(n for n, p in zip(names, present) if p)
        if self.history is not None:
            known = self.history[trip].noisy
            pure = self.noise(trip).alone(noisy, exact.units).tolist()  # where the history has no such item
            noisy = np.array([known.get(n, a) for n, a in zip(names, pure)], np.int64)
        here.noisy.update(zip(names, noisy.tolist()))
        after = super().observe(trip, shard, noisy, present)
        for name in set(_STATISTICS) & set(after.state):
            here.state.setdefault(name, {}).update(zip(names, after.state[name].tolist()))
        return after

    def threshold(self, trip: int, shard: Shard) -> Shard:
        after = super().threshold(trip, shard)
        names = shard.items.to_pylist()
        self.rounds[trip].released.update(n for n, r in zip(names, after.state["released"]) if r)
        return after

    def reply(self, trip: int, shard: Shard):
        after, values = super().reply(trip, shard)
        here = self.replies.setdefault(trip, {})
        for name, column in values.items():
            here.setdefault(name, {}).update(zip(shard.items.to_pylist(), column.tolist()))
        return after, values


def in_finest_units(exact: Exact) -> list[int]:
    """Exact sums as Python integers in units of 2^-EXACT_BITS."""
    units = [int(w) << _BELOW for w in exact.units]
    if exact.fraction is None:
        return units
    return [u + (int(f) << (_BELOW - exact.fraction_bits)) for u, f in zip(units, exact.fraction)]


def own_contribution(
    program: Program, watched: Watched, trip: int, block: Block, keys: Keys
) -> dict[bytes, int]:
    """What the only user of `block` sends on `trip` under the replies recorded in `watched`, in units of 2^-30."""
    reply = {}
    if trip:
        for name, column in program.reply_columns[trip - 1].items():
            values = watched.replies[trip - 1][name]
            reply[name] = np.array([values[i] for i in block.items.to_pylist()], column.dtype)
    sums, _ = program.weigh(trip, block, reply, keys)
    return {i: int(w) for i, w in zip(block.items.to_pylist(), sums["weight"]) if w}
