"""What a run's folder need not hold any longer, once one of a chain of jobs has ended.

Inside a job an engine may run any earlier stage again: nothing may go. The end of a job is a line that no retry
crosses: what the next job reads is in the inboxes of its blocks and the replies that these point to, the blocks, the
shards and their last states. Everything else of the trips before goes: other messages, which are most of the folder,
older states, inboxes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from dpbeam.engine.beam.messages import FILE_PREFIX, replies_prefix
from dpbeam.engine.beam.store import RunStore
from dpbeam.engine.beam.trip_files import last_shard_trip
from dpbeam.engine.program import Program

_OF_A_TRIP = re.compile(r"(?P<part>block|shard)-\d+-(?P<what>state|inbox|waits)-(?P<trip>\d+)")


def sweep(store: RunStore, program: Program, trip: int) -> None:
    """Remove what no trip from `trip` on reads. All jobs with earlier trips have ended, their checkpoint is kept."""
    store.remove(unneeded(program, trip, store.names("")))


def unneeded(program: Program, trip: int, names: Iterable[str]) -> Iterator[str]:
    """Those of the files that no trip from `trip` on reads; names that are not known stay."""
    block_states = {program.block_state_trip(later) for later in range(trip, program.trips + 1)}
    reached = any(program.meets(before) != "blocks" for before in range(trip))
    shard_state = last_shard_trip(program, trip) if reached else None
    for name in names:
        matched = _OF_A_TRIP.fullmatch(name)
        if matched is not None:
            written, part, what = int(matched["trip"]), matched["part"], matched["what"]
            if what == "state":
                kept = written in block_states if part == "block" else written == shard_state
            else:
                kept = False
            if written < trip and not kept:
                yield name
        elif name.startswith(FILE_PREFIX) and not name.startswith(replies_prefix(trip - 1)):
            yield name
