"""Basic and DP-SIPS, slowly."""

from __future__ import annotations

from collections import defaultdict

from tests.support.reference import Data, Trace, universe, without


def uniform_rounds(
    data: Data, *, noises, thresholds, cap: int, max_items: int, resample: bool, power: float
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
        noise = data.noise_of(spec, everything)
        noisy = {i: weight.get(i, 0.0) + noise[i] for i in everything}
        trace.rounds.append(noisy)
        trace.released |= {i for i in weight if noisy[i] >= rho}
    return trace
