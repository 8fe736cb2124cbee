"""One transferable vote per user: who asks which item, and who is turned away. Integers only.

Items have a common order, that of their fingerprints, and so have users. A user asks its items one after the other; an
item seats the first `quota` votes that ask it, of one trip in the order of users, and turns the others away for good.
A vote whose list has come to its end stays with its last item, seated or not. Both orders are keyed and
public to nobody, and do not depend on the data; docs/explanation/vote.md proves that a new user moves one count by one.

A block says how many of its users ask an item, and a shard answers how many of them it turns away: since blocks are
ranges of the order of users, these are the last ones of the block that asked.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpbeam.kernels.csr import Csr


@dataclass(frozen=True)
class Ballots:
    """Where the votes of a block's users are.

    Attributes:
      place: (users,) int64, the pair of the item that the user asks, or asked last.
      asking: (users,) bool, whether the vote asks on this trip. A vote that does not is settled or has not entered yet.
    """

    place: np.ndarray
    asking: np.ndarray


def entry_trips(degrees: np.ndarray, latest: int) -> np.ndarray:
    """The trip on which a user of this many items asks first: ceil(log2 degree), at most `latest`. (users,) int64.

    Users with few items have nowhere else to go, so they are served first.
    """
    return np.minimum(np.frexp(np.maximum(degrees, 1) - 1)[1], latest).astype(np.int64)


def first_ballots(rows: Csr, latest: int) -> Ballots:
    """The votes of the first trip."""
    entering = (entry_trips(rows.degrees, latest) == 0) & (rows.degrees > 0)
    return Ballots(rows.offsets[:-1].astype(np.int64), entering)


def next_ballots(
    rows: Csr, ballots: Ballots, turned_away: np.ndarray, trip: int, latest: int
) -> tuple[Ballots, np.ndarray]:
    """The votes of a later trip.

    Args:
      turned_away: (items,) int64, how many of this block's votes each item refused on the trip before.
      trip: the one that begins.

    Returns:
      The ballots, and (pairs that stay,) int64 places of votes that were turned away by their last item.
    """
    asked = np.flatnonzero(ballots.asking)
    asked = asked[turned_away[rows.links[ballots.place[asked]]] > 0]
    items = rows.links[ballots.place[asked]]
    order = np.argsort(items, kind="stable")  # users of an item stay in their order
    asked, items = asked[order], items[order]
    from_the_end = np.searchsorted(items, items, side="right") - np.arange(len(items))
    losers = asked[from_the_end <= turned_away[items]]
    more = ballots.place[losers] + 1 < rows.offsets[losers + 1]
    place = ballots.place.copy()
    place[losers[more]] += 1
    asking = (entry_trips(rows.degrees, latest) == trip) & (rows.degrees > 0)
    asking[losers[more]] = True
    return Ballots(place, asking), ballots.place[losers[~more]]


def votes_per_item(rows: Csr, places: np.ndarray, num_items: int) -> np.ndarray:
    """How many of these pairs belong to each item, (items,) int64."""
    return np.bincount(rows.links[places], minlength=num_items)


def seat(seated: np.ndarray, asking: np.ndarray, quota: int) -> np.ndarray:
    """Seats taken after a trip, (items,) int64."""
    return np.minimum(seated + asking, quota)


def refusals(
    slots: np.ndarray, per_link: np.ndarray, asking: np.ndarray, seated: np.ndarray, quota: int
) -> np.ndarray:
    """How many votes of each link an item turns away. (links,) int64.

    Args:
      slots: (links,) item of each link, links in the order of their blocks.
      per_link: (links,) int64 votes that ask on this trip; asking: (items,) their sums.
      seated: (items,) int64 seats taken before this trip, at most `quota`.
    """
    room = quota - seated
    refused = np.zeros(len(slots), np.int64)
    crowded = np.flatnonzero((asking > room)[slots] & (per_link > 0))
    crowded = crowded[np.argsort(slots[crowded], kind="stable")]
    items, votes = slots[crowded], per_link[crowded]
    before = np.cumsum(votes) - votes
    before -= before[np.searchsorted(items, items, side="left")]  # votes of earlier blocks for the same item
    refused[crowded] = votes - np.clip(room[items] - before, 0, votes)
    return refused
