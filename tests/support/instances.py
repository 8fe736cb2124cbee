"""Small random (user, item) data and the ways to feed it: batches, orders, duplicates, array types."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa

from dpbeam.kernels.csr import Csr
from dpbeam.testing.replay import Pair, batches, random_pairs, to_arrays, whole_block

__all__ = ["Pair", "batches", "random_pairs", "to_arrays", "whole_block"]


def pairs_with_whales(users: int = 900, stop: float = 0.35) -> list[Pair]:
    """Popularity like 1/rank, degrees geometric, rows that repeat, and two users who hold everything, far above D0."""
    rng, items = np.random.default_rng(1), 60
    user = np.repeat(np.arange(users), rng.geometric(stop, users))
    item = np.minimum((items ** rng.random(len(user))).astype(int), items - 1)
    pairs = [(f"user {u}", f"item {i}") for u, i in zip(user, item)]
    pairs += [(f"whale {w}", f"item {i}") for w in range(2) for i in range(items)]
    return pairs + pairs[::3]


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
