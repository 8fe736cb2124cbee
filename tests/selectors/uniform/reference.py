"""Basic and DP-SIPS, slowly."""

from __future__ import annotations

from collections import defaultdict

from tests.support.reference import Data, Trace, above, universe, without


def uniform_rounds(
    data: Data,
    *,
    noises,
    thresholds,
    cap: int,
    max_items: int,
    resample: bool,
    power: float,
    min_users: int = 1,
) -> Trace:
    """Basic (one round) and DP-SIPS with power 1/2, weighted Laplace with power 1: d items weigh d^-power each."""
    sets, trace = data.capped(cap), Trace()
    everything = universe(sets)
    for number, (spec, rho) in enumerate(zip(noises, thresholds), start=1):
        used = without(sets, trace.released)
        if resample:
            used = data.sample(used, max_items, data.keys.sample(number))
        weight: dict[str, float] = defaultdict(float)
        for items in used.values():
            for item in items:
                weight[item] += len(items) ** -power
        noise, kept = data.noise_of(spec, everything), above(weight, everything, min_users)
        noisy = {i: kept[i] + noise[i] for i in everything}
        trace.rounds.append(noisy)
        trace.released |= {i for i in everything if kept[i] and noisy[i] >= rho}
    return trace
