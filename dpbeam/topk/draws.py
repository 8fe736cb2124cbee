"""Sequential random choices that are a function of the run's key.

Mechanisms that choose among groups of items (Joint, FastJoint, permute-and-flip by count) cannot tie their
randomness to single items. They draw from a stream of AES blocks of a counter under a key derived from a
label instead, and number items in a canonical order (`histogram.positions_at_ranks`): a job that is retried,
or that meets its items in another order, makes the same choices and releases the same answer.

Accuracy: choices among weights use Gumbel variates of 128 bits each, in log space, so a choice of probability
2^-100 has that probability; integers below n have bias below n 2^-128.
"""

from __future__ import annotations

import bisect

import numpy as np

from dpbeam.randomness import RunKey, exponential, gumbel, prf_bits

# Variates come from 128 bits, -ln U lies in (2^-129, 129 ln 2): the bounds of a Gumbel variate.
GUMBEL_MIN, GUMBEL_MAX = -4.5, 89.5
_CHUNK = 1 << 18  # variates per AES call: 4 MiB of bits
_BUFFER = 256


class Draws:
    """A stream of choices; two streams with different labels are independent."""

    def __init__(self, key: RunKey, label: str):
        """`label` names job stage and mechanism; a label serves one stream per run."""
        self._key = key.derive(label)
        self._next = 0
        self._words: list[int] = []

    def bits(self, n: int) -> np.ndarray:
        """The next n blocks of the stream, (n, 2) uint64."""
        blocks = np.zeros((n, 2), np.uint64)
        blocks[:, 0] = np.arange(self._next, self._next + n, dtype=np.uint64)
        self._next += n
        return prf_bits(self._key, blocks)

    def choice(self, log_weights: np.ndarray) -> int:
        """An index with probability proportional to exp(log_weights), by the Gumbel-max rule.

        Args:
          log_weights: (n,) float64; -inf excludes an index.

        Raises: ValueError if no weight is positive or one is NaN or +inf.
        """
        top = np.max(log_weights)
        if np.isnan(top) or top == np.inf:
            raise ValueError("log_weights must not be NaN or +inf")
        if top == -np.inf:
            raise ValueError("log_weights exclude every index")
        live = np.flatnonzero(log_weights >= top - (GUMBEL_MAX - GUMBEL_MIN))  # no variate lifts the others
        best, best_value = -1, -np.inf
        for start in range(0, len(live), _CHUNK):
            part = live[start : start + _CHUNK]
            noisy = log_weights[part] + gumbel(self.bits(len(part)))
            at = int(np.argmax(noisy))
            if noisy[at] > best_value:
                best, best_value = int(part[at]), noisy[at]
        return best

    def below(self, n: int) -> int:
        """A uniform integer in [0, n)."""
        if n < 1:
            raise ValueError(f"n must be at least 1, got {n}")
        if not self._words:
            bits = self.bits(_BUFFER)
            self._words = [(high << 64) | low for high, low in zip(bits[:, 0].tolist(), bits[:, 1].tolist())]
        return (self._words.pop() * n) >> 128

    def accept(self, log_probability: float) -> bool:
        """True with probability exp(log_probability); always where log_probability >= 0."""
        return log_probability >= 0 or bool(exponential(self.bits(1))[0] >= -log_probability)


def draw_untaken(taken: list[int], low: int, high: int, draws: Draws) -> int:
    """A uniform rank in [low, high) that is not in `taken`, which is sorted and receives it."""
    first, last = bisect.bisect_left(taken, low), bisect.bisect_left(taken, high)
    free = draws.below(high - low - (last - first))
    # Before taken[first + m] there are taken[first + m] - low - m free ranks: skip the taken ones passed.
    skipped = bisect.bisect_right(range(last - first), free, key=lambda m: taken[first + m] - low - m)
    rank = low + free + skipped
    bisect.insort(taken, rank)
    return rank


def draw_sequence(low: np.ndarray, high: np.ndarray, draws: Draws) -> np.ndarray:
    """Distinct ranks, (k,) int64: the j-th uniform in [low_j, high_j) without those drawn before it."""
    taken: list[int] = []
    return np.array([draw_untaken(taken, a, b, draws) for a, b in zip(low.tolist(), high.tolist())], np.int64)
