"""The replay test (`dpbeam.testing.replay`): hard cases of single methods, and planted faults that it must see."""

import functools

import numpy as np
import pytest

from dpbeam.engine.program import Keys, Touches
from dpbeam.kernels.grid import UNITS
from dpbeam.selectors.bits.program import BitsProgram
from dpbeam.selectors.gsu.program import GsuProgram
from dpbeam.selectors.uniform.program import UniformProgram
from dpbeam.testing.replay import (
    check_moves,
    key,
    newcomer,
    own_contribution,
    random_pairs,
    replay,
    unfloored,
    watch,
    whole_block,
)
from tests.support.running import recast
from tests.support.variants import VARIANTS, program


def check(chosen, extra, run_key, differences, after) -> None:
    """As `check_moves`; and of gsu, that one sample of D0 items serves all rounds, and weights keep to its caps."""
    check_moves(chosen, extra, run_key, differences, after)
    inner, _ = unfloored(chosen)
    if not isinstance(inner, GsuProgram):
        return
    alone = whole_block(extra, Keys(run_key), chosen.cap)
    sent = [own_contribution(chosen, after, trip, alone, Keys(run_key)) for trip in differences]
    for weights in sent:
        assert len(sent[0]) <= len(inner.caps) - 1  # D0
        assert weights.keys() <= sent[0].keys()
        assert max(weights.values(), default=0) <= inner.caps[len(sent[0])] * UNITS


@pytest.mark.parametrize("name", [name for name in VARIANTS if name.startswith("gsu")])
def test_one_sample_of_gsu_serves_all_rounds(name):
    chosen = program(name)
    for seed in range(8):
        extra = newcomer(seed, known=seed, novel=5)
        differences, after = replay(chosen, random_pairs(seed, users=100), extra, key(seed))
        if differences is not None:
            check(chosen, extra, key(seed), differences, after)


HOLDERS = [(f"user {u}", item) for u in range(4) for item in ("filler", "i")]


def one_item_a_round(chosen):
    """Samples of one item, and hopeless items one standard deviation below the threshold, not three."""
    chosen.max_items = 1
    chosen.upper_confidence = 1.0
    return chosen


@functools.cache
def without_i() -> list[int]:
    """Seeds of 240 under whose keys no sample of the first round has i; samples are the same for every method."""
    chosen = one_item_a_round(program("dp-sips resampled"))
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
        (FewerStated, "dp-sips resampled"),
        (LighterStated, next(name for name in VARIANTS if name.startswith("bits"))),
    ],
)
def test_planted_fault_is_seen(fault, name):
    assert seen_on_random_pairs(recast(program(name), fault), novel=5)
    assert not seen_on_random_pairs(program(name), novel=5)
