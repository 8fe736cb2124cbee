"""Exact numbers of holders per item: alone, or riding on a selection.

Top-k on an unknown domain selects a domain first and needs the counts of its items over all users' full, deduplicated
sets. Blocks then hold full sets; the selection works on each user's sample, as always; and the counts ride on the
selection's first message, so counting costs no trip of its own.

Counts are exact and private: they stay in the shards' state until a mechanism with a budget uses them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np

from dpbeam.engine.forwarding import Forwarding, check_goes_on
from dpbeam.engine.program import Keys, Program, with_state
from dpbeam.kernels.columns import Columns
from dpbeam.kernels.csr import Csr
from dpbeam.kernels.pairs import Block, bottom_sample
from dpbeam.kernels.shards import Shard

FULL_SETS = (1 << 31) - 1
COUNT = "count"
_SAMPLED = "sampled"
_VIEW = "view"
_INNER = "inner."


class CountedProgram(Forwarding):
    """`inner`, a selection, with the number of holders of every item in the state of its shard.

    The selection sees each user's bottom-`inner.cap` sample, the same one that it would get if blocks had been
    cut when they were built. An item that no sample holds has no weight, and `released` never holds it: it would
    otherwise be released by its noise alone, and a user may hold any number of such items.

    Raises:
      ValueError: the selection does not give its result from its shards, or they pass its first trip unseen.
    """

    def __init__(self, inner: Program):
        super().__init__(inner)
        check_goes_on(inner)
        if inner.noise(0) is None and 0 not in inner.reply_columns:
            raise ValueError(f"shards of {type(inner).__name__} keep nothing of its first trip: no counts")
        self.cap = FULL_SETS

    def sum_names(self, trip: int) -> tuple[str, ...]:
        names = super().sum_names(trip)
        return (*names, COUNT, _SAMPLED) if trip == 0 else names

    def reads_block(self, trip: int) -> bool:
        return True  # the sample is cut from it

    def block_state_trip(self, trip: int) -> int | None:
        return trip - 1 if trip else None

    def weigh(
        self, trip: int, block: Block, reply: Mapping[str, np.ndarray], keys: Keys
    ) -> tuple[dict[str, np.ndarray], Columns | None]:
        if trip == 0:
            full = Csr(block.offsets, block.links)
            keep = bottom_sample(
                block.offsets, block.user_fp, block.item_fp, block.links, keys.pairs.sample, self.inner.cap
            )
            rows = full.restrict(keep)
            view = replace(block, offsets=rows.offsets, links=rows.links, state={})
        else:
            view = _sampled(block)
        sums, state = super().weigh(trip, view, reply, keys)
        if trip == 0:
            sums = {
                **sums,
                COUNT: _holders(full, block),
                _SAMPLED: (_holders(rows, block) > 0).astype(np.int64),
            }
        kept = view.state if state is None else state
        rows = Csr(view.offsets, view.links)
        return sums, {**rows.to_state(_VIEW), **{f"{_INNER}{name}": values for name, values in kept.items()}}

    def summarise(self, trip: int, part: Block | Shard, keys: Keys) -> Columns:
        return super().summarise(trip, _sampled(part) if isinstance(part, Block) else part, keys)

    def observe(self, trip: int, shard: Shard, noisy: np.ndarray, present: np.ndarray) -> Shard:
        return super().observe(trip, self._remember(trip, shard), noisy, present)

    def threshold(self, trip: int, shard: Shard) -> Shard:
        """Release what crosses, among the items that somebody's sample holds."""
        shard = super().threshold(trip, shard)
        return with_state(shard, released=shard.state["released"] & shard.state[_SAMPLED])

    def reply(self, trip: int, shard: Shard) -> tuple[Shard, dict[str, np.ndarray]]:
        return super().reply(trip, self._remember(trip, shard))

    def _remember(self, trip: int, shard: Shard) -> Shard:
        if trip or COUNT in shard.state:
            return shard
        return with_state(shard, count=shard.sums[COUNT], sampled=shard.sums[_SAMPLED] > 0)


def _sampled(block: Block) -> Block:
    """The block as the selection knows it, from the second trip on."""
    rows = Csr.from_state(block.state, _VIEW)
    own = {name.removeprefix(_INNER): v for name, v in block.state.items() if name.startswith(_INNER)}
    return replace(block, offsets=rows.offsets, links=rows.links, state=own)


def _holders(rows: Csr, block: Block) -> np.ndarray:
    return np.bincount(rows.links, minlength=block.num_items)


class CountProgram(Program):
    """One trip that counts the holders of every item; nothing is released.

    Args:
      max_items: D0, items of a user that count; None: all of them.
    """

    trips = 1
    norm = "none"
    weight_grid = 1.0
    reply_columns: ClassVar = {}

    def __init__(self, max_items: int | None = None):
        self.cap = FULL_SETS if max_items is None else max_items

    def sum_names(self, trip: int) -> tuple[str, ...]:
        return (COUNT,)

    def noise(self, trip: int) -> None:
        return None

    def weigh(
        self, trip: int, block: Block, reply: Mapping[str, np.ndarray], keys: Keys
    ) -> tuple[dict[str, np.ndarray], Columns | None]:
        return {COUNT: _holders(Csr(block.offsets, block.links), block)}, None


def candidates(program: Program, shard: Shard) -> tuple[np.ndarray, np.ndarray]:
    """After the last trip: (items,) bool of the shard's domain items, and their exact (private) counts, (items,).

    Of a counted selection these are the released items, of `CountProgram` all.
    """
    if isinstance(program, CountedProgram):
        return shard.state["released"], shard.state[COUNT]
    return np.ones(len(shard), bool), shard.sums[COUNT]
