"""Laws as exact integers, and words that a test chooses: what the tests of exact noise share."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from fractions import Fraction

import mpmath
import numpy as np

from dpbeam.randomness import RunKey
from dpbeam.randomness.discrete import KeyedBits

PRECISION = 400  # fixed-point bits of probabilities in sums


def item_bits(n: int, label: str = "noise/round 1", seed: str = "exact noise") -> KeyedBits:
    """Words of n items under a fixed key."""
    fingerprint = np.zeros((n, 2), np.uint64)
    fingerprint[:, 0] = np.arange(n)
    return KeyedBits(RunKey.insecure_fixed(seed), label, fingerprint)


class ChosenBits:
    """Words written down by the test: uses[u][i] is the 128-bit integer of item i's use u; others are keyed."""

    def __init__(self, n: int, uses: dict[int, dict[int, int]]):
        self.keyed, self.uses, self.asked = item_bits(n), uses, []

    def __call__(self, use: int, rows) -> np.ndarray:
        words = self.keyed(use, rows).copy()
        index = np.arange(len(self.keyed))[rows]
        self.asked.append((use, index.tolist()))
        for place, i in enumerate(index.tolist()):
            if i in self.uses.get(use, {}):
                number = self.uses[use][i]
                words[place] = (number >> 64, number & (2**64 - 1))
        return words


def exact_law(weight, values: Iterable[int]) -> dict[int, int]:
    """Probabilities proportional to the mpmath function `weight`, in units of 2^-400."""
    with mpmath.workprec(PRECISION + 60):
        weights = {x: weight(x) for x in values}
        total = mpmath.fsum(weights.values())
        return {x: int(mpmath.ldexp(w / total, PRECISION)) for x, w in weights.items()}


@functools.cache
def gaussian_law(variance: Fraction, reach: int) -> dict[int, int]:
    """The discrete Gaussian on -reach..reach, straight from its definition."""
    with mpmath.workprec(PRECISION + 60):
        rate = mpmath.mpf(variance.denominator) / (2 * mpmath.mpf(variance.numerator))
        half = [mpmath.exp(-rate * x * x) for x in range(reach + 1)]
        return exact_law(lambda x: half[abs(x)], range(-reach, reach + 1))


def scaled(masses: dict[int, int], bits: int, shift: int = 0) -> dict[int, int]:
    """Masses in units of 2^-bits as a law in units of 2^-400, its values times 2^shift."""
    return {value << shift: mass << (PRECISION - bits) for value, mass in masses.items()}


def convolve(laws: Sequence[dict[int, int]]) -> dict[int, int]:
    """Law of the sum of independent draws, finest lattice first; every product rounded down to 2^-400."""
    total = laws[0]
    for law in laws[1:]:
        low, high = min(total), max(total)
        dense = np.array([total.get(x, 0) for x in range(low, high + 1)], object)
        first, last = min(law), max(law)
        out = np.zeros(last - first + len(dense), object)
        for value, mass in law.items():
            out[value - first : value - first + len(dense)] += (dense * mass) >> PRECISION
        total = {x + low + first: int(mass) for x, mass in enumerate(out) if mass}
    return total


def variation(first: dict[int, int], second: dict[int, int]) -> float:
    """Total variation of two laws in units of 2^-400."""
    distance = sum(abs(first.get(x, 0) - second.get(x, 0)) for x in first.keys() | second.keys())
    return float(Fraction(distance, 2 << PRECISION))
