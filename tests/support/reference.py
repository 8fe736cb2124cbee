"""What the slow references of the selectors stand on: dictionaries, floats and loops, from the papers' listings.

They share nothing with the product but the keyed random functions (fingerprint, sampling bits, noise of a round)
and the documented quantisation of what travels back (scores in 1/65535, biases in 2^-15).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from dpbeam.accounting.noise import NoiseSpec
from dpbeam.engine.program import Keys
from dpbeam.randomness import fingerprints, pair_bits

Sets = dict[str, list[str]]


@dataclass
class Trace:
    """Noisy statistic of every item after each noisy round, and what was released."""

    rounds: list[dict[str, float]] = field(default_factory=list)
    released: set[str] = field(default_factory=set)


class Data:
    """Distinct pairs with the run's random functions evaluated one by one."""

    def __init__(self, pairs: Iterable[tuple[str, str]], keys: Keys):
        self.keys = keys
        self.sets: Sets = defaultdict(list)
        for user, item in sorted(set(pairs)):
            self.sets[user].append(item)
        self._user = {u: fingerprints(keys.pairs.user, pa.array([u])) for u in self.sets}
        items = sorted({i for s in self.sets.values() for i in s})
        self._item = {i: fingerprints(keys.pairs.item, pa.array([i])) for i in items}

    def sample(self, sets: Sets, cap: int, key: bytes) -> Sets:
        """The `cap` items of each user with the smallest bits, ties to the smaller fingerprint."""

        def rank(user: str, item: str) -> tuple[int, ...]:
            bits = pair_bits(key, self._user[user], self._item[item])
            return (*map(int, bits[0]), *map(int, self._item[item][0]))

        return {
            u: s if len(s) <= cap else sorted(s, key=lambda i, u=u: rank(u, i))[:cap] for u, s in sets.items()
        }

    def capped(self, cap: int) -> Sets:
        return self.sample(self.sets, cap, self.keys.pairs.sample)

    def noise(
        self, number: int, items: Iterable[str], sigma: float, fraction_bits: int = 0
    ) -> dict[str, float]:
        return self.noise_of(NoiseSpec("gaussian", sigma, number), items, fraction_bits)

    def noise_of(self, spec: NoiseSpec, items: Iterable[str], fraction_bits: int = 0) -> dict[str, float]:
        def draw(item: str) -> float:
            return float(self.keys.noise(spec, self._item[item], fraction_bits=fraction_bits)[0]) * 2.0**-30

        return {item: draw(item) for item in items}


def universe(sets: Sets) -> set[str]:
    return {item for items in sets.values() for item in items}


def without(sets: Sets, removed: set[str]) -> Sets:
    return {user: [i for i in items if i not in removed] for user, items in sets.items()}


#: Weight above a floor that rounding may make: nothing.
NOTHING = 1e-6


def above(
    weight: Mapping[str, float], items: Iterable[str], min_users: int, most: float = 1.0
) -> dict[str, float]:
    """What items keep above a floor, one user giving `most`; all of it where there is no floor."""
    shifted = {item: weight.get(item, 0.0) - (min_users - 1) * most for item in items}
    return {item: value if value > NOTHING else 0.0 for item, value in shifted.items()}
