"""A series as its definition reads: dictionaries, floats, one item and one user at a time."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa

from dpbeam.engine.program import Keys
from dpbeam.kernels.grid import UNITS
from dpbeam.randomness import fingerprints, pair_bits
from dpbeam.series.config import SeriesPlan


class Reference:
    """Nights as lists of (user, item) strings; `released` maps items to the night on which they went out."""

    def __init__(self, plan: SeriesPlan, keys: Keys):
        self.plan, self.keys = plan, keys
        self.night = self.round = 0
        self.ranks: dict[str, dict[str, int]] = {}  # user -> item -> rank, never taken back
        self.gone: dict[str, set[str]] = {}  # user -> items that an erasure took
        self.again: dict[str, int] = {}  # user -> ranks that items took anew after an erasure
        self.z: dict[str, float] = {}
        self.y: dict[str, float] = {}
        self.a: dict[str, float] = {}
        self.score: dict[str, float] = {}
        self.released: dict[str, int] = {}
        self.energy: dict[str, float] = {}  # what a user has left, also while it is erased
        self.first: dict[str, int] = {}

    def _fp(self, key: bytes, text: str) -> np.ndarray:
        return fingerprints(key, pa.array([text.encode()], pa.large_binary()))

    def _order(self, user: str, item: str) -> tuple[int, int]:
        pairs = self.keys.pairs
        bits = pair_bits(pairs.sample, self._fp(pairs.user, user), self._fp(pairs.item, item))
        return int(bits[0, 0]), int(bits[0, 1])

    def erase(self, user: str) -> None:
        self.gone.setdefault(user, set()).update(self.ranks.get(user, {}))

    def run(self, pairs: list[tuple[str, str]]) -> None:
        self.night += 1
        fresh = []
        for user, item in sorted(set(pairs), key=lambda pair: self._order(*pair)):
            own, gone = self.ranks.setdefault(user, {}), self.gone.setdefault(user, set())
            if item in self.released or (item in own and item not in gone):
                continue
            used = len([i for i in own if i not in gone]) + self._lost(user)
            if used < self.plan.config.max_items_per_user:
                if item in gone:  # who comes back pays anew
                    gone.discard(item)
                    self.again[user] = self.again.get(user, 0) + 1
                own[item] = used + 1
                self.energy.setdefault(user, 1.0)
                self.first.setdefault(user, self.night)
                if item not in self.z:
                    fresh.append(item)
        for item in dict.fromkeys(fresh):
            self.z[item] = self.y[item] = self.a[item] = 0.0
            self.score[item] = 1.0
            for r in range(self.round):
                self._observe(r, item, 0.0)
        schedule = self.plan.config.resolved_schedule
        for r in schedule.of_night(self.night):
            self._one_round(r)
            self.round += 1

    def _lost(self, user: str) -> int:
        return len(self.gone.get(user, ())) + self.again.get(user, 0)

    def _one_round(self, r: int) -> None:
        sums = dict.fromkeys([item for item in self.z if item not in self.released], 0.0)
        for user, own in self.ranks.items():
            mine = {
                i: self.score[i]
                for i in own
                if i not in self.released and i not in self.gone[user] and self.score[i] > 0
            }
            caps = {i: self.plan.calibration.caps[own[i]] for i in mine}
            for item, weight in fill(mine, caps, self._room(r, user)).items():
                sums[item] += weight
                if self.plan.config.saved_norm is not None:
                    self.energy[user] -= self.plan.calibration.fractions[r] * weight**2
        for item, total in sums.items():
            self._observe(r, item, total)
            if self.z[item] >= self.plan.calibration.thresholds[r]:
                self.released[item] = self.night

    def _room(self, r: int, user: str) -> float:
        bonus, f = self.plan.config.saved_norm, self.plan.calibration.fractions
        if bonus is None or user not in self.energy:
            return 1.0
        left = max(0.0, self.energy[user])
        evenly = left / math.fsum(f[r:]) * (1 + bonus / (1 + self.night - self.first[user]))
        return min(4.0, left / f[r], evenly)

    def _observe(self, r: int, item: str, total: float) -> None:
        c, config = self.plan.calibration, self.plan.config
        noise = self.keys.noise(self.plan.program.noise(r), self._fp(self.keys.pairs.item, item))
        weight = total + int(noise[0]) / UNITS
        full = self.score[item] * self._expected(r)
        self.z[item] += c.a[r] * c.fractions[r] * weight
        self.y[item] += c.fractions[r] * full * weight
        self.a[item] += c.fractions[r] * full**2
        best, nights = 0.0, config.resolved_schedule.nights
        if r + 1 < len(nights):
            for factor, summand, share in config.aims:
                aim = (
                    config.nights if factor is None else min(config.nights, factor * nights[r + 1] + summand)
                )
                best = max(
                    best, share * self._outlook(r, item, config.resolved_schedule.end_of(math.floor(aim)))
                )
        self.score[item] = 0.0 if best < 1e-3 else round(best * 65535) / 65535

    def _expected(self, r: int) -> float:
        config = self.plan.config
        return (config.resolved_schedule.nights[r] / config.nights) ** config.growth

    def _outlook(self, k: int, item: str, end: int) -> float:
        c, s = self.plan.calibration, self.plan.config.score
        rest = math.fsum(c.a[r] * c.fractions[r] * self._expected(r) for r in range(k + 1, end + 1))
        estimate = self.y[item] / self.a[item]
        spread = c.sigma * math.sqrt(rest**2 / self.a[item] + max(0.0, c.V[end] - c.V[k]))
        y = (self.z[item] + s.g * rest * estimate - c.thresholds[end]) / spread
        low = min(0.0, y + s.a + s.a1 * (c.V[k] - 0.5)) / (s.k1 * math.exp(s.kk * (c.V[k] - 0.5)))
        high = max(0.0, y - s.b) / s.k2
        return math.exp(-(low**2 + high**2) / 2)


def fill(scores: dict[str, float], caps: dict[str, float], room: float) -> dict[str, float]:
    """min(cap, s score) with the largest s of squared norm at most `room`, by bisection."""
    if not scores:
        return {}
    if math.fsum(cap**2 for cap in caps.values()) <= room:
        return caps
    low, high = 0.0, math.sqrt(room) / min(scores.values()) + 1
    for _ in range(200):
        s = (low + high) / 2
        norm = math.fsum(min(caps[i], s * scores[i]) ** 2 for i in scores)
        low, high = (s, high) if norm <= room else (low, s)
    return {i: min(caps[i], low * scores[i]) for i in scores}
