"""bits, slowly: weights in dictionaries, and one coin after the other in whole numbers."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa

from dpbeam.randomness import fingerprints
from dpbeam.randomness.prf import prf_bits
from dpbeam.testing.replay import unfloored
from tests.support.reference import Data, Trace, universe, without


def uniform_number(data: Data, item: str, round_number: int) -> int:
    """The keyed number of 128 bits that decides about an item in a round."""
    key = data.keys._run_key.derive(f"noise/round {round_number}")
    high, low = map(int, prf_bits(key, fingerprints(data.keys.pairs.item, pa.array([item])))[0])
    return high << 64 | low


def bits(data: Data, program) -> Trace:
    """The bits of every item that somebody's pool holds, round by round, and the items whose bit was once 1."""
    program, min_users = unfloored(program)
    sets, trace = data.capped(program.cap), Trace()
    everything = universe(sets)
    for number, (noise, moves) in enumerate(zip(program.noises(), program.moves), start=1):
        used = data.sample(without(sets, trace.released), moves[-1][0], data.keys.sample(number))
        held: Counter[str] = Counter()
        for items in used.values():
            steps = next(s for most, s in moves if len(items) <= most)
            held.update(dict.fromkeys(items, steps))
        table, floor = noise.law.cumulative, (min_users - 1) * noise.grid
        shown = {
            item: float(
                uniform_number(data, item, number) < table[min(max(held[item] - floor, 0), len(table) - 1)]
            )
            for item in everything
        }
        trace.rounds.append(shown)
        trace.released |= {item for item, bit in shown.items() if bit}
    return trace
