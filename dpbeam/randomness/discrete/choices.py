"""Noisy maxima decided exactly: Gumbel noise (exponential mechanism, peeling), exponential noise (permute-and-flip).

A choice looks at comparisons of keys epsilon c_i + T(u_i) only: c_i an integer count, u_i uniform on (0, 1), T an
increasing function. u_i is a real number whose binary digits are read 128 at a time from the item's words. Floating
point sorts the keys and bounds its own error; the few keys that lie closer together than that are compared in
decimal arithmetic on the intervals that the digits read so far leave, and where these overlap more digits are read. So
every comparison is the one that real arithmetic makes: the law is the mechanism's, at the speed of floats.

What is left out: u_i below 2^-128 or above 1 - 2^-128, which bounds the noise and lets far items go without; this is
all there is of total variation, d 2^-127 for d items.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np

from dpbeam.accounting.gaussian import check_positive
from dpbeam.randomness.discrete.words import WORD_BITS, Bits
from dpbeam.randomness.variates import exponential, gumbel

# -ln(-ln u) lies in (-4.5, 88.8) and -ln(1 - u^(1/n)) in (0, 88.8 + ln n) for 2^-128 <= u <= 1 - 2^-128.
GUMBEL_SPREAD = 94.0
_FLOAT_ERROR = 2.0**-46  # 64 roundings of a double, times 1 + |epsilon (c - reference)| + |noise|
_SIEVE_FROM = 4096  # items from which on a sieve by words pays
_MOST_WORDS = 8  # keys equal in 1,024 digits each count as equal
_ALL = (1 << 64) - 1

Transform = Callable[[Decimal, int], Decimal]  # u, item -> T(u), increasing in u


class ExactKeys:
    """Keys epsilon c_i + T_i(u_i) that can be compared without error.

    Args:
      scores: i -> exact c_i, an integer or a fraction.
      epsilon: exact.
      transform: T, evaluated within the decimal context of the caller.
      bits: words of the items by use and rows; use 0 holds the first 128 digits of u.
    """

    def __init__(
        self, scores: Callable[[int], int | Fraction], epsilon: Fraction, transform: Transform, bits: Bits
    ):
        self._scores, self._epsilon, self._transform, self._bits = scores, epsilon, transform, bits

    def compare(self, i: int, j: int) -> int:
        """Positive if the key of i is larger, negative if that of j is; 0 only for 1,024 equal digits."""
        lead = self._epsilon * (Fraction(self._scores(i)) - Fraction(self._scores(j)))
        for words in range(1, _MOST_WORDS + 1):
            with localcontext() as context:
                context.prec = 80 * words + 40  # twice the digits read, since T looks at 1 - u as well
                context.Emin, context.Emax = -(10**9), 10**9
                error = Decimal(10) ** (-40 * words - 20)  # of T, far below the interval's 2^(-128 words)
                (low_i, high_i), (low_j, high_j) = self._interval(i, words), self._interval(j, words)
                gap = Decimal(lead.numerator) / Decimal(lead.denominator)
                slack = error * (1 + abs(gap) + max(map(abs, (low_i, high_i, low_j, high_j))))
                if gap + low_i - high_j > slack:
                    return 1
                if gap + high_i - low_j < -slack:
                    return -1
        return 0

    def _interval(self, i: int, words: int) -> tuple[Decimal, Decimal]:
        digits = 0
        for use in range(words):
            (high, low), *_ = self._bits(use, np.array([i])).tolist()
            digits = digits << WORD_BITS | high << 64 | low
        scale = 1 << (WORD_BITS * words)
        # The outermost intervals are cut at one step from 0 and 1.
        low, high = max(digits, 1), min(digits + 1, scale - 1)
        first, last = (Decimal(n) / Decimal(scale) for n in (min(low, high), max(low, high)))
        return self._transform(first, i), self._transform(last, i)


def largest_keys(noisy: np.ndarray, error: np.ndarray, exact: ExactKeys, k: int) -> np.ndarray:
    """Items of the k largest exact keys in decreasing order, (k,) int64.

    Args:
      noisy, error: (n,) float64; every exact key lies within `error` of `noisy`.
    """
    surely = np.partition(noisy - error, len(noisy) - k)[len(noisy) - k]  # k keys are at least this
    candidates = np.flatnonzero(noisy + error >= surely)
    order = candidates[np.argsort(-noisy[candidates], kind="stable")]
    lowest = np.minimum.accumulate((noisy - error)[order])
    highest = np.maximum.accumulate((noisy + error)[order][::-1])[::-1]
    ends = np.flatnonzero(lowest[:-1] > highest[1:]) + 1

    def descending(i: int, j: int) -> int:
        return exact.compare(j, i)

    by_key = functools.cmp_to_key(descending)
    ranked: list[int] = []
    for group in np.split(order, ends):  # only within a group can floats have the order wrong
        ranked.extend(group.tolist() if len(group) == 1 else sorted(group.tolist(), key=by_key))
        if len(ranked) >= k:
            break
    return np.array(ranked[:k], np.int64)


def gumbel_peel(
    counts: np.ndarray, epsilon0: float, bits: Bits, k: int, stop: Fraction | None = None
) -> np.ndarray:
    """The k items with the largest epsilon0 count + Gumbel noise: k rounds of the exponential mechanism.

    Guarantee: the outcome has the law of k choices without replacement, each with probability proportional to
    exp(epsilon0 count), up to a total variation of d 2^-127.

    Args:
      counts: (d,) int64, differences below 2^53.
      epsilon0: finite, above 0; taken at its exact value.
      bits: words of items 0..d - 1, and of item d, the stop mark, if there is one.
      k: 1 <= k <= d.
      stop: score, in counts, of a mark that runs along: items behind it are left out.

    Returns:
      (k,) int64 positions in decreasing order of the keys; with a stop mark, up to k.
    """
    epsilon0 = check_positive("epsilon0", epsilon0)
    d = len(counts)
    if not 1 <= k <= d:
        raise ValueError(f"k must lie between 1 and the number of items, {d}, got {k}")
    stop = None if stop is None else Fraction(stop)
    reference = int(np.partition(counts, d - k)[d - k])
    # An item so far below k others is behind them whatever its noise.
    near = np.flatnonzero(counts >= reference - math.ceil(min(GUMBEL_SPREAD / epsilon0, 2.0**60)) - 1)
    if len(near) > _SIEVE_FROM + 8 * k:
        near = _contenders(counts, near, epsilon0, bits, k)
    lead = epsilon0 * (counts[near] - reference).astype(np.float64)
    rows = near
    if stop is not None:
        rows, lead = np.append(near, d), np.append(lead, epsilon0 * float(stop - reference))
    words = bits(0, rows)
    noise = gumbel(words)

    def score(i: int) -> int | Fraction:
        return int(counts[rows[i]]) if stop is None or rows[i] < d else stop

    def more(use: int, at: slice | np.ndarray) -> np.ndarray:
        return bits(use, rows[at])

    exact = ExactKeys(score, Fraction(epsilon0), lambda u, i: -(-u.ln()).ln(), more)
    best = rows[
        largest_keys(lead + noise, _errors(words, lead, noise), exact, min(k + (stop is not None), len(rows)))
    ]
    if stop is None:
        return best
    mark = np.flatnonzero(best == d)
    return best[: mark[0]] if len(mark) else best[:k]


def _contenders(counts: np.ndarray, near: np.ndarray, epsilon0: float, bits: Bits, k: int) -> np.ndarray:
    """Those of the items `near` that may be among the k largest keys, by the first 64 digits of u alone.

    The k-th largest key of the 4 k largest counts is a floor under that of all. An item reaches it only if 1 - u is
    at most a number that is the same for all items of its count: one logarithm per count instead of two per item.
    """
    held, most = counts[near], 4 * k
    top = np.partition(held, len(held) - most)[len(held) - most]
    above = np.flatnonzero(held > top)
    first = np.append(above, np.flatnonzero(held == top)[: most - len(above)])
    words = bits(0, near[first])
    noise, lead = gumbel(words), epsilon0 * (held[first] - top).astype(np.float64)
    surely = lead + noise - _errors(words, lead, noise)
    floor = float(np.partition(surely, most - k)[most - k])
    behind = top - held
    distances = int(behind.max()) + 1
    if distances > 4 * len(near):
        return near
    needed = floor + epsilon0 * np.arange(distances)
    needed -= 4 * _FLOAT_ERROR * (GUMBEL_SPREAD + np.abs(needed) + abs(floor))
    largest = -np.expm1(-np.exp(-needed)) * 2.0**64  # of 1 - u, in units of the first word
    surely_in = largest >= 2.0**64 * (1 - 2.0**-30)
    cut = np.where(surely_in, 0.0, np.ceil(largest * (1 + 2.0**-40)) + 2).astype(np.uint64)
    cut[surely_in] = _ALL
    rows: slice | np.ndarray = slice(0, len(counts)) if len(near) == len(counts) else near
    keep = ~bits(0, rows)[:, 0] <= cut[np.maximum(behind, 0)]
    keep[first] = True
    return near[keep | (behind < 0)]


def largest_of_groups(
    values: np.ndarray, members: np.ndarray, epsilon: float, bits: Bits, rows: np.ndarray
) -> int:
    """One round of permute-and-flip: the group that holds the largest epsilon value + exponential noise.

    Items of equal count form a group; the largest of its n exponential variates is -ln(1 - u^(1/n)). Which member it
    is, is uniform.

    Args:
      values: (V,) int64 counts of the groups.
      members: (V,) int64, items left in each; groups without any are left out.
      epsilon: finite, above 0; taken at its exact value.
      bits, rows: words by use; row rows[v] belongs to group v in this round.

    Returns:
      The index of the group.
    """
    epsilon = check_positive("epsilon", epsilon)
    live = np.flatnonzero(members > 0)
    if not len(live):
        raise ValueError("every group is empty")
    n = members[live]
    lead = epsilon * (values[live] - int(values[live].max())).astype(np.float64)
    words = bits(0, rows[live])
    noise = -np.log(-np.expm1(-exponential(words) / n))

    def transform(u: Decimal, i: int) -> Decimal:
        return -(1 - (u.ln() / int(n[i])).exp()).ln()

    exact = ExactKeys(
        lambda i: int(values[live[i]]),
        Fraction(epsilon),
        transform,
        lambda use, at: bits(use, rows[live[at]]),
    )
    return int(live[largest_keys(lead + noise, _errors(words, lead, noise), exact, 1)[0]])


def _errors(words: np.ndarray, lead: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Bounds on the errors of keys in floats, (n,) float64.

    Within 2^-64 of 0 or 1, where the interval of u may span a factor of two, noise is wrong by ln 2 at most.
    """
    extreme = (words[:, 0] == 0) | (words[:, 0] == np.uint64(_ALL))
    return _FLOAT_ERROR * (1 + np.abs(lead) + np.abs(noise)) + extreme
