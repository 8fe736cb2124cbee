"""A program under observation: exact sums and noisy state of every round by item, and replay of a history.

Replay is the strongest test of a selector's privacy. Let S' be S and one more user v, under the same key. S' is run
while the noise-added state of every round is replaced by that of S (pure noise for items that S lacks). Then
whatever the rounds learn from noise is equal in both runs, and the exact sums may differ by v's own contribution
alone. Anything else -- a global function of the items present, a sample that moves, somebody else's rounding --
shows as a difference elsewhere or as a norm above one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from dpbeam.engine.program import Keys, Program
from dpbeam.kernels.pairs import Block
from dpbeam.kernels.shards import Shard
from dpbeam.selectors.mad.program import MadProgram

EXACT_BITS = 76  # exact sums are Python integers in units of 2^-76, the finest grid in use
ONE = 1 << (2 * EXACT_BITS)  # a squared norm of one
_HISTORY = ("noisy", "z", "y", "a")


@dataclass
class Round:
    """One noisy round by item: exact sum before noise, noise-added state, presence and release."""

    exact: dict[bytes, int] = field(default_factory=dict)
    state: dict[str, dict[bytes, float]] = field(default_factory=dict)
    present: set[bytes] = field(default_factory=set)
    released: set[bytes] = field(default_factory=set)


class Watched(Program):
    """Runs `inner` and records it; with `history`, the noisy state of each round is replaced by the recorded one."""

    def __init__(self, inner: Program, history: Mapping[int, Round] | None = None):
        self.inner = inner
        self.history = history
        self.rounds: dict[int, Round] = {}
        self.replies: dict[int, dict[str, dict[bytes, float]]] = {}
        self.samples: dict[int, list[np.ndarray]] = {}
        self.trips, self.cap = inner.trips, inner.cap
        self.weight_grid, self.reply_columns = inner.weight_grid, inner.reply_columns

    def sum_names(self, trip):
        return self.inner.sum_names(trip)

    def block_state_trip(self, trip):
        return self.inner.block_state_trip(trip)

    def noise_round(self, trip):
        return self.inner.noise_round(trip)

    def weigh(self, trip, block, reply, keys):
        return self.inner.weigh(trip, block, reply, keys)

    def released(self, shard):
        return self.inner.released(shard)

    def add_noise(self, trip: int, shard: Shard, keys: Keys) -> Shard:
        names = shard.items.to_pylist()
        after = self.inner.add_noise(trip, shard, keys)
        here = self.rounds.setdefault(trip, Round())
        exact = self._exact(trip, shard)
        here.exact.update(zip(names, exact))
        present = after.state.get("present", np.array([value > 0 for value in exact]))
        here.present.update(n for n, p in zip(names, present) if p)
        if self.history is not None:
            after = self._replayed(trip, shard, after, keys, names)
        for name in set(_HISTORY) & set(after.state):
            here.state.setdefault(name, {}).update(zip(names, after.state[name].tolist()))
        return after

    def threshold(self, trip: int, shard: Shard) -> Shard:
        after = self.inner.threshold(trip, shard)
        names = shard.items.to_pylist()
        self.rounds[trip].released.update(n for n, r in zip(names, after.state["released"]) if r)
        return after

    def reply(self, trip: int, shard: Shard):
        after, values = self.inner.reply(trip, shard)
        here = self.replies.setdefault(trip, {})
        for name, column in values.items():
            here.setdefault(name, {}).update(zip(shard.items.to_pylist(), column.tolist()))
        return after, values

    def _exact(self, trip: int, shard: Shard) -> list[int]:
        if "weight" in shard.sums:
            return [int(w) << 46 for w in shard.sums["weight"]]
        spec = self._mad_round(trip)
        columns = (shard.state["initial"], shard.sums["whole"], shard.sums["fraction"])
        tau = spec.tables.tau_units
        return [((min(int(i), tau) + int(w)) << 46) + int(f) for i, w, f in zip(*columns)]

    def _mad_round(self, trip: int):
        inner = self.inner
        if isinstance(inner, MadProgram):
            return inner.round
        return inner.first if trip == 1 else inner.second

    def _replayed(self, trip: int, shard: Shard, after: Shard, keys: Keys, names: list[bytes]) -> Shard:
        """`after` with the history's noisy state, and pure noise where the history has no such item."""
        empty = {n: np.zeros(len(shard), np.int64) for n in shard.sums}
        state = dict(shard.state)
        if "initial" in state:
            state["initial"] = np.zeros(len(shard), np.int64)
        pure = self.inner.add_noise(trip, replace(shard, sums=empty, state=state), keys)
        state = dict(after.state)
        for name in set(_HISTORY) & set(state):
            known = self.history[trip].state[name]
            state[name] = np.array(
                [known.get(n, p) for n, p in zip(names, pure.state[name].tolist())], state[name].dtype
            )
        return replace(after, state=state)


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
