"""Neighbouring inputs for the audit: small worst cases, laid out many times in one run.

Noise is drawn per item and samples per user, so K copies of a tiny input with users and items of their own are K
independent trials, and one run in process decides them all. Copies differ by the numbers of their users
and items; a program never sees where one copy ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dpbeam.counts.gathered import public_domain
from dpbeam.engine.program import Keys
from dpbeam.kernels.columns import Columns
from dpbeam.kernels.pairs import Block, build_block, partition_pairs
from dpbeam.selection.plan import SelectionPlan

_COLLIDES = 1 << 32  # a newcomer shares the low 32 bits of its number with the first of the others

Ids = np.ndarray
Identity = Callable[[Ids], Ids]


class Neighbours(NamedTuple):
    """A pair of inputs: S holds the sets of `others`, S' in addition the set of the newcomer.

    Attributes:
      name: what makes it a hard case.
      others: item numbers of each user of S.
      newcomer: item numbers of the user that only S' holds.
    """

    name: str
    others: tuple[tuple[int, ...], ...]
    newcomer: tuple[int, ...]

    @property
    def num_items(self) -> int:
        """Item numbers run from 0 to num_items - 1."""
        return 1 + max(max(items) for items in (*self.others, self.newcomer))

    def pairs(self, copies: int, *, with_newcomer: bool) -> tuple[Ids, Ids]:
        """User and item numbers of all copies, (copies * pairs,) int64 each."""
        users = [u for u, items in enumerate(self.others) for _ in items]
        items = [i for s in self.others for i in s]
        if with_newcomer:
            users += [_COLLIDES] * len(self.newcomer)
            items += self.newcomer
        copy = np.arange(copies, dtype=np.int64)[:, None]
        user = np.array(users, np.int64)[None, :] + copy * max(1, len(self.others))
        item = np.array(items, np.int64)[None, :] + copy * self.num_items
        return user.ravel(), item.ravel()


def all_novel(count: int) -> Neighbours:
    """A newcomer with `count` items that nobody else holds, and nobody else."""
    return Neighbours(f"all novel, {count} items", (), tuple(range(count)))


def unseen(max_items: int) -> Neighbours:
    """Four users hold item 0 and many fillers, which others hold too.

    Where all their first samples missed item 0, only the newcomer's holds it.
    """
    fillers = tuple(range(1, 5 * max_items + 1))
    others = ((0, *fillers),) * 4 + tuple((i,) for i in fillers)
    return Neighbours("unseen by earlier samples", others, (0,))


def d0_of(plan: SelectionPlan) -> int:
    """D0 of a plan."""
    d0 = plan.config.max_items_per_user
    assert d0 is not None, "a plan has resolved it"
    return d0


def unseen_when_resampled(plan: SelectionPlan) -> list[Neighbours]:
    """The case of `unseen` where every round of a plan samples afresh."""
    return [unseen(d0_of(plan))] if plan.config.request().settings.resample else []


def users_of(neighbours: Neighbours, *, with_newcomer: bool) -> np.ndarray:
    """Users of every item of a copy, (num_items,) int64."""
    users = [*neighbours.others, *([neighbours.newcomer] if with_newcomer else [])]
    return np.bincount([item for items in users for item in items], minlength=neighbours.num_items)


def names_of(numbers: Ids) -> pa.Array:
    """Eight bytes per number, as large_binary."""
    data = pa.py_buffer(np.ascontiguousarray(numbers, ">i8").tobytes())
    offsets = pa.py_buffer(np.arange(0, 8 * len(numbers) + 1, 8, dtype=np.int64).tobytes())
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(numbers), [None, offsets, data])


def numbered_domain(size: int) -> Columns:
    """A public domain of the items 0 to size - 1."""
    return public_domain(names_of(np.arange(size)))


def numbers_of(names: pa.Array) -> Ids:
    """The numbers that `names_of` wrote, (n,) int64."""
    if not len(names):
        return np.zeros(0, np.int64)
    _, offsets, data = names.buffers()
    start = int(np.frombuffer(offsets, np.int64)[names.offset])
    return np.frombuffer(data, ">i8", len(names), start).astype(np.int64)


def build(
    neighbours: Neighbours,
    copies: int,
    keys: Keys,
    cap: int,
    *,
    with_newcomer: bool,
    identity: Identity | None = None,
) -> list[Block]:
    """The block of all copies of S or S', none if S is empty.

    Args:
      identity: what the program under audit takes for a user's identity; None: the whole number.
    """
    users, items = neighbours.pairs(copies, with_newcomer=with_newcomer)
    if identity is not None:
        users = identity(users)
    parts = partition_pairs(names_of(users), names_of(items), keys.pairs, 1, cap)
    messages = [columns for _, columns in parts]
    if not messages:
        return []
    block = build_block(0, messages, keys.pairs, 1, cap)
    return [] if block is None else [block]
