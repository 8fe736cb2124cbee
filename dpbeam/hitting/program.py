"""k-hitting set as a program: a selection on full sets, then user peeling between blocks and hub.

After the last trip of the selection the shards meet: the hub learns the released items and broadcasts them, the domain.
Blocks then keep the users whose coin says so, restrict them to the domain, drop the empty ones and merge equal
sets, and the trips differ in where the rounds run:

- *trip by trip*: a block sends its counts, and on each later trip by how much they fall with the holders of the item
  chosen last; the hub keeps exact counts, chooses, and broadcasts all choices so far. A block keeps no state but
  its sets.
- *gathered*: where all restricted sets surely fit one worker, blocks send them once, and the hub runs all rounds.

Both call the same kernels (`cover.py`) and draw under the same labels, so they choose the same items. The number of
trips is a function of settings alone, and a round chooses whether or not anybody is left: to stop would tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dpbeam.accounting.events import check_choices, leaves
from dpbeam.counts.counted import CountedProgram, CountProgram, candidates
from dpbeam.counts.gathered import Gathered, gather, histogram
from dpbeam.engine.extended import Extended
from dpbeam.engine.planned import check_plan
from dpbeam.engine.program import Decided, Draw, Keys, Program, Reply, ReplyColumn, Weighed
from dpbeam.hitting.cover import Choose, Cover, next_item, peel
from dpbeam.kernels.columns import Columns, narrow
from dpbeam.kernels.csr import Csr
from dpbeam.kernels.pairs import Block, kinds_column, positions_in
from dpbeam.kernels.shards import Shard
from dpbeam.randomness import KeyedBits, RunKey, prf_bits
from dpbeam.randomness.discrete import coins, gumbel_peel
from dpbeam.topk.program import ranking_of

if TYPE_CHECKING:
    from dpbeam.hitting.config import HittingSetPlan

#: Pairs of which one worker holds what is left after restriction: 2 or 4 bytes each and 8 a set, 1 GB in all, which is
#: what a worker with a shard needs.
GATHERED_PAIRS = 250_000_000
_WAKE = "wake"
_SETS = ("degrees", "links", "users")


def noisy_choice(epsilon0: float, fp: np.ndarray, key: RunKey) -> Choose:
    """The exponential mechanism of bounded range epsilon0: the largest count plus fresh Gumbel(1/epsilon0) noise a
    round.

    Comparisons are those of real numbers (`dpbeam.randomness.discrete.choices`).

    Args:
      fp: (d, 2) uint64, fingerprints of the domain.
    """

    def choose(number: int, counts: np.ndarray, positions: np.ndarray) -> int:
        bits = KeyedBits(key, f"hitting-set/round {number}", fp[positions])
        return int(gumbel_peel(counts, epsilon0, bits, 1)[0])

    return choose


class HittingSetProgram(Extended):
    """Selection of a domain and user peeling.

    Args:
      plan: calibrated.
      domain: the items of a public domain (`dpbeam.topk.program.public_domain`), exactly where the plan says so.
      gather: all pairs of users with items of the domain fit one worker, two or four bytes each, and eight bytes
        for each
        set: the hub runs all rounds.

    Raises:
      ValueError: plan and domain disagree: without its domain, items of the data would be taken for public.
      NoiseMismatchError: the plan's events do not state what is done; and as `check_plan`.
    """

    output, chooses = "hub", True

    def __init__(self, plan: HittingSetPlan, domain: Columns | None = None, *, gather: bool = False):
        if plan.config.public_domain != (domain is not None):
            raise ValueError(
                "a hitting-set job with public_domain=True needs the domain's items, and one without takes none"
            )
        counting: Program = CountProgram()
        if plan.selection is not None:
            counting = CountedProgram(plan.selection.program)
        super().__init__(counting)
        self.plan, self.domain, self.gather = plan, domain, gather
        self.trips = counting.trips + (1 if gather else plan.config.k)
        wakes = {counting.trips - 1: {_WAKE: ReplyColumn(np.uint8, 0)}}
        self.reply_columns = {**counting.reply_columns, **wakes}
        check_choices(plan.event, plan.epsilon0, plan.config.k, plan.rate)
        selection = [] if plan.selection is None else leaves(plan.selection.event)
        budget = plan.config.epsilon, plan.config.delta
        check_plan(self, plan.event, *budget, "a hitting set", stated=selection)

    def _restricts(self, trip: int) -> bool:
        return trip == self.inner.trips

    @property
    def _last(self) -> int:
        """The last trip of the selection, after which the domain is known."""
        return self.inner.trips - 1

    def meets(self, trip: int) -> str | None:
        if not self.is_first(trip):
            return "blocks"
        return "shards" if trip == self._last else super().meets(trip)

    def reads_block(self, trip: int) -> bool:
        return super().reads_block(trip) if self.is_first(trip) else self._restricts(trip)

    def block_state_trip(self, trip: int) -> int | None:
        if self.is_first(trip):
            return super().block_state_trip(trip)
        return None if self._restricts(trip) else self.inner.trips

    def weigh(self, trip: int, block: Block, reply: Reply, keys: Keys) -> Weighed:
        if self.is_first(trip):
            return super().weigh(trip, block, reply, keys)
        if not self._restricts(trip):
            return {}, None
        position = positions_in(block.broadcast["domain"], block.item_fp)
        users = taking_part(self.plan.rate, block.user_fp, keys)
        sets, _ = Csr(block.offsets, block.links).select_rows(users)
        return {}, Cover.restricted(sets, position).to_columns()

    def reply(self, trip: int, shard: Shard) -> tuple[Shard, dict[str, np.ndarray]]:
        if trip == self._last:
            return shard, {_WAKE: np.zeros(len(shard), np.uint8)}
        return super().reply(trip, shard)

    def summarise(self, trip: int, part: Block | Shard, keys: Keys) -> Columns:
        if trip < self._last:
            return super().summarise(trip, part, keys)
        if isinstance(part, Shard):
            if part.items is None:
                raise ValueError("the shard came without its items")
            mask, _ = candidates(self.inner, part)
            items = part.items.filter(pa.array(mask))
            return histogram(items, np.zeros(len(items), np.int64), part.kinds)
        sets: Columns = {name: part.state[name] for name in _SETS}
        if self.gather:
            return sets
        chosen, size = part.broadcast["chosen"], int(part.broadcast["size"][0])
        cover, change = Cover.from_columns(sets), np.zeros(size, np.int64)
        if self._restricts(trip):
            change = cover.counts(size)
        elif len(chosen):
            cover.drop(chosen[:-1])
            cover.take(int(chosen[-1]), change)
        items = np.flatnonzero(change)
        return {"items": narrow(items), "change": narrow(np.abs(change[items]))}

    def decide(self, trip: int, state: Columns, summaries: Sequence[Columns], draw: Draw) -> Decided:
        if trip < self._last:
            return super().decide(trip, state, summaries, draw)
        if trip == self._last:
            state = _first_state(gather(summaries, self.domain, draw.fingerprints))
            return state, {"domain": state["fp"], **_broadcast(state)}
        counts, chosen, k = state["counts"].copy(), state["chosen"].tolist(), self.plan.config.k
        choose = noisy_choice(self.plan.epsilon0, state["fp"], draw.run_key)
        if self.gather:
            covers = [Cover.from_columns(summary) for summary in summaries]
            for cover in covers:
                counts += cover.counts(len(counts))
            chosen = peel(covers, counts, k, choose)
        else:
            sign = 1 if self._restricts(trip) else -1
            for summary in summaries:
                counts[summary["items"]] += sign * summary["change"].astype(np.int64)
            if len(chosen) < min(k, len(counts)):
                chosen.append(next_item(choose, counts, chosen))
        state = {**state, "counts": counts, "chosen": np.array(chosen, np.int64)}
        return state, _broadcast(state)

    def hub_output(self, state: Columns) -> pa.RecordBatch | None:
        """(rank, item) in the order of the choice; None where the domain is empty."""
        chosen = state["chosen"]
        if not len(chosen):
            return None
        return ranking_of(state["items"].take(pa.array(chosen)), None, state["kinds"][0].as_py())


def taking_part(rate: float, user_fp: np.ndarray, keys: Keys) -> np.ndarray:
    """Users whose coin shows, each with probability `rate`, rounded down to a multiple of 2^-128. (n,) bool."""
    return coins(prf_bits(keys.users(), user_fp), rate)


def _broadcast(state: Columns) -> Columns:
    """What every block may know: the choices so far, and the size of the domain."""
    return {"chosen": state["chosen"], "size": np.array([len(state["counts"])])}


def _first_state(domain: Gathered) -> Columns:
    """The hub's first state: items of the domain in the order of their fingerprints, held by nobody so far."""
    return {
        "items": domain.items,
        "fp": domain.fp,
        "counts": domain.counts,
        "chosen": np.zeros(0, np.int64),
        "kinds": kinds_column(domain.kinds),
    }
