"""Exact numbers of holders per item: alone, or riding on a selection.

Top-k on an unknown domain selects a domain first and needs the counts of its items over all users' full, deduplicated
sets. Blocks then hold full sets; the selection works on each user's sample, as always; and the counts ride on the
selection's first message, so counting costs no trip of its own.

Counts are exact and private: they stay in the shards' state until a mechanism with a budget uses them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from dpbeam.engine.forwarding import Forwarding, check_goes_on
from dpbeam.engine.program import Keys, Program, Reply, Weighed, with_state
from dpbeam.kernels.columns import Columns
from dpbeam.kernels.csr import Csr
from dpbeam.kernels.pairs import Block, bottom_sample, positions_in
from dpbeam.kernels.shards import Shard
from dpbeam.randomness import fingerprints

FULL_SETS = (1 << 31) - 1
COUNT = "count"
_SAMPLED = "sampled"
_LISTED = "listed"
_VIEW = "view"
_INNER = "inner."


class CountedProgram(Forwarding):
    """`inner`, a selection, with the number of holders of every item in the state of its shard.

    The selection sees each user's bottom-`inner.cap` sample, the same one that it would get if blocks had been
    cut when they were built. An item that no sample holds has no weight, and `released` never holds it: it would
    otherwise be released by its noise alone, and a user may hold any number of such items.

    Args:
      inner: the selection.
      listed: canonical bytes of items that take no part in it, as if no user held them, and are counted all the same.

    Raises:
      ValueError: the selection does not give its result from its shards, or they pass its first trip unseen.
    """

    def __init__(self, inner: Program, listed: pa.Array | None = None):
        super().__init__(inner)
        check_goes_on(inner)
        if inner.noise(0) is None and 0 not in inner.reply_columns:
            raise ValueError(f"shards of {type(inner).__name__} keep nothing of its first trip: no counts")
        self.cap = FULL_SETS
        self._list = listed

    def sum_names(self, trip: int) -> tuple[str, ...]:
        names = super().sum_names(trip)
        if trip:
            return names
        return (*names, COUNT, _SAMPLED, *(() if self._list is None else (_LISTED,)))

    def reads_block(self, trip: int) -> bool:
        return True  # the sample is cut from it

    def block_state_trip(self, trip: int) -> int | None:
        return trip - 1 if trip else None

    def weigh(self, trip: int, block: Block, reply: Reply, keys: Keys) -> Weighed:
        if trip == 0:
            full = Csr(block.offsets, block.links)
            listed = self._listed(block, keys)
            rows = full if listed is None else full.restrict(~listed.take(full.links))
            keep = bottom_sample(
                rows.offsets, block.user_fp, block.item_fp, rows.links, keys.pairs.sample, self.inner.cap
            )
            rows = rows.restrict(keep)
            view = _seen(block, rows)
        else:
            view = _sampled(block)
        sums, state = super().weigh(trip, view, reply, keys)
        if trip == 0:
            sums = {
                **sums,
                COUNT: _holders(full, block),
                _SAMPLED: (_holders(rows, block) > 0).astype(np.int64),
            }
            if listed is not None:
                sums[_LISTED] = listed.astype(np.int64)
        else:
            rows = Csr.from_state(block.state, _VIEW)
        kept = view.state if state is None else state
        return sums, {**rows.to_state(_VIEW), **{f"{_INNER}{name}": values for name, values in kept.items()}}

    def _listed(self, block: Block, keys: Keys) -> np.ndarray | None:
        """(items,) bool: which of the block's items are on the list; None where there is none."""
        if self._list is None:
            return None
        return positions_in(fingerprints(keys.pairs.item, self._list), block.item_fp) >= 0

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
        state = {COUNT: shard.sums[COUNT], _SAMPLED: shard.sums[_SAMPLED] > 0}
        if self._list is not None:
            state[_LISTED] = shard.sums[_LISTED] > 0
        return with_state(shard, **state)


def _sampled(block: Block) -> Block:
    """The block as the selection knows it, from the second trip on."""
    own = {name.removeprefix(_INNER): v for name, v in block.state.items() if name.startswith(_INNER)}
    return replace(_seen(block, Csr.from_state(block.state, _VIEW)), state=own)


def _seen(block: Block, rows: Csr) -> Block:
    """The block with these rows alone; users of none are not in it."""
    users = rows.degrees > 0
    if users.all():
        return replace(block, offsets=rows.offsets, links=rows.links, state={})
    seen, _ = rows.select_rows(users)
    return replace(block, offsets=seen.offsets, links=seen.links, user_fp=block.user_fp[users], state={})


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

    def __init__(self, max_items: int | None = None):
        self.reply_columns = {}
        self.cap = FULL_SETS if max_items is None else max_items

    def sum_names(self, trip: int) -> tuple[str, ...]:
        return (COUNT,)

    def noise(self, trip: int) -> None:
        return None

    def weigh(self, trip: int, block: Block, reply: Reply, keys: Keys) -> Weighed:
        return {COUNT: _holders(Csr(block.offsets, block.links), block)}, None


def candidates(program: Program, shard: Shard, *, listed: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """After the last trip: (items,) bool of the shard's domain items, and their exact (private) counts, (items,).

    Of a counted selection these are the released items and those of its list, of `CountProgram` all.

    Args:
      listed: with the items of a list; `CountProgram` counts no others where there is one.
    """
    if not isinstance(program, CountedProgram):
        return np.full(len(shard), listed), shard.sums[COUNT]
    released, counts = shard.state["released"], shard.state[COUNT]
    return released | shard.state[_LISTED] if listed and _LISTED in shard.state else released, counts
