"""The replay test (see `tests.support.watch`) of every method, and planted faults that it must see."""

import functools
from fractions import Fraction

import numpy as np
import pytest

from dpbeam.engine.program import Keys, Touches
from dpbeam.kernels.grid import UNITS
from dpbeam.selectors.bits.program import BitsProgram
from dpbeam.selectors.gsu.program import GsuProgram
from dpbeam.selectors.uniform.program import UniformProgram
from tests.support.instances import random_pairs, whole_block
from tests.support.reference import unfloored
from tests.support.running import key, recast, watch
from tests.support.variants import VARIANTS, program
from tests.support.watch import ONE, own_contribution

# Exact powers of norms of integer differences in the finest units: at most 1 where the norm is.
NORMS = {
    "l2": lambda moved: Fraction(sum(value * value for value in moved), ONE * ONE),
    "l1": lambda moved: Fraction(sum(map(abs, moved)), ONE),
    "linf": lambda moved: Fraction(max(map(abs, moved), default=0), ONE),
}
SIZES = [(1, 1), (3, 1), (1, 4), (4, 7)]  # blocks, shards


def newcomer(seed: int, *, known: int, novel: int) -> list[tuple[str, str]]:
    """One more user with `known` of the popular items and `novel` items of its own."""
    rng = np.random.default_rng(seed + 10_000)
    chosen = rng.choice(12, min(known, 12), replace=False)
    items = [f"item {i}" for i in chosen] + [f"own {i}" for i in range(novel)]
    return [("newcomer", item) for item in items]


def replay(chosen, pairs, extra, run_key, sizes=(1, 1), other_sizes=None):
    """Runs S and, under S's noisy history, S' = S + {v}; None where one of v's novel items crosses a threshold.

    Returns per noisy trip: {item: exact sum of S' less exact sum of S} where not zero, and the run of S'.
    """
    blocks, shards = sizes
    before = watch(chosen, pairs, run_key, num_blocks=blocks, num_shards=shards)
    blocks, shards = other_sizes or sizes
    after = watch(chosen, pairs + extra, run_key, history=before.rounds, num_blocks=blocks, num_shards=shards)
    own = {item.encode() for _, item in extra}
    differences = {}
    for trip, there in after.rounds.items():
        here = before.rounds[trip]
        new = there.released - here.released
        assert here.released <= there.released
        assert new <= own  # nobody else's items are decided otherwise
        if new:
            return None, after
        items = here.exact.keys() | there.exact.keys()
        moved = {i: there.exact.get(i, 0) - here.exact.get(i, 0) for i in items}
        differences[trip] = {i: value for i, value in moved.items() if value}
    return differences, after


def hold_to_touches(chosen, trip, own) -> None:
    """Asserts that the newcomer touches no more items than the program states, and gives them no more."""
    items, weight = chosen.touches(trip)
    assert len(own) <= items[-1], f"trip {trip}: {len(own)} items, {items[-1]} are stated"
    most = Fraction(float(weight[np.searchsorted(items, len(own))])) if own else 0
    assert max(map(abs, own.values()), default=0) <= most * ONE, f"trip {trip}: more weight than stated"


def check(chosen, extra, run_key, differences, after) -> float:
    """Asserts what replay promises; returns the largest squared norm seen."""
    keys = Keys(run_key)
    largest, sample = 0, None
    for trip, moved in differences.items():
        norm = NORMS[chosen.norm](moved.values())
        assert norm <= 1, f"trip {trip}: {chosen.norm} norm {float(norm)}"
        largest = max(largest, norm)
        # What nobody else holds moves by the newcomer's own part alone; it keeps to what the program states.
        hold_to_touches(chosen, trip, {item: v for item, v in moved.items() if item.startswith(b"own ")})
        if any(chosen.noise(t) is None for t in range(chosen.trips)):
            continue  # others' weights may move with the newcomer's: the norm is all that is promised
        alone = whole_block(extra, keys, chosen.cap)
        sent = own_contribution(chosen, after, trip, alone, keys)
        inner, min_users = unfloored(chosen)
        if min_users == 1:
            assert moved == {item: units << 46 for item, units in sent.items()}
        for item, units in moved.items():  # above a floor, what is left of the newcomer's own
            assert 0 < units <= sent[item] << 46
        hold_to_touches(chosen, trip, moved)
        if isinstance(inner, GsuProgram):
            sample = sample or sent.keys()
            assert len(sample) <= len(inner.caps) - 1  # D0
            assert sent.keys() <= sample  # one sample for all rounds
            assert max(sent.values(), default=0) <= inner.caps[len(sample)] * UNITS
    return float(largest)


