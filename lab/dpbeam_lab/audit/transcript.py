"""Runs a program while writing down its transcript, or while dictating that of another run.

The transcript of a run is the noisy sum of every item in every noisy round. Everything a correct program learns
from the data in one round reaches the next through it, so a second input can be run *under the same transcript*:
its exact sums are what the program would have added up, had the noise come out so. That is what the privacy loss
compares.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dpbeam.engine.forwarding import Forwarding
from dpbeam.engine.in_process import run_blocks
from dpbeam.engine.program import Keys, Program
from dpbeam.kernels.pairs import Block
from dpbeam.kernels.shards import Shard
from dpbeam_lab.audit.neighbours import numbers_of


@dataclass
class Transcript:
    """What one run did, over all items of all copies; an item that the input lacks has zeros.

    Attributes:
      sums: trip with noise -> (items,) int64 exact sums in units of 2^-30, rounded down.
      noisy: trip with noise -> (items,) int64 the same with noise.
      known: (items,) bool, items of the input.
      released: trip with noise -> (items,) bool, released by its end.
    """

    size: int
    sums: dict[int, np.ndarray] = field(default_factory=dict)
    noisy: dict[int, np.ndarray] = field(default_factory=dict)
    released: dict[int, np.ndarray] = field(default_factory=dict)
    known: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.known = np.zeros(self.size, bool)

    def noisy_trips(self) -> list[int]:
        return sorted(self.noisy)

    def column(self, which: str, trip: int, dtype: type = np.int64) -> np.ndarray:
        """An array of a trip; zeros where the run had no items at all."""
        values = getattr(self, which).get(trip)
        return np.zeros(self.size, dtype) if values is None else values

    def place(self, which: str, trip: int, index: np.ndarray, values: np.ndarray) -> None:
        """Store the values of the items `index`."""
        getattr(self, which).setdefault(trip, np.zeros(self.size, values.dtype))[index] = values


def run_observed(
    program: Program, blocks: list[Block], keys: Keys, size: int, dictated: Transcript | None = None
) -> Transcript:
    """Run a program and return its transcript.

    Args:
      blocks: from `neighbours.build`, item numbers below `size`.
      dictated: a run whose noisy sums this run takes over; items it did not know have noise alone there, drawn by
        the same keys, and are entered into it.

    Raises:
      ValueError: the program's hub draws noise, which no transcript holds: its loss would go unseen.
    """
    if any(program.hub_noise(trip) is not None for trip in range(program.trips)):
        raise ValueError(
            f"the hub of {type(program).__name__} draws noise, which a transcript of sums does not hold"
        )
    observed = _Observed(program, Transcript(size), dictated)
    run_blocks(observed, blocks, keys)
    return observed.transcript


class _Observed(Forwarding):
    """`inner`, observed; see `run_observed`."""

    def __init__(self, inner: Program, transcript: Transcript, dictated: Transcript | None):
        super().__init__(inner)
        self.transcript, self.dictated = transcript, dictated
        self._numbers: dict[int, np.ndarray] = {}

    def _index(self, shard: Shard) -> np.ndarray:
        if shard.id not in self._numbers:
            self._numbers[shard.id] = numbers_of(shard.items)
        return self._numbers[shard.id]

    def observe(self, trip: int, shard: Shard, noisy: np.ndarray, present: np.ndarray) -> Shard:
        index, record = self._index(shard), self.transcript
        exact = self.exact(trip, shard).units
        if self.dictated is not None:
            noisy = self._dictate(self.dictated, trip, index, noisy, self.noise(trip).alone(noisy, exact))
        record.known[index] = True
        record.place("sums", trip, index, exact)
        record.place("noisy", trip, index, noisy)
        return super().observe(trip, shard, noisy, present)

    def threshold(self, trip: int, shard: Shard) -> Shard:
        after = super().threshold(trip, shard)
        self.transcript.place("released", trip, self._index(shard), after.state["released"])
        return after

    def _dictate(
        self, dictated: Transcript, trip: int, index: np.ndarray, noisy: np.ndarray, pure: np.ndarray
    ) -> np.ndarray:
        """The dictating run's noisy sums; for items that it did not know the noise alone, entered into it."""
        noisy = np.where(dictated.known[index], dictated.column("noisy", trip)[index], pure)
        dictated.place("noisy", trip, index, noisy)
        return noisy
