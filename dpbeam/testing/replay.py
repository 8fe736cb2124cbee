"""The replay test: a program under observation, run again on one user more while its noisy sums are those of before.

Let S' be S and one more user v, under the same key. S' is run while the noisy sums of every round are replaced by those
of S (pure noise for items that S lacks). Then whatever the rounds learn from noise is equal in both runs, and the exact
sums may differ by v's own contribution alone. Anything else -- a global function of the items present, a sample that
moves, somebody else's rounding -- shows as a difference elsewhere or as a norm above one. The paper on Re:cord-play
(arXiv 2602.17454) tests so.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from dpbeam.accounting.noise import L1, L2, LINF
from dpbeam.engine.forwarding import Forwarding
from dpbeam.engine.in_process import Released, run_in_process
from dpbeam.engine.program import Exact, Keys, Program
from dpbeam.kernels.grid import UNIT_BITS
from dpbeam.kernels.pairs import Block, build_block, partition_pairs
from dpbeam.kernels.shards import Shard
from dpbeam.randomness import RunKey
from dpbeam.selectors.floor import Floored

Pair = tuple[str, str]

EXACT_BITS = 76  # exact sums are Python integers in units of 2^-76, the finest grid in use
ONE = 1 << EXACT_BITS
_STATISTICS = ("noisy", "z")
_BELOW = EXACT_BITS - UNIT_BITS
_SIZES = [(1, 1), (3, 1), (2, 4)]  # blocks, shards
# Exact powers of norms of integer differences in the finest units: at most 1 where the norm is.
_NORMS = {
    L2: lambda moved: Fraction(sum(value * value for value in moved), ONE * ONE),
    L1: lambda moved: Fraction(sum(map(abs, moved)), ONE),
    LINF: lambda moved: Fraction(max(map(abs, moved), default=0), ONE),
}


def key(text: str | int = "tests") -> RunKey:
    """A key that the text fixes, for tests alone."""
    return RunKey.insecure_fixed(str(text))


def random_pairs(seed: int, *, users: int = 60, items: int = 40, max_degree: int = 12) -> list[Pair]:
    """Skewed data: item popularity falls like 1/rank, degrees are geometric up to `max_degree`, all users distinct."""
    return list(_random_pairs(seed, users, items, max_degree))


@functools.lru_cache(maxsize=64)  # every variant of a selector runs on the same ones
def _random_pairs(seed: int, users: int, items: int, max_degree: int) -> tuple[Pair, ...]:
    rng = np.random.default_rng(seed)
    share = 1.0 / np.arange(1, items + 1)
    share /= share.sum()
    pairs = []
    for user in range(users):
        degree = min(max_degree, items, int(rng.geometric(0.35)))
        for item in rng.choice(items, degree, replace=False, p=share):
            pairs.append((f"user {user}", f"item {item}"))
    return tuple(pairs)


def newcomer(seed: int, *, known: int, novel: int) -> list[Pair]:
    """One more user with `known` of the popular items and `novel` items of its own."""
    rng = np.random.default_rng(seed + 10_000)
    chosen = rng.choice(12, min(known, 12), replace=False)
    items = [f"item {i}" for i in chosen] + [f"own {i}" for i in range(novel)]
    return [("newcomer", item) for item in items]


def to_arrays(pairs: Sequence[Pair], kind: pa.DataType | None = None) -> tuple[pa.Array, pa.Array]:
    """Users and items as Arrow arrays of type `kind` (default string)."""
    kind = kind or pa.string()
    users, items = ([pair[side] for pair in pairs] for side in (0, 1))
    if pa.types.is_dictionary(kind):
        return pa.array(users), pa.array(items).dictionary_encode()
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return tuple(pa.array([text.encode() for text in side], kind) for side in (users, items))
    return pa.array(users, kind), pa.array(items, kind)


def batches(
    pairs: Sequence[Pair], size: int | None = None, kind: pa.DataType | None = None
) -> list[tuple[pa.Array, pa.Array]]:
    """The pairs in batches of `size` rows (None: one batch)."""
    size = size or max(len(pairs), 1)
    return [to_arrays(pairs[start : start + size], kind) for start in range(0, len(pairs), size)]


def whole_block(pairs: Sequence[Pair], keys: Keys, cap: int, num_shards: int = 1) -> Block | None:
    """All pairs in one block, through the real partition step."""
    messages = [c for u, i in batches(pairs) for _, c in partition_pairs(u, i, keys.pairs, 1, cap)]
    return build_block(0, messages, keys.pairs, num_shards, cap) if messages else None


def release(program: Program, pairs: Sequence[Pair], run_key: RunKey, **sizes: Any) -> Released:
    """What a program releases of some pairs."""
    return run_in_process(program, batches(pairs), run_key, **sizes)


def unfloored(program: Program) -> tuple[Program, int]:
    """What lies on a floor, and the K of the floor; 1 where there is none."""
    return (program.inner, program.min_users) if isinstance(program, Floored) else (program, 1)


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
        names = _items(shard)
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
        names = _items(shard)
        self.rounds[trip].released.update(n for n, r in zip(names, after.state["released"]) if r)
        return after

    def reply(self, trip: int, shard: Shard) -> tuple[Shard, dict[str, np.ndarray]]:
        after, values = super().reply(trip, shard)
        here = self.replies.setdefault(trip, {})
        for name, column in values.items():
            here.setdefault(name, {}).update(zip(_items(shard), column.tolist()))
        return after, values


def _items(part: Block | Shard) -> list[bytes]:
    items: Any = part.items
    return items.to_pylist()


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
    reply: dict[str, np.ndarray] = {}
    if trip:
        for name, column in program.reply_columns[trip - 1].items():
            values = watched.replies[trip - 1][name]
            reply[name] = np.array([values[i] for i in _items(block)], column.dtype)
    sums, _ = program.weigh(trip, block, reply, keys)
    return {i: int(w) for i, w in zip(_items(block), sums["weight"]) if w}


def watch(
    program: Program,
    pairs: Sequence[Pair],
    run_key: RunKey,
    *,
    history: Mapping[int, Round] | None = None,
    **sizes: Any,
) -> Watched:
    """A run, and what was recorded of it."""
    watched = Watched(program, history)
    release(watched, pairs, run_key, **sizes)
    return watched


Moved = dict[int, dict[bytes, int]]


def replay(
    program: Program,
    pairs: Sequence[Pair],
    extra: Sequence[Pair],
    run_key: RunKey,
    sizes: tuple[int, int] = (1, 1),
    other_sizes: tuple[int, int] | None = None,
) -> tuple[Moved | None, Watched]:
    """Runs S and, under S's noisy history, S' = S + {v}.

    Args:
      pairs: S; extra: those of v.
      sizes: numbers of blocks and shards of the run of S; other_sizes: of the other, the same by default.

    Returns:
      Per noisy trip item -> exact sum of S' less that of S, where not zero; and the run of S'. None in place of the
      first where one of v's novel items crosses a threshold: from there on the runs may differ.

    Raises:
      AssertionError: an item that v does not hold is decided otherwise.
    """
    blocks, shards = sizes
    before = watch(program, pairs, run_key, num_blocks=blocks, num_shards=shards)
    blocks, shards = other_sizes or sizes
    both = [*pairs, *extra]
    after = watch(program, both, run_key, history=before.rounds, num_blocks=blocks, num_shards=shards)
    own = {item.encode() for _, item in extra}
    differences = {}
    for trip, there in after.rounds.items():
        here = before.rounds[trip]
        new = there.released - here.released
        assert here.released <= there.released, (
            f"trip {trip}: what one user adds makes others' items disappear"
        )
        assert new <= own, f"trip {trip}: items that the new user does not hold are released"
        if new:
            return None, after
        items = here.exact.keys() | there.exact.keys()
        moved = {i: there.exact.get(i, 0) - here.exact.get(i, 0) for i in items}
        differences[trip] = {i: value for i, value in moved.items() if value}
    return differences, after


def check_moves(
    program: Program, extra: Sequence[Pair], run_key: RunKey, differences: Moved, after: Watched
) -> float:
    """Holds that one user moves the sums of each round by no more than the program states; the largest norm seen, or
    its square where the norm is l2.

    Args:
      extra: of the user, whose own items begin with "own"; differences, after: of `replay`.

    Raises:
      AssertionError: the norm is above 1, more is touched than `touches` says, or something else moves.
    """
    keys, largest = Keys(run_key), Fraction(0)
    for trip, moved in differences.items():
        norm = _NORMS[program.norm](moved.values())
        assert norm <= 1, f"trip {trip}: {program.norm} norm {float(norm)}"
        largest = max(largest, norm)
        # What nobody else holds moves by the newcomer's own part alone; it keeps to what the program states.
        _hold_to_touches(program, trip, {item: v for item, v in moved.items() if item.startswith(b"own ")})
        if any(program.noise(t) is None for t in range(program.trips)):
            continue  # others' weights may move with the newcomer's: the norm is all that is promised
        alone = whole_block(extra, keys, program.cap)
        assert alone is not None
        sent = {
            item: units << _BELOW
            for item, units in own_contribution(program, after, trip, alone, keys).items()
        }
        if unfloored(program)[1] == 1:
            assert moved == sent, f"trip {trip}: more moves than what the new user sends"
        for item, units in moved.items():  # above a floor, what is left of the newcomer's own
            assert 0 < units <= sent[item], f"trip {trip}: more moves than what the new user sends"
        _hold_to_touches(program, trip, moved)
    return float(largest)


@dataclass(frozen=True)
class Replayed:
    """What replays of a program have shown.

    Attributes:
      compared: pairs of runs that were compared to their end.
      largest: of the norms by which one user moved the sums of a round, or of their squares where the norm is l2.
      refuted: what refutes the program; empty where nothing does.
    """

    compared: int
    largest: float
    refuted: str = ""


def audit_by_replay(program: Program, seeds: int = 12) -> Replayed:
    """Replays a program on random pairs and one user more, in all pairs of sizes.

    Args:
      program: of which noise is added to sums by item; it should release some items of a hundred users.
      seeds: how many pairs of inputs.
    """
    compared, largest = 0, 0.0
    for seed in range(seeds):
        extra = newcomer(seed, known=seed % 8, novel=(1, 1, 4, 20)[seed % 4])
        sizes, others = _SIZES[seed % 3], _SIZES[(seed // 3) % 3]
        try:
            moved, after = replay(program, random_pairs(seed, users=100), extra, key(seed), sizes, others)
            if moved is not None:
                compared += 1
                largest = max(largest, check_moves(program, extra, key(seed), moved, after))
        except AssertionError as error:
            return Replayed(compared, largest, str(error))
    return Replayed(compared, largest)


def _hold_to_touches(program: Program, trip: int, own: Mapping[bytes, int]) -> None:
    """Holds that the newcomer touches no more items than the program states, and gives them no more."""
    items, weight = program.touches(trip)
    assert len(own) <= items[-1], f"trip {trip}: {len(own)} items, {items[-1]} are stated"
    most = Fraction(float(weight[np.searchsorted(items, len(own))])) if own else 0
    assert max(map(abs, own.values()), default=0) <= most * ONE, f"trip {trip}: more weight than stated"
