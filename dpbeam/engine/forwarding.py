"""A program around another one: whatever it does not change, it forwards.

A wrapper that forwarded by hand would drop what `Program` learns later; a test walks the public names of `Program` and
holds this class to all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dpbeam.engine.program import Draw, Exact, HubNoise, ItemNoise, Keys, Program, Touches
from dpbeam.kernels.columns import Columns
from dpbeam.kernels.pairs import Block
from dpbeam.kernels.shards import Shard


class _OfInner:
    """An attribute of `inner`, unless an instance or a subclass has its own: it has no `__set__`."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, program: Forwarding | None, owner: type | None = None) -> Any:
        return self if program is None else getattr(program.inner, self._name)


def _of_inner() -> Any:
    return _OfInner()


class Forwarding(Program):
    """`inner`, unchanged; subclasses override what they change. `noises` follows from `noise` and `hub_noise`.

    Attributes:
      inner: the program inside.
    """

    trips: int = _of_inner()
    norm: str = _of_inner()
    cap: int = _of_inner()
    weight_grid: float = _of_inner()
    reply_columns = _of_inner()
    output: str = _of_inner()
    may_end: bool = _of_inner()
    released_names: tuple[str, ...] = _of_inner()

    def __init__(self, inner: Program):
        self.inner = inner

    def sum_names(self, trip: int) -> tuple[str, ...]:
        return self.inner.sum_names(trip)

    def weigh(
        self, trip: int, block: Block, reply: Mapping[str, np.ndarray], keys: Keys
    ) -> tuple[dict[str, np.ndarray], Columns | None]:
        return self.inner.weigh(trip, block, reply, keys)

    def block_state_trip(self, trip: int) -> int | None:
        return self.inner.block_state_trip(trip)

    def reads_block(self, trip: int) -> bool:
        return self.inner.reads_block(trip)

    def noise(self, trip: int) -> ItemNoise:
        return self.inner.noise(trip)

    def touches(self, trip: int) -> Touches:
        return self.inner.touches(trip)

    def meets(self, trip: int) -> str | None:
        return self.inner.meets(trip)

    def summarise(self, trip: int, part: Block | Shard, keys: Keys) -> Columns:
        return self.inner.summarise(trip, part, keys)

    def hub_noise(self, trip: int) -> HubNoise:
        return self.inner.hub_noise(trip)

    def done(self, trip: int, broadcast: Columns) -> bool:
        return self.inner.done(trip, broadcast)

    def decide(
        self, trip: int, state: Columns, summaries: Sequence[Columns], draw: Draw
    ) -> tuple[Columns, Columns]:
        return self.inner.decide(trip, state, summaries, draw)

    def hub_output(self, state: Columns) -> pa.RecordBatch | None:
        return self.inner.hub_output(state)

    def finish_block(self, block: Block) -> pa.RecordBatch | None:
        return self.inner.finish_block(block)

    def exact(self, trip: int, shard: Shard) -> Exact:
        return self.inner.exact(trip, shard)

    def observe(self, trip: int, shard: Shard, noisy: np.ndarray, present: np.ndarray) -> Shard:
        return self.inner.observe(trip, shard, noisy, present)

    def threshold(self, trip: int, shard: Shard) -> Shard:
        return self.inner.threshold(trip, shard)

    def reply(self, trip: int, shard: Shard) -> tuple[Shard, dict[str, np.ndarray]]:
        return self.inner.reply(trip, shard)

    def released(self, shard: Shard) -> tuple[np.ndarray, np.ndarray]:
        return self.inner.released(shard)


def check_goes_on(program: Program, last: int | None = None) -> None:
    """Refuse a program that another one cannot go on from, as it ends without its shards.

    Args:
      last: its last trip where nobody may meet then, as others do; None: anybody may.

    Raises:
      ValueError: naming the class of the innermost program.
    """
    inside = program
    while isinstance(inside, Forwarding):
        inside = inside.inner
    name = type(inside).__name__
    if program.output != "shards" or program.may_end:
        raise ValueError(f"{name} ends with its {program.output}: nothing can go on from its shards")
    if last is not None and program.meets(last) is not None:
        raise ValueError(
            f"parts of {name} meet after its last trip, when what follows meets: it cannot go on"
        )
