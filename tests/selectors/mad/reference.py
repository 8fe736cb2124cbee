"""MAD and MAD2R, slowly."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable

from dpbeam.selectors.mad.kernels import FRACTION_BITS
from tests.support.reference import Data, Sets, Trace, above, universe, without


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


def users_of(sets: Sets) -> Counter[str]:
    return Counter(item for items in sets.values() for item in items)


def mad(data: Data, *, sigma, rho, tau, d_max, cap, min_users=1) -> Trace:
    sets = data.capped(cap)
    weight = mad_weights(sets, tau=tau, d_max=d_max, b_min=1.0, weigh=uniform)
    noise = data.noise(1, universe(sets), sigma, FRACTION_BITS)
    kept, users = above(weight, universe(sets), min_users), users_of(sets)
    noisy = {i: kept[i] + noise[i] for i in universe(sets)}
    return Trace([noisy], {i for i in noisy if users[i] >= min_users and noisy[i] >= rho})


def mad2r(
    data: Data, *, sigmas, rhos, taus, d_max, cap, max_items, resample, b_min, b_max, c_lb, c_ub, min_users=1
) -> Trace:
    sets, trace = data.capped(cap), Trace()
    everything = universe(sets)
    first = data.sample(sets, max_items, data.keys.sample(1)) if resample else sets
    weight = mad_weights(first, tau=taus[0], d_max=d_max, b_min=1.0, weigh=uniform)
    noise, floor = data.noise(1, everything, sigmas[0], FRACTION_BITS), min_users - 1
    kept, users = above(weight, everything, min_users), users_of(first)
    noisy = {i: kept[i] + noise[i] for i in everything}
    trace.rounds.append(noisy)
    trace.released = {i for i in everything if users[i] >= min_users and noisy[i] >= rhos[0]}

    hopeless = {i for i in everything if noisy[i] + c_ub * sigmas[0] < rhos[1]}
    lower = {i: max(0.0, noisy[i] - c_lb * sigmas[0]) for i in everything}
    bias = {i: min(1.0, (rhos[1] + floor) / (lower[i] + floor)) if lower[i] > 0 else 1.0 for i in everything}
    bias = {i: max(1, round(b * 2**15)) / 2**15 for i, b in bias.items()}
    second = without(sets, trace.released | hopeless)
    if resample:
        second = data.sample(second, max_items, data.keys.sample(2))

    def weigh(items: list[str]) -> dict[str, float]:
        return user_weights({i: bias[i] for i in items}, b_min, b_max)

    weight = mad_weights(second, tau=taus[1], d_max=d_max, b_min=b_min, weigh=weigh)
    noise = data.noise(2, everything, sigmas[1], FRACTION_BITS)
    kept, users = above(weight, everything, min_users), users_of(second)
    noisy = {i: kept[i] + noise[i] for i in everything}
    trace.rounds.append(noisy)
    trace.released |= {i for i in everything if users[i] >= min_users and noisy[i] >= rhos[1]}
    return trace
