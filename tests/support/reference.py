"""Slow references of the selectors: dictionaries, floats and loops, written from the papers' listings.

They share nothing with the product but the keyed random functions (fingerprint, sampling bits, noise of a round)
and the documented quantisation of what travels back (scores in 1/65535, biases in 2^-15).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
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

    def noise(self, number: int, items: Iterable[str], sigma: float) -> dict[str, float]:
        spec = NoiseSpec("gaussian", sigma, number)
        return {i: float(self.keys.noise(spec, self._item[i])[0]) for i in items}


def universe(sets: Sets) -> set[str]:
    return {item for items in sets.values() for item in items}


def without(sets: Sets, removed: set[str]) -> Sets:
    return {user: [i for i in items if i not in removed] for user, items in sets.items()}


def uniform_rounds(data: Data, *, sigmas, thresholds, cap: int, max_items: int, resample: bool) -> Trace:
    """Basic (one round) and DP-SIPS."""
    sets, trace = data.capped(cap), Trace()
    everything = universe(sets)
    for number, (sigma, rho) in enumerate(zip(sigmas, thresholds), start=1):
        used = without(sets, trace.released)
        if resample:
            used = data.sample(used, max_items, data.keys.sample(number))
        weight: dict[str, float] = defaultdict(float)
        for items in used.values():
            for item in items:
                weight[item] += 1.0 / math.sqrt(len(items))
        noise = data.noise(number, everything, sigma)
        noisy = {i: weight.get(i, 0.0) + noise[i] for i in everything}
        trace.rounds.append(noisy)
        trace.released |= {i for i in weight if noisy[i] >= rho}
    return trace


def mad_weights(
    sets: Sets, *, tau: float, d_max: int, b_min: float, weigh: Callable[[list[str]], dict[str, float]]
) -> dict[str, float]:
    """One round of MAD with final weights `weigh(items)` per user: Algorithm 2 of the paper."""
    alpha = b_min - 1.0 / (2.0 * math.sqrt(d_max))
    adaptive = {u: s for u, s in sets.items() if math.ceil(1 / b_min**2) <= len(s) <= d_max}
    initial: dict[str, float] = defaultdict(float)
    for items in adaptive.values():
        for item in items:
            initial[item] += 1.0 / len(items)
    ratio = {i: max(0.0, (w - tau) / w) for i, w in initial.items()}
    weight: dict[str, float] = defaultdict(float, {i: min(w, tau) for i, w in initial.items()})
    for items in adaptive.values():
        excess = sum(ratio[i] for i in items) / len(items)
        for item in items:
            weight[item] += alpha * excess / d_max
    for user, items in sets.items():
        for item, value in weigh(items).items():
            weight[item] += value - (1.0 / len(items) if user in adaptive else 0.0)
    return weight


def uniform(items: list[str]) -> dict[str, float]:
    return {item: 1.0 / math.sqrt(len(items)) for item in items}


def user_weights(bias: dict[str, float], b_min: float, b_max: float) -> dict[str, float]:
    """UserWeights of one user: Algorithm 4 of the paper, step by step."""
    d = len(bias)
    root = math.sqrt(d)
    biased = {i for i, b in bias.items() if b < 1}
    weight = {i: max(b_min, bias[i]) / root for i in biased}
    unbiased = [i for i in bias if i not in biased]
    if unbiased:
        rest = 1.0 - sum(w * w for w in weight.values())
        weight.update(dict.fromkeys(unbiased, min(b_max / root, math.sqrt(max(rest, 0.0) / len(unbiased)))))
    while sum(w * w for w in weight.values()) < 1 - 1e-12:
        small = [i for i, w in weight.items() if w < (1.0 - 1e-12) / root]
        if not small:
            break
        largest = max(weight[i] for i in small)
        missing = 1.0 - sum(w * w for w in weight.values())
        factor = min((b_max / root) / largest, math.sqrt(1 + missing / sum(weight[i] ** 2 for i in small)))
        for item in small:
            weight[item] *= factor
    return weight


def mad(data: Data, *, sigma, rho, tau, d_max, cap) -> Trace:
    sets = data.capped(cap)
    weight = mad_weights(sets, tau=tau, d_max=d_max, b_min=1.0, weigh=uniform)
    noise = data.noise(1, universe(sets), sigma)
    noisy = {i: weight[i] + noise[i] for i in universe(sets)}
    return Trace([noisy], {i for i in noisy if noisy[i] >= rho})


def mad2r(
    data: Data, *, sigmas, rhos, taus, d_max, cap, max_items, resample, b_min, b_max, c_lb, c_ub
) -> Trace:
    sets, trace = data.capped(cap), Trace()
    everything = universe(sets)
    first = data.sample(sets, max_items, data.keys.sample(1)) if resample else sets
    weight = mad_weights(first, tau=taus[0], d_max=d_max, b_min=1.0, weigh=uniform)
    noise = data.noise(1, everything, sigmas[0])
    noisy = {i: weight.get(i, 0.0) + noise[i] for i in everything}
    trace.rounds.append(noisy)
    trace.released = {i for i in universe(first) if noisy[i] >= rhos[0]}

    hopeless = {i for i in everything if noisy[i] + c_ub * sigmas[0] < rhos[1]}
    lower = {i: max(0.0, noisy[i] - c_lb * sigmas[0]) for i in everything}
    bias = {i: min(1.0, rhos[1] / lower[i]) if lower[i] > 0 else 1.0 for i in everything}
    bias = {i: max(1, round(b * 2**15)) / 2**15 for i, b in bias.items()}
    second = without(sets, trace.released | hopeless)
    if resample:
        second = data.sample(second, max_items, data.keys.sample(2))

    def weigh(items: list[str]) -> dict[str, float]:
        return user_weights({i: bias[i] for i in items}, b_min, b_max)

    weight = mad_weights(second, tau=taus[1], d_max=d_max, b_min=b_min, weigh=weigh)
    noise = data.noise(2, everything, sigmas[1])
    noisy = {i: weight.get(i, 0.0) + noise[i] for i in everything}
    trace.rounds.append(noisy)
    trace.released |= {i for i in universe(second) if noisy[i] >= rhos[1]}
    return trace


def fill(score: dict[str, float], cap: float) -> dict[str, float]:
    """x = min(cap, s score) with the largest s of norm <= 1, by bisection on s."""
    active = {i: s for i, s in score.items() if s > 0}
    if not active:
        return {}

    def norm(s: float) -> float:
        return math.sqrt(sum(min(cap, s * v) ** 2 for v in active.values()))

    low, high = 0.0, cap / min(active.values())
    if norm(high) > 1:
        for _ in range(80):
            middle = (low + high) / 2
            low, high = (middle, high) if norm(middle) <= 1 else (low, middle)
    else:
        low = high
    return {i: min(cap, low * v) for i, v in active.items()}


def gsu_score(z, y, a, *, k, G, V, rho, sigma, constants) -> float:
    """lambda of one item after checkpoint k (from 0), before quantisation."""
    rest = G[-1] - G[k]
    outlook = (z + constants.g * rest * y / a - rho) / (sigma * math.sqrt(rest**2 / a + 1 - V[k]))
    shift = constants.a + constants.a1 * (V[k] - 0.5)
    width = constants.k1 * math.exp(constants.kk * (V[k] - 0.5))
    below, above = min(0.0, outlook + shift) / width, max(0.0, outlook - constants.b) / constants.k2
    return math.exp(-(below**2) / 2) * math.exp(-(above**2) / 2)


def gsu(data: Data, *, sigma, f, a, G, V, thresholds, caps, cap, constants) -> Trace:
    """The group-sequential union; `constants` None: everything not found counts fully."""
    sets, trace = data.capped(cap), Trace()
    everything = sorted(universe(sets))
    score = dict.fromkeys(everything, 1.0)
    z, y, precision = (dict.fromkeys(everything, 0.0) for _ in range(3))
    for k in range(len(f)):
        weight: dict[str, float] = defaultdict(float)
        for items in sets.values():
            for item, x in fill({i: score[i] for i in items}, float(caps[len(items)])).items():
                weight[item] += x
        noise = data.noise(k + 1, everything, sigma / math.sqrt(f[k]))
        for i in everything:
            noisy = weight.get(i, 0.0) + noise[i]
            z[i] += a[k] * f[k] * noisy
            y[i] += f[k] * score[i] * noisy
            precision[i] += f[k] * score[i] ** 2
        trace.rounds.append(dict(z))
        trace.released |= {i for i in everything if z[i] >= thresholds[k]}
        for i in everything:
            if i in trace.released:
                score[i] = 0.0
            elif constants is not None and k + 1 < len(f):
                value = gsu_score(
                    z[i],
                    y[i],
                    precision[i],
                    k=k,
                    G=G,
                    V=V,
                    rho=thresholds[-1],
                    sigma=sigma,
                    constants=constants,
                )
                score[i] = 0.0 if value < 1e-3 else float(np.rint(value * 65535)) / 65535
    return trace
