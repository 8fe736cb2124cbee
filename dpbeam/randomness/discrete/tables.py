"""Laws on consecutive integers as alias tables: one look-up and one comparison per draw, exact to 2^-160.

A table holds probabilities as integer multiples of 2^-160 that sum to one exactly. Walker's alias method cuts the
interval [0, 2^160) into 2^k columns of equal width and each column at one boundary: below it lies the column's own
value, from it on the column's alias. A uniform 160-bit number then draws the value in constant time, where
cumulative probabilities would need a search.

The number is read lazily. Its first 32 bits give the column and, but for one draw in 2^(32 - k), the side of the
boundary; only the draws that tie ask for the other 128 bits, from a use of their own. So four tables share one
128-bit word, and the law is the same as if every draw had taken all 160 bits.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpbeam.randomness.discrete.words import Bits, below, exp_fixed

MASS_BITS = 160
ONE = 1 << MASS_BITS
_FIRST_BITS = 32  # bits of a draw's first look
_WORDS = 4  # first looks in a 128-bit word
_MAX_COLUMN_BITS = 16
_WORK_BITS = 256  # fixed point of the weights before they are normalised
CHUNK = (
    1 << 16
)  # items at a time: their arrays fit the cache, and threads seldom wait for each other between steps


@dataclass(frozen=True)
class AliasTable:
    """A law on lowest, lowest + 1, ...

    Attributes:
      column_bits: k; there are K = 2^k columns.
      first: (K,) uint32, first 32 bits of each column's boundary.
      rest: (K, 2) uint64, its other 128 bits.
      values: (2 K,) int32; the columns' own values, then their aliases.
    """

    column_bits: int
    first: np.ndarray
    rest: np.ndarray
    values: np.ndarray

    @classmethod
    def of(cls, masses: Sequence[int], lowest: int) -> AliasTable:
        """The table of P(lowest + i) = masses[i] 2^-160; masses sum to 2^160.

        Raises: ValueError if they do not, one is negative, or there are more than 2^16.
        """
        if sum(masses) != ONE or min(masses) < 0:
            raise ValueError("masses must not be negative and must sum to 2^160")
        k = max(1, (len(masses) - 1).bit_length())
        if k > _MAX_COLUMN_BITS:
            raise ValueError(f"a table has at most 2^{_MAX_COLUMN_BITS} values, got {len(masses)}")
        size, width = 1 << k, 1 << (MASS_BITS - k)
        own, alias = _columns(list(masses) + [0] * (size - len(masses)), width)
        # Column i begins at i 2^(160 - k), of which the first 32 bits hold all.
        cuts = b"".join([mass.to_bytes(MASS_BITS // 8, "big") for mass in own])
        parts = np.frombuffer(cuts, np.dtype([("first", ">u4"), ("rest", ">u8", 2)]))
        first, rest = parts["first"].astype(np.uint32), parts["rest"].astype(np.uint64)
        first += np.arange(size, dtype=np.uint32) << np.uint32(_FIRST_BITS - k)
        values = np.concatenate((np.arange(size), alias)).astype(np.int32) + np.int32(lowest)
        return cls(k, first, rest, values)

    def draw(self, first: np.ndarray, more: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """Values for uniform numbers given by their first 32 bits.

        Args:
          first: (n,) uint32.
          more: positions (m,) -> (m, 2) uint64, the other 128 bits of those draws.

        Returns:
          (n,) int32.
        """
        column = (first >> np.uint32(_FIRST_BITS - self.column_bits)).astype(np.intp)
        cut = self.first.take(column)
        aliased = first > cut
        tied = np.flatnonzero(first == cut)
        if len(tied):
            aliased[tied] = ~below(more(tied), self.rest[column[tied]])
        column += aliased.astype(np.intp) << self.column_bits
        return self.values.take(column)

    def masses(self) -> dict[int, int]:
        """The law that `draw` realises, value -> multiple of 2^-160, read back from the columns; exact."""
        size = 1 << self.column_bits
        width = 1 << (MASS_BITS - self.column_bits)
        masses: dict[int, int] = {}
        for i in range(size):
            high, low = (int(word) for word in self.rest[i])
            own = (int(self.first[i]) << 128 | high << 64 | low) - i * width
            for value, mass in ((self.values[i], own), (self.values[i + size], width - own)):
                if mass:
                    masses[int(value)] = masses.get(int(value), 0) + mass
        return masses


def _columns(masses: list[int], width: int) -> tuple[list[int], list[int]]:
    """Own mass (below `width`) and alias of each column; masses sum to `width` times their number, exactly."""
    own, alias = [0] * len(masses), list(range(len(masses)))
    small = [i for i, mass in enumerate(masses) if mass < width]
    large = [i for i, mass in enumerate(masses) if mass >= width]
    j = large.pop()
    left = masses[j]
    for i in reversed(small):
        mass = masses[i]
        while True:
            own[i], alias[i] = mass, j
            left -= width - mass
            if left >= width:
                break
            # Total mass is exact, so a column short of mass always finds one with too much.
            i, mass, j = j, left, large.pop()
            left = masses[j]
    return own, alias  # `j` and what is left in `large` are full: own 0, alias itself


def normalise(weights: Sequence[int], spare: int) -> list[int]:
    """Weights as masses that sum to 2^160: each rounded down, what is missing goes to position `spare`."""
    total = sum(weights)
    masses = [(weight << MASS_BITS) // total for weight in weights]
    masses[spare] += ONE - sum(masses)
    return masses


def gaussian_masses(variance: Fraction, reach: int) -> list[int]:
    """P(x) ~ exp(-x^2 / (2 variance)) for x = -reach..reach, 2 reach + 1 masses, rounded as `normalise` does.

    By w_(x+1) = w_x q_x, q_(x+1) = q_x exp(-1/variance) in 256-bit fixed point: after x steps the error is below
    x^2 2^-254 of w_0.
    """
    ratio = exp_fixed(1 / (2 * variance), _WORK_BITS)
    fall = exp_fixed(1 / variance, _WORK_BITS)
    weights = [1 << _WORK_BITS]
    for _ in range(reach):
        weights.append((weights[-1] * ratio) >> _WORK_BITS)
        ratio = (ratio * fall) >> _WORK_BITS
    total = 2 * sum(weights) - weights[0]
    side = [(weight << MASS_BITS) // total for weight in weights[1:]]
    return [*side[::-1], ONE - 2 * sum(side), *side]


def geometric_weights(rate: Fraction, count: int) -> list[int]:
    """exp(-rate x) 2^256 for x = 0..count - 1, each within x of the exact number."""
    ratio = exp_fixed(rate, _WORK_BITS)
    weights = [1 << _WORK_BITS]
    for _ in range(count - 1):
        weights.append((weights[-1] * ratio) >> _WORK_BITS)
    return weights


def uses_of(tables: int) -> int:
    """Uses of an item's words by a draw from so many tables: shared first words, and one more each for ties."""
    return -(-tables // _WORDS) + tables


def chunks(n: int) -> Iterator[slice]:
    """Slices of n items, in order."""
    for start in range(0, n, CHUNK):
        yield slice(start, min(start + CHUNK, n))


def add_shifted(
    values: np.ndarray, shift: int, high: np.ndarray, low: np.ndarray, fraction_bits: int
) -> None:
    """Add values 2^shift to the numbers high 2^fraction_bits + low, (n,) int64 each, in place.

    `low` is not brought below 2^fraction_bits: with values below 2^14 and shifts 9 apart it stays below 2^62.
    """
    if shift >= fraction_bits:
        high += values.astype(np.int64) << (shift - fraction_bits)
    else:
        low += values.astype(np.int64) << shift


def whole_units(high: np.ndarray, low: np.ndarray, fraction_bits: int) -> np.ndarray:
    """floor(high + low 2^-fraction_bits), (n,) int64."""
    return high + (low >> fraction_bits)


def start_of_fractions(fraction: np.ndarray | None, fraction_bits: int, n: int) -> np.ndarray:
    """What lies below the grid before noise is added, a new (n,) int64 array in units of 2^-fraction_bits.

    Raises: ValueError if `fraction` has another shape or type, or a value outside [0, 2^fraction_bits).
    """
    if fraction is None:
        return np.zeros(n, np.int64)
    if fraction.shape != (n,) or fraction.dtype != np.int64:
        raise ValueError(f"fraction must be int64 of shape ({n},), got {fraction.dtype} of {fraction.shape}")
    if n and not (fraction.min() >= 0 and fraction.max() < 1 << fraction_bits):
        raise ValueError(f"fraction must lie in [0, 2^{fraction_bits})")
    return fraction.copy()


def draw_tables(
    tables: Sequence[AliasTable], bits: Bits, rows: slice | np.ndarray, drawn: range | None = None
) -> Iterator[np.ndarray]:
    """Independent draws from each table for some items: (rows,) int32, table by table.

    Args:
      rows: a slice, or an array of indices.
      drawn: the tables to draw from, by their places in `tables`; None: all. A draw does not depend on the others.
    """
    drawn = range(len(tables)) if drawn is None else drawn
    first_uses = uses_of(len(tables)) - len(tables)
    items = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
    words, read = np.empty((0, _WORDS), np.uint32), -1
    # Tables that follow each other are often one table: to draw from it once for all of them keeps threads busy, which
    # would else wait for each other between short steps.
    for _, run in itertools.groupby(drawn, key=lambda i: id(tables[i])):
        places = list(run)
        first = np.empty((len(places), len(items)), np.uint32)
        for lane, i in zip(first, places):
            if i // _WORDS != read:
                read = i // _WORDS
                words = bits(read, rows).view(np.uint32).reshape(-1, _WORDS)
            lane[:] = words[:, i % _WORDS]

        def more(positions: np.ndarray, start: int = first_uses + places[0]) -> np.ndarray:
            of_table, of_item = np.divmod(positions, len(items))
            rest = np.empty((len(positions), 2), np.uint64)
            for table in np.unique(of_table).tolist():
                tied = of_table == table
                rest[tied] = bits(start + table, items[of_item[tied]])
            return rest

        yield from tables[places[0]].draw(first.reshape(-1), more).reshape(first.shape)
