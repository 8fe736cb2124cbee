"""Small random (user, item) data and the ways to feed it: batches, orders, duplicates, array types."""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa

from dpbeam.engine.program import Keys
from dpbeam.kernels.csr import Csr
from dpbeam.kernels.pairs import Block, build_block, partition_pairs

Pair = tuple[str, str]


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


def pairs_with_whales(users: int = 900, stop: float = 0.35) -> list[Pair]:
    """Popularity like 1/rank, degrees geometric, rows that repeat, and two users who hold everything, far above D0."""
    rng, items = np.random.default_rng(1), 60
    user = np.repeat(np.arange(users), rng.geometric(stop, users))
    item = np.minimum((items ** rng.random(len(user))).astype(int), items - 1)
    pairs = [(f"user {u}", f"item {i}") for u, i in zip(user, item)]
    pairs += [(f"whale {w}", f"item {i}") for w in range(2) for i in range(items)]
    return pairs + pairs[::3]


def to_arrays(pairs: Sequence[Pair], kind: pa.DataType | None = None) -> tuple[pa.Array, pa.Array]:
    """Users and items as Arrow arrays of type `kind` (default string)."""
    kind = kind or pa.string()
    users, items = ([p[side] for p in pairs] for side in (0, 1))
    if pa.types.is_dictionary(kind):
        return pa.array(users), pa.array(items).dictionary_encode()
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        users, items = ([text.encode() for text in side] for side in (users, items))
    return pa.array(users, kind), pa.array(items, kind)


def batches(pairs: Sequence[Pair], size: int | None = None, kind: pa.DataType | None = None) -> list:
    """The pairs in batches of `size` rows (None: one batch)."""
    size = size or max(len(pairs), 1)
    return [to_arrays(pairs[start : start + size], kind) for start in range(0, len(pairs), size)]


def whole_block(pairs: Sequence[Pair], keys: Keys, cap: int, num_shards: int = 1) -> Block | None:
    """All pairs in one block, through the real partition step."""
    messages = [c for u, i in batches(pairs) for _, c in partition_pairs(u, i, keys.pairs, 1, cap)]
    return build_block(0, messages, keys.pairs, num_shards, cap) if messages else None


def csr(sets: Sequence[Collection[int]]) -> Csr:
    """Rows of distinct item numbers, sorted within the row."""
    offsets = np.concatenate(([0], np.cumsum([len(s) for s in sets]))).astype(np.int64)
    return Csr(offsets, np.array([i for s in sets for i in sorted(s)], np.int64))


def fingerprint_array(rows: Sequence[tuple[int, int]]) -> np.ndarray:
    """(n, 2) uint64 from Python integers."""
    return np.array([[high, low] for high, low in rows], np.uint64).reshape(-1, 2)


def power_law_table(users: int, items: int, rows: int, seed: int = 0) -> pa.Table:
    """Columns `user` and `item`: popularity like 1/rank, users uniform, rows that may repeat."""
    rng = np.random.default_rng(seed)
    user, item = rng.integers(users, size=rows), (items ** rng.random(rows)).astype(int)
    named = (("user", user), ("item", item))
    return pa.table({name: pa.array([f"{name}-{n}" for n in numbers.tolist()]) for name, numbers in named})


def popular_table(users: int, seed: int = 0) -> pa.Table:
    """Columns `user` and `item`: popularity like 1/rank over 40 items, six rows a user that may repeat, any order."""
    rng = np.random.default_rng(seed)
    user = np.repeat(np.arange(users), 6)
    item = (40 ** rng.random(len(user))).astype(int)
    order = rng.permutation(len(user))
    return pa.table({"user": [f"u{u}" for u in user[order]], "item": [f"i{i}" for i in item[order]]})
