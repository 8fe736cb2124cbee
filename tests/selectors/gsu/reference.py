"""The group-sequential union, slowly."""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np

from tests.support.reference import Data, Trace, above, universe


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


def gsu(data: Data, *, sigma, f, a, G, V, thresholds, caps, cap, constants, min_users=1) -> Trace:
    """The group-sequential union; `constants` None: everything not found counts fully."""
    sets, trace = data.capped(cap), Trace()
    everything = sorted(universe(sets))
    score = dict.fromkeys(everything, 1.0)
    candidates: set[str] = set(everything) if min_users == 1 else set()
    z, y, precision = (dict.fromkeys(everything, 0.0) for _ in range(3))
    for k in range(len(f)):
        weight: dict[str, float] = defaultdict(float)
        for items in sets.values():
            for item, x in fill({i: score[i] for i in items}, float(caps[len(items)])).items():
                weight[item] += x
        noise = data.noise(k + 1, everything, sigma / math.sqrt(f[k]))
        kept = above(weight, everything, min_users, max(map(float, caps[1:])))
        candidates |= {i for i, w in kept.items() if w}
        for i in everything:
            noisy = kept[i] + noise[i]
            z[i] += a[k] * f[k] * noisy
            y[i] += f[k] * score[i] * noisy
            precision[i] += f[k] * score[i] ** 2
        trace.rounds.append(dict(z))
        trace.released |= {i for i in candidates if z[i] >= thresholds[k]}
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