@pytest.mark.parametrize("name", VARIANTS)
def test_only_the_newcomer_shows(name):
    chosen = program(name)
    checked, largest = 0, 0.0
    for seed in range(16):  # every pair of sizes
        pairs = random_pairs(seed, users=100)
        extra = newcomer(seed, known=seed % 8, novel=(0, 1, 4, 20)[seed % 4] or 1)
        sizes, others = SIZES[seed % 4], SIZES[(seed // 4) % 4]
        differences, after = replay(chosen, pairs, extra, key(seed), sizes, others)
        if differences is not None:
            checked += 1
            largest = max(largest, check(chosen, extra, key(seed), differences, after))
    assert checked >= 10
    # The bound is used, so a factor in the wrong place would show; a floor takes off what rare items move by.
    assert largest > (0.8 if unfloored(chosen)[1] == 1 else 0.7)


@pytest.mark.parametrize("name", VARIANTS)
def test_newcomer_with_a_thousand_items_of_its_own(name):
    """A score, filter or table that looks at other items of the data moves when 1,000 items appear."""
    chosen = program(name, max_items=1000)
    pairs, extra = random_pairs(3, users=100), newcomer(3, known=8, novel=1000)
    differences, after = replay(chosen, pairs, extra, key(3), (3, 2), (2, 5))
    assert differences is not None
    check(chosen, extra, key(3), differences, after)


HOLDERS = [(f"user {u}", item) for u in range(4) for item in ("filler", "i")]


def one_item_a_round(chosen):
    """Samples of one item, and hopeless items one standard deviation below the threshold, not three."""
    chosen.max_items = 1
    chosen.upper_confidence = 1.0
    return chosen


@functools.cache
def without_i() -> list[int]:
    """Seeds of 240 under whose keys no sample of the first round has i; samples are the same for every method."""
    chosen = one_item_a_round(program("dp-sips basic resampled"))
    seen = {seed: watch(chosen, HOLDERS, key(seed)).rounds for seed in range(240)}
    return [seed for seed, rounds in seen.items() if b"i" not in rounds[min(rounds)].present]


@pytest.mark.parametrize("name", [n for n in VARIANTS if "resampled" in n])
def test_item_absent_from_every_earlier_sample_is_judged_by_its_own_noise(name):
    """Users hold {filler, i}, one item per round is sampled: v samples i where the others all sampled the filler.

    Whether i was in a sample of the first round is v's secret; its noisy weight is pure noise in both runs, so the
    others must treat i alike.
    """
    chosen = one_item_a_round(program(name))
    checked = moved = 0
    for seed in without_i():
        before = watch(chosen, HOLDERS, key(seed))
        assert b"i" not in before.rounds[min(before.rounds)].present
        extra = [("v", "i")]
        differences, after = replay(chosen, HOLDERS, extra, key(seed))
        if differences is None:
            continue
        check(chosen, extra, key(seed), differences, after)
        checked += 1
        moved += b"i" in before.rounds[max(before.rounds)].present
    assert checked >= 4
    assert moved >= 2  # in some of them the others give weight to i later: the case is not empty


class GlobalScore(GsuProgram):
    """Planted fault: the score relative to the mean of the items that are present."""

    def _scores(self, trip, shard):
        z = shard.state["z"]
        return np.rint(65535 / (1 + np.exp(z.mean() - z))).astype(np.uint16)


class RoundedUp(UniformProgram):
    """Planted fault: weights rounded up to the grid."""

    def weigh(self, trip, block, reply, keys):
        self._table = np.where(self._table > 0, self._table + 1, 0)
        return super().weigh(trip, block, reply, keys)


class FewerStated(UniformProgram):
    """Planted fault: a statement of half the items that a user gives weight to."""

    def touches(self, trip):
        return Touches.of((self.max_items // 2, 1.0))


class LighterStated(BitsProgram):
    """Planted fault: a statement of half the weight."""

    def touches(self, trip):
        items, weight = super().touches(trip)
        return Touches(items, weight / 2)


def seen(chosen, seeds, extra_of, pairs_of) -> bool:
    for seed in seeds:
        extra = extra_of(seed)
        try:
            differences, after = replay(chosen, pairs_of(seed), extra, key(seed))
            if differences is not None:
                check(chosen, extra, key(seed), differences, after)
        except AssertionError:
            return True
    return False


def seen_on_random_pairs(chosen, novel: int) -> bool:
    """Whether replay sees a fault where a newcomer brings so many items of its own."""
    return seen(
        chosen,
        range(12),
        lambda seed: newcomer(seed, known=3, novel=novel),
        lambda seed: random_pairs(seed, users=100),
    )


@pytest.mark.parametrize(
    ("fault", "name"),
    [
        (GlobalScore, "gsu2"),
        (RoundedUp, "basic"),
        (FewerStated, "basic"),
        (FewerStated, "dp-sips gaussian resampled"),
        (LighterStated, next(name for name in VARIANTS if name.startswith("bits"))),
    ],
)
def test_planted_fault_is_seen(fault, name):
    assert seen_on_random_pairs(recast(program(name), fault), novel=5)
    assert not seen_on_random_pairs(program(name), novel=5)
