"""Small random streams of nights, and how they are fed to a series."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dpbeam.engine.program import Keys
from dpbeam.randomness import RunKey
from dpbeam.series.config import SeriesPlan, plan_series
from dpbeam.series.family import SeriesConfig
from dpbeam.series.night import run_kept
from dpbeam.series.state import SeriesState

Pair = tuple[str, str]


def keys_of(seed: object) -> Keys:
    return Keys(RunKey.insecure_fixed(str(seed)))


def plan_of(nights: int = 4, epsilon: float = 4.0, delta: float = 0.1, **settings) -> SeriesPlan:
    """A plan at which small data release something."""
    return plan_series(SeriesConfig(epsilon, delta, nights, **settings))


def random_nights(seed: int, nights: int = 4, *, users: int = 60, items: int = 30) -> list[list[Pair]]:
    """Users hold skewed sets of items; each pair comes on a night of its own, some of them again later."""
    rng = np.random.default_rng(seed)
    share = 1.0 / np.arange(1, items + 1)
    share /= share.sum()
    streams: list[list[Pair]] = [[] for _ in range(nights)]
    for user in range(users):
        for item in rng.choice(items, min(items, int(rng.geometric(0.2))), replace=False, p=share):
            for night in rng.choice(nights, 1 + (rng.random() < 0.3), replace=False):
                streams[night].append((f"user {user}", f"item {item}"))
    return streams


def arrays(pairs: list[Pair]) -> tuple[pa.Array, pa.Array]:
    users, items = (pa.array([pair[side].encode() for pair in pairs], pa.large_binary()) for side in (0, 1))
    return users, items


def run_night(
    program, state: SeriesState, users: pa.Array, items: pa.Array, keys: Keys, counts=None
) -> SeriesState:
    """The state after the next night, whose pairs are canonical bytes without known items."""
    kept = state.kept(users, items, keys.pairs, program.cap, state.night + 1)
    return run_kept(program, state, kept, keys, counts)


def run_nights(
    plan: SeriesPlan,
    nights: list[list[Pair]],
    keys: Keys,
    erased: dict[int, list[str]] | None = None,
    program=None,
) -> SeriesState:
    """The state after all nights; `erased`: night -> users that are erased after it."""
    state = SeriesState.empty()
    for number, pairs in enumerate(nights, start=1):
        state = run_night(program or plan.program, state, *arrays(pairs), keys)
        for user in (erased or {}).get(number, ()):
            state = state.without(pa.array([user.encode()], pa.large_binary()), keys.pairs)
    return state


def released(state: SeriesState) -> dict[str, int]:
    """Item -> the night that released it."""
    return {i.decode(): int(n) for i, n in zip(state.released.to_pylist(), state.released_night)}
