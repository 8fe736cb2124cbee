"""The vote, one user after the other, in dictionaries."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from dpbeam.randomness import fingerprints
from dpbeam.testing.replay import unfloored
from tests.support.reference import Data, Trace, above


def counts(lists: Mapping[str, Sequence[str]], *, quota: int, trips: int, latest: int) -> Counter:
    """Votes of every item. `lists`: user -> items in the order in which it asks them, users in their order."""
    entry = {user: min(math.ceil(math.log2(len(items))), latest) for user, items in lists.items()}
    at = dict.fromkeys(lists, 0)
    seated, staying, moving = Counter(), Counter(), set()
    for trip in range(trips):
        asking = [user for user in lists if user in moving or entry[user] == trip]
        moving = set()
        for user in asking:
            item = lists[user][at[user]]
            if seated[item] < quota or trip == trips - 1:
                seated[item] += 1
            elif at[user] + 1 < len(lists[user]):
                at[user] += 1
                moving.add(user)
            else:
                staying[item] += 1
    return seated + staying


def ordered_lists(data: Data, cap: int) -> dict[str, list[str]]:
    """Every user's sample in the order of item fingerprints; users in the order of theirs."""
    sets, keys = data.capped(cap), data.keys.pairs

    def order(key: bytes, names: Iterable[str]) -> list[str]:
        return sorted(names, key=lambda name: tuple(map(int, fingerprints(key, pa.array([name]))[0])))

    return {user: order(keys.item, sets[user]) for user in order(keys.user, sets)}


def vote(data: Data, program) -> Trace:
    """Votes plus noise of every item that somebody's sample holds, and the items that reach the threshold."""
    program, min_users = unfloored(program)
    lists = ordered_lists(data, program.cap)
    votes = counts(lists, quota=program.quota, trips=program.trips, latest=program.trips // 3)
    items = sorted({item for items in lists.values() for item in items})
    noise = data.keys.noise(
        program.count_noise, fingerprints(data.keys.pairs.item, pa.array(items, pa.string()))
    )
    kept = above(votes, items, min_users)
    noisy = {item: float(kept[item] + int(z) // 2**30) for item, z in zip(items, noise)}
    return Trace(
        [noisy], {item for item, value in noisy.items() if value >= program.count_noise.law.threshold}
    )
