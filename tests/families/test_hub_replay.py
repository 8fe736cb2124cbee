"""Replay at the hub: with the noisy numbers of S pinned, S with one user more says and releases the same.

The noisy sums of items and the noisy numbers of the hub are those of the first run. What the program then broadcasts
and returns may depend on nothing else, and what the hub adds noise to may move by no more than its events say. It is
the test that catches exact numbers in a broadcast, noise that is thrown away, and a sensitivity that is stated too
small, whatever kind of release the program is for.
"""

import math

import numpy as np
import pyarrow as pa
import pytest

from dpbeam.accounting.events import leaves
from dpbeam.counting.config import plan_count
from dpbeam.counting.family import CountConfig
from dpbeam.counts.gathered import public_domain
from dpbeam.engine.forwarding import Forwarding
from dpbeam.engine.in_process import build_blocks, output_batches, run_trips
from dpbeam.engine.program import Draw, Keys
from dpbeam.families.registry import families
from dpbeam.kernels.grid import UNITS
from dpbeam.randomness import RunKey
from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.plan import make_plan
from dpbeam.topk.config import plan_topk
from dpbeam.topk.family import TopKConfig
from dpbeam.topk.program import topk_program
from tests.support.examples import ROOT
from tests.support.instances import batches

ITEMS = [f"item {i}" for i in range(12)]
BUDGET = {"epsilon": 4.0, "delta": 0.01}
#: Of one item each, so that a ranking clips; items 2i and 2i + 1 have as many, so that one user more decides.
USERS = [(f"user {i} {u}", item) for i, item in enumerate(ITEMS) for u in range(10 * (i // 2 + 1))]
NEWCOMERS = {
    "all": ITEMS,
    "one": ITEMS[:1],
    "odd": ITEMS[1::2],
    "even": ITEMS[::2],
    "nothing that is released": ["item of nobody else"],
}


def domain():
    return public_domain(pa.array([item.encode() for item in ITEMS], pa.large_binary()))


def count():
    plan = plan_count(CountConfig(**BUDGET))
    return plan.program(domain()), plan.event


def noisy_counts(**more):
    plan = make_plan(SelectionConfig(**BUDGET, method="basic", noisy_counts=True, **more))
    return plan.program, plan.event


def ranking():
    plan = plan_topk(TopKConfig(**BUDGET, k=3, mechanism="gauss-rank", public_domain=True))
    return topk_program(plan, domain()), plan.event


#: Kind -> makers of program and event.
CASES = {
    "count": [count],
    "select": [noisy_counts, lambda: noisy_counts(others=True)],
    "top-k": [ranking],
}
#: Kinds whose hub decides by exact summaries, or that have none -> the test that replays them.
ELSEWHERE = {
    "hitting-set": "lab/tests/audit/test_choices.py",
    "pack": "tests/packing/test_privacy.py",
    "series": "tests/series/test_replay.py",
}


def test_every_kind_is_replayed():
    assert {*CASES, *ELSEWHERE} == set(families()) and not {*CASES} & {*ELSEWHERE}
    assert all((ROOT / path).exists() for path in ELSEWHERE.values())


class Replay:
    """The noisy numbers of one run, and how far those of the next were from them before noise."""

    def __init__(self):
        self.items, self.hub, self.moved = {}, {}, {}
        self.replaying = False


class Pinned(Forwarding):
    def __init__(self, inner, replay):
        super().__init__(inner)
        self.replay, self.said = replay, []

    def observe(self, trip, shard, noisy, present):
        kept = self.replay.items.setdefault(trip, {})
        places = [fp.tobytes() for fp in shard.fp]
        if self.replay.replaying:
            noisy = np.array([kept.get(place, value) for place, value in zip(places, noisy)], noisy.dtype)
        kept.update(zip(places, noisy))
        return super().observe(trip, shard, noisy, present)

    def decide(self, trip, state, summaries, draw):
        spec = self.hub_noise(trip)
        state, broadcast = super().decide(trip, state, summaries, PinnedDraw(draw, spec, self.replay))
        self.said.append({name: np.asarray(values).tolist() for name, values in broadcast.items()})
        return state, broadcast


class PinnedDraw(Draw):
    def __init__(self, inner, spec, replay):
        self._inner, self._stated, self._replay, self.run_key = inner, spec, replay, inner.run_key

    @property
    def spent(self):
        return self._inner.spent

    def noisy(self, exact, fp):
        replay, round_number = self._replay, self._stated.round
        noisy = self._inner.noisy(exact, fp).copy()
        for row, place in enumerate((round_number, one.tobytes()) for one in fp):
            if replay.replaying and place in replay.hub:
                before, noisy[row] = replay.hub[place]
                replay.moved.setdefault(round_number, []).append(int(exact[row]) - before)
            else:
                replay.hub[place] = int(exact[row]), noisy[row]
        return noisy


def faults(program, event, newcomer) -> set[str]:
    """What one user more changes that it must not."""
    replay, runs = Replay(), []
    for pairs in (USERS, USERS + [("newcomer", item) for item in newcomer]):
        pinned, keys = Pinned(program, replay), Keys(RunKey.insecure_fixed("hub replay"))
        blocks = list(build_blocks(batches(pairs), keys, pinned.cap, num_blocks=2, num_shards=2))
        finished = run_trips(pinned, blocks, keys)
        runs.append((pinned.said, [batch.to_pydict() for batch in output_batches(pinned, finished)]))
        replay.replaying = True
    one, two = runs
    wrong = set()
    if one[0] != two[0]:
        wrong.add("a broadcast")
    if one[1] != two[1]:
        wrong.add("the output")
    # An event without a sensitivity of its own is for sums of norm 1.
    stated = {
        noise.round: getattr(leaf, "sensitivity", 1.0) for leaf in leaves(event) for noise in leaf.noises()
    }
    for number, moves in replay.moved.items():
        if math.hypot(*moves) / UNITS > stated[number] * (1 + 1e-6):
            wrong.add("the sensitivity")
    assert replay.hub and replay.moved
    return wrong


@pytest.mark.parametrize("newcomer", NEWCOMERS)
@pytest.mark.parametrize(
    "kind, number", [(kind, n) for kind, makers in CASES.items() for n in range(len(makers))]
)
def test_one_user_more_changes_nothing_under_the_same_noisy_numbers(kind, number, newcomer):
    program, event = CASES[kind][number]()
    assert faults(program, event, NEWCOMERS[newcomer]) == set()


class Exact(Forwarding):
    """The hub asks for its noise, and goes on with the exact numbers."""

    def decide(self, trip, state, summaries, draw):
        class Thrown(PinnedDraw):
            def noisy(self, exact, fp):
                super().noisy(exact, fp)
                return exact

        return super().decide(trip, state, summaries, Thrown(draw._inner, draw._stated, draw._replay))


class Louder(Forwarding):
    """A user counts twice in what the hub gathers."""

    def decide(self, trip, state, summaries, draw):
        names = ("users", "others", "weights")
        doubled = [
            {name: 2 * part[name] if name in names else part[name] for name in part} for part in summaries
        ]
        return super().decide(trip, state, doubled, draw)


class Telling(Forwarding):
    """The exact numbers go out beside the broadcast."""

    def decide(self, trip, state, summaries, draw):
        state, said = super().decide(trip, state, summaries, draw)
        told = sum(part[name].sum() for part in summaries for name in ("users", "weights") if name in part)
        return state, {**said, "told": np.array([told])}


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize(
    "fault, shown",
    [(Exact, {"a broadcast", "the output"}), (Louder, {"the sensitivity"}), (Telling, {"a broadcast"})],
)
def test_planted_faults_show(fault, shown, kind):
    programs = [maker() for maker in CASES[kind]]
    assert any(
        faults(fault(program), event, newcomer) & shown
        for program, event in programs
        for newcomer in NEWCOMERS.values()
    )
