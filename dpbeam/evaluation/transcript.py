"""Runs a program while writing down its transcript, or while dictating that of another run.

The transcript of a run is the noisy sum of every item in every noisy round. Everything a correct program learns
from the data in one round reaches the next through it, so a second input can be run *under the same transcript*:
its exact sums are what the program would have added up, had the noise come out so. That is what the privacy loss
compares.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dpbeam.engine.in_process import run_blocks
from dpbeam.engine.program import Keys, Program
from dpbeam.evaluation.neighbours import numbers_of
from dpbeam.kernels.grid import UNITS
from dpbeam.kernels.pairs import Block
from dpbeam.kernels.shards import Shard


@dataclass
class Transcript:
    """What one run did, over all items of all copies; an item that the input lacks has zeros.

    Attributes:
      sums: noisy round -> (items,) int64 exact sums in units of 2^-30, rounded down.
      noisy: noisy round -> (items,) int64 the same with noise.
      known: (items,) bool, items of the input.
      released: noisy round -> (items,) bool, released by the end of the round.
      draws: noisy round -> (round number, sigma) with which noise was drawn.
    """

    size: int
    sums: dict[int, np.ndarray] = field(default_factory=dict)
    noisy: dict[int, np.ndarray] = field(default_factory=dict)
    released: dict[int, np.ndarray] = field(default_factory=dict)
    draws: dict[int, tuple[int, float]] = field(default_factory=dict)
    known: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.known = np.zeros(self.size, bool)

    def round_numbers(self) -> list[int]:
        return sorted(self.noisy)

    def column(self, which: str, number: int, dtype: type = np.int64) -> np.ndarray:
        """An array of a round; zeros where the run had no items at all."""
        found = getattr(self, which).get(number)
        return np.zeros(self.size, dtype) if found is None else found

    def place(self, which: str, number: int, index: np.ndarray, values: np.ndarray) -> None:
        """Store the values of the items `index`."""
        getattr(self, which).setdefault(number, np.zeros(self.size, values.dtype))[index] = values


def run_observed(
    program: Program, blocks: list[Block], keys: Keys, size: int, dictated: Transcript | None = None
) -> Transcript:
    """Run a program and return its transcript.

    Args:
      blocks: from `neighbours.build`, item numbers below `size`.
      dictated: a run whose noisy sums this run takes over; items it did not know have noise alone there, drawn by
        the same keys, and are entered into it.
    """
    observed = _Observed(program, Transcript(size), dictated)
    run_blocks(observed, blocks, keys)
    return observed.transcript


class _Tape:
    """Stands in for the keys while noise is added: passes noise through, zero, or what makes up a given sum."""

    def __init__(self, keys: Keys):
        self._keys = keys
        self.draw: tuple[int, float] | None = None
        self.real: np.ndarray | None = None
        self.substitute: np.ndarray | None = None

    def __getattr__(self, name: str):
        return getattr(self._keys, name)

    def gaussian_noise(self, round_number: int, fp: np.ndarray, sigma: float) -> np.ndarray:
        self.draw = (round_number, sigma)
        self.real = self._keys.gaussian_noise(round_number, fp, sigma)
        return self.real if self.substitute is None else self.substitute


class _Observed(Program):
    """`inner`, observed; see `run_observed`."""

    def __init__(self, inner: Program, transcript: Transcript, dictated: Transcript | None):
        self.inner, self.transcript, self.dictated = inner, transcript, dictated
        self.trips, self.cap = inner.trips, inner.cap
        self.weight_grid, self.reply_columns = inner.weight_grid, inner.reply_columns
        self._numbers: dict[int, np.ndarray] = {}

    def sum_names(self, trip):
        return self.inner.sum_names(trip)

    def weigh(self, trip, block, reply, keys):
        return self.inner.weigh(trip, block, reply, keys)

    def block_state_trip(self, trip):
        return self.inner.block_state_trip(trip)

    def noise_round(self, trip):
        return self.inner.noise_round(trip)

    def reply(self, trip, shard):
        return self.inner.reply(trip, shard)

    def released(self, shard):
        return self.inner.released(shard)

    def _index(self, shard: Shard) -> np.ndarray:
        if shard.id not in self._numbers:
            self._numbers[shard.id] = numbers_of(shard.items)
        return self._numbers[shard.id]

    def add_noise(self, trip: int, shard: Shard, keys: Keys) -> Shard:
        index, record = self._index(shard), self.transcript
        sums = self._sums_before_noise(trip, shard, keys)
        tape = _Tape(keys)
        if self.dictated is not None:
            tape.substitute = self._dictate(trip, shard, index, sums, keys)
        after = self.inner.add_noise(trip, shard, tape)
        used = tape.real if tape.substitute is None else tape.substitute
        record.known[index] = True
        record.draws[trip] = tape.draw
        record.place("sums", trip, index, sums)
        record.place("noisy", trip, index, sums + np.floor(used * UNITS).astype(np.int64))
        return after

    def threshold(self, trip: int, shard: Shard) -> Shard:
        after = self.inner.threshold(trip, shard)
        self.transcript.place("released", trip, self._index(shard), after.state["released"])
        return after

    def _sums_before_noise(self, trip: int, shard: Shard, keys: Keys) -> np.ndarray:
        if "weight" in shard.sums:
            return shard.sums["weight"]
        silent = _Tape(keys)
        silent.substitute = np.zeros(len(shard))
        return self.inner.add_noise(trip, shard, silent).state["noisy"]

    def _dictate(
        self, trip: int, shard: Shard, index: np.ndarray, sums: np.ndarray, keys: Keys
    ) -> np.ndarray:
        """The noise that makes every noisy sum that of the dictating run."""
        pure = _Tape(keys)
        self.inner.add_noise(trip, shard, pure)
        noisy = self.dictated.column("noisy", trip)[index]
        alone = np.floor(pure.real * UNITS).astype(np.int64)
        noisy = np.where(self.dictated.known[index], noisy, alone)
        self.dictated.place("noisy", trip, index, noisy)
        return (noisy - sums) * (1.0 / UNITS)
