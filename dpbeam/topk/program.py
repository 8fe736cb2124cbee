"""Top-k as a program: a selection with counts, or counts alone, whose shards meet at the hub for the choice.

The domain's items and counts meet in the hub, which runs the mechanism: 24 bytes and the item itself per domain item.
limited-domain needs only the largest counts of each shard, except with kbar = 0. gauss-rank takes two trips more
(`RankProgram`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dpbeam.accounting.events import leaves
from dpbeam.accounting.noise import NoiseSpec
from dpbeam.counts import NOISY_COUNT, RANK
from dpbeam.counts.counted import COUNT, CountedProgram, CountProgram, candidates
from dpbeam.counts.gathered import WEIGHTS, Gathered, gather, histogram
from dpbeam.counts.histogram import largest_positions
from dpbeam.counts.user_rounds import INSIDE, WAY, WEIGHT, UserRounds
from dpbeam.engine.extended import Extended
from dpbeam.engine.planned import check_plan
from dpbeam.engine.program import Decided, Draw, HubNoise, Keys, Program
from dpbeam.kernels.canonical import METADATA_KEY
from dpbeam.kernels.columns import Columns
from dpbeam.kernels.pairs import Block, kinds_column
from dpbeam.kernels.shards import Shard
from dpbeam.randomness import RunKey
from dpbeam.topk.gauss_rank import GaussRank
from dpbeam.topk.limited_domain import largest_needed
from dpbeam.topk.mechanisms import LimitedDomain

if TYPE_CHECKING:
    from dpbeam.topk.config import TopKPlan

ITEM = "item"


def counting_program(plan: TopKPlan) -> Program:
    """What blocks and shards do before the choice: a counted selection, or counting alone."""
    if plan.selection is not None:
        return CountedProgram(plan.selection.program)
    if isinstance(plan.mechanism, LimitedDomain):
        return CountProgram(plan.mechanism.max_items_per_user)
    return CountProgram()


def choose_from(
    plan: TopKPlan, parts: Sequence[Columns], domain: Columns | None, key: RunKey
) -> pa.RecordBatch:
    """The plan's choice from the parts of a histogram, in rank order; for arguments see `gather`.

    Returns:
      record batch of at most min(k, d) rows: rank (from 1), item, and noisy_count where planned.
    """
    gathered = gather(parts, domain, Keys(key).fingerprints)
    if not len(gathered.items):
        return answer(plan, gathered, np.zeros(0, np.int64), key)
    mechanism = plan.mechanism.at_most(len(gathered.items))
    return answer(plan, gathered, mechanism.select(gathered.counts, gathered.fp, key), key)


def chosen_of(plan: TopKPlan, counted: Columns, key: RunKey) -> pa.RecordBatch:
    """The plan's choice from one histogram."""
    return choose_from(plan, [counted], None, key)


def answer(plan: TopKPlan, gathered: Gathered, positions: np.ndarray, key: RunKey) -> pa.RecordBatch:
    """The chosen positions as the result, with their noisy counts where planned."""
    noisy = None
    if plan.counts is not None:
        noisy = pa.array(plan.counts.release(gathered.counts[positions], gathered.fp[positions], key))
    return ranking_of(gathered.items.take(pa.array(positions)), noisy, gathered.kinds)


def ranking_of(items: pa.Array, noisy: pa.Array | None, kinds: bytes) -> pa.RecordBatch:
    """Items in rank order, with their noisy counts where there are any, as the result."""
    counts = {} if noisy is None else {NOISY_COUNT: noisy}
    ranking = pa.RecordBatch.from_pydict({RANK: np.arange(1, len(items) + 1), ITEM: items, **counts})
    return ranking.replace_schema_metadata({METADATA_KEY: kinds})


