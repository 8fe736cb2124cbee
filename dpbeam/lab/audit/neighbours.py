"""Neighbouring inputs for the audit: small worst cases, laid out many times in one run.

Noise is drawn per item and samples per user, so K copies of a tiny input with users and items of their own are K
independent trials, and one run in process decides them all. Copies differ by the numbers of their users
and items; a program never sees where one copy ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from dpbeam.counts.gathered import public_domain
from dpbeam.engine.program import Keys
from dpbeam.kernels.columns import Columns
from dpbeam.kernels.pairs import Block, build_block, partition_pairs
from dpbeam.selection.plan import SelectionPlan
from dpbeam.selectors.base import HardCase, all_novel

_COLLIDES = 1 << 32  # a newcomer shares the low 32 bits of its number with the first of the others

Ids = np.ndarray
Identity = Callable[[Ids], Ids]


class Neighbours(HardCase):
    """A pair of inputs: S holds the sets of `others`, S' in addition the set of the newcomer.

    Attributes:
      name: what makes it a hard case.
      others: item numbers of each user of S.
      newcomer: item numbers of the user that only S' holds.
    """

    __slots__ = ()

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


def users_of(neighbours: HardCase, *, with_newcomer: bool) -> np.ndarray:
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


def worst_cases(plan: SelectionPlan) -> tuple[Neighbours, ...]:
    """Hard neighbouring inputs for a plan; D0 and thresholds small, or the inputs get large.

    All-novel users, a half-novel one, a user that tips items at the threshold from below and above, a heavy user
    beyond D0; one that lifts D0 items over a floor on users; and those that the selector names itself.
    """
    d0 = plan.config.max_items_per_user
    cases = [Neighbours(*all_novel(t)) for t in sorted({1, math.ceil(d0 / 2), d0})]
    cases.append(_half_novel(d0))
    cases += _tipping(plan)
    cases.append(_heavy(d0))
    if plan.config.min_users is not None:
        cases.append(_at_the_floor(d0, plan.config.min_users))
    return (*cases, *(Neighbours(*case) for case in plan.hard_cases()))


def _half_novel(d0: int) -> Neighbours:
    known = max(1, d0 // 2)
    others = tuple((i,) for i in range(known) for _ in range(2))
    return Neighbours("half novel", others, tuple(range(max(d0, 2))))


def _tipping(plan: SelectionPlan) -> list[Neighbours]:
    """Items at the weights where the newcomer's unit moves the odds of release by e^eps, and both at once."""
    last = plan.rounds[-1]
    spread = plan.config.epsilon * last.statistic_sigma**2
    low, high = (
        max(1, round((last.threshold + side * spread) / last.weight_factor + last.floor - 0.5))
        for side in (-1, 1)
    )
    d0 = plan.config.max_items_per_user
    return [
        Neighbours("tips one item from below", ((0,),) * low, (0,)),
        Neighbours("tips one item from above", ((0,),) * high, (0,)),
        Neighbours("tips D0 items", tuple((i,) for i in range(d0) for _ in range(low)), tuple(range(d0))),
    ]


def _at_the_floor(d0: int, min_users: int) -> Neighbours:
    """D0 items of as many users as may not be released, each of which gives all it has; the newcomer makes one more."""
    others = tuple((i,) for i in range(d0) for _ in range(min_users - 1))
    return Neighbours("lifts D0 items over the floor", others, tuple(range(d0)))


def _heavy(d0: int) -> Neighbours:
    """A newcomer with three times D0 items, half of them its own, among users that hold two known items each."""
    known = max(2, 3 * d0 // 2)
    others = tuple((i, (i + 1) % known) for i in range(known))
    return Neighbours("heavy user beyond D0", others, tuple(range(3 * d0)))
