"""Basic and DP-SIPS, slowly."""

from __future__ import annotations

import math
from collections import defaultdict

from tests.support.reference import Data, Trace, universe, without


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