class TopKProgram(Extended):
    """A counting program whose shards meet after its last trip; the hub chooses.

    Args:
      plan: calibrated; domain: a public domain, from `public_domain`, exactly where the plan says so.

    Raises:
      ValueError: plan and domain disagree: without its domain, items of the data would be chosen as if public.
      NoiseMismatchError: the plan's events do not state what is done; and as `check_plan`.
    """

    output, chooses = "hub", True

    def __init__(self, plan: TopKPlan, domain: Columns | None = None):
        if plan.config.public_domain != (domain is not None):
            raise ValueError(
                "a top-k job with public_domain=True needs the domain's items, and one without takes none"
            )
        super().__init__(counting_program(plan))
        self.plan, self.domain = plan, domain
        self.add_rounds()
        selection = [] if plan.selection is None else leaves(plan.selection.event)
        counts = [] if plan.counts is None else [plan.counts.event]
        choice = plan.mechanism.events
        beside, stated = (counts, choice) if plan.ranks_users else ([*choice, *counts], ())
        budget = plan.config.epsilon, plan.config.delta
        check_plan(self, plan.event, *budget, "top-k", beside=beside, stated=[*selection, *stated])

    def add_rounds(self) -> None:
        """Trips between the counting and the choice: none."""

    def meets(self, trip: int) -> str | None:
        return "shards" if trip == self.trips - 1 else super().meets(trip)

    def summarise(self, trip: int, part: Block | Shard, keys: Keys) -> Columns:
        if trip < self.trips - 1:
            return super().summarise(trip, part, keys)
        assert isinstance(part, Shard)
        mask, counts = candidates(self.inner, part)
        rows = np.flatnonzero(mask)
        largest = largest_needed(self.plan.mechanism)
        if largest is not None and len(rows) > largest:
            rows = rows[largest_positions(counts[rows], part.fp[rows], largest)]
        return histogram(part.loaded_items.take(pa.array(rows)), counts[rows], part.kinds)

    def decide(self, trip: int, state: Columns, summaries: Sequence[Columns], draw: Draw) -> Decided:
        if trip < self.trips - 1:
            return super().decide(trip, state, summaries, draw)
        return _remembered(choose_from(self.plan, summaries, self.domain, draw.run_key)), {}

    def hub_output(self, state: Columns) -> pa.RecordBatch | None:
        """The ranking; None where there is no item at all."""
        count = len(state["items"])
        if not count:
            return None
        noisy = None if self.plan.counts is None else pa.array(state["noisy"])
        return ranking_of(state["items"], noisy, state["kinds"][0].as_py())


def _remembered(chosen: pa.RecordBatch) -> Columns:
    """The result as the hub's last state."""
    counted = NOISY_COUNT in chosen.schema.names
    return {
        "items": chosen.column(ITEM),
        **({"noisy": chosen.column(NOISY_COUNT).to_numpy()} if counted else {}),
        "kinds": kinds_column(chosen.schema.metadata[METADATA_KEY]),
    }


class RankProgram(UserRounds, TopKProgram):
    """gauss-rank after a counting program: the rounds of `UserRounds`, and one in which the hub ranks.

    On the last trip blocks send the clipped weights, where that is the way, and the hub ranks the noisy sums.
    """

    @property
    def mechanism(self) -> GaussRank:
        """The plan's ranking."""
        assert isinstance(self.plan.mechanism, GaussRank)
        return self.plan.mechanism

    @property
    def histogram_noise(self) -> NoiseSpec:
        return self.mechanism.histogram_noise

    def choose_way(self, noisy: np.ndarray, size: int) -> Columns:
        return {WAY: np.array([self.mechanism.choose_way(noisy, max(size, 1))], np.int64)}

    def hub_noise(self, trip: int) -> HubNoise:
        return self.mechanism.noise if trip == self.trips - 1 else super().hub_noise(trip)

    def meets(self, trip: int) -> str | None:
        return "shards" if trip == self.trips - 1 else super().meets(trip)

    def summarise(self, trip: int, part: Block | Shard, keys: Keys) -> Columns:
        if trip < self.trips - 1:
            return super().summarise(trip, part, keys)
        assert isinstance(part, Shard)
        rows = np.flatnonzero(part.state[INSIDE])
        columns = histogram(part.loaded_items.take(pa.array(rows)), part.state[COUNT][rows], part.kinds)
        return {**columns, WEIGHTS: part.sums[WEIGHT][rows]}

    def decide(self, trip: int, state: Columns, summaries: Sequence[Columns], draw: Draw) -> Decided:
        if trip < self.trips - 1:
            return super().decide(trip, state, summaries, draw)
        gathered = gather(summaries, self.domain, draw.fingerprints)
        positions = np.zeros(0, np.int64)
        if len(gathered.items):
            positions = self.mechanism.at_most(len(gathered.items)).rank(
                int(state[WAY][0]),
                gathered.counts,
                gathered.weights,
                gathered.fp,
                lambda sums: draw.noisy(sums, gathered.fp),
                draw.run_key,
            )
        return _remembered(answer(self.plan, gathered, positions, draw.run_key)), {}


def topk_program(plan: TopKPlan, domain: Columns | None = None) -> TopKProgram:
    """What a plan runs; see `TopKProgram`."""
    return RankProgram(plan, domain) if plan.ranks_users else TopKProgram(plan, domain)
