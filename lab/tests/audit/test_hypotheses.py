"""Each planted fault of gsu breaks one hypothesis of proofs/Gsu.v and keeps the others (docs/explanation/proof.md)."""

import math
from dataclasses import dataclass

import numpy as np
import pytest

from dpbeam.engine.program import Keys, with_state
from dpbeam.kernels.grid import NORM_UNITS, UNITS
from dpbeam.kernels.shards import Shard
from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.plan import make_plan
from dpbeam.selectors.floor import Floored
from dpbeam.selectors.gsu.kernels import RELEASED, SCORE_ONE
from dpbeam.selectors.gsu.program import GsuProgram
from dpbeam_lab.audit.faults import OneLabelKeys
from dpbeam_lab.audit.methods.gsu import CurrentDegreeCap, MovingSample
from tests.selectors.test_replay import GlobalScore
from tests.support.instances import whole_block
from tests.support.running import key, recast
from tests.support.statistics import FALSE_ALARM, correlation_p

D0, MIN_USERS = 16, 3
OWN = [f"own {i}" for i in range(60)]
OTHERS = [f"other {i}" for i in range(8)]


class Overfull(GsuProgram):
    """Every item gets the cap, whatever the norm."""

    def weigh(self, trip, block, reply, keys):
        sums, left = super().weigh(trip, block, reply, keys)
        return {"weight": np.where(sums["weight"] > 0, math.floor(self.caps[-1] * UNITS), 0)}, left


class OneOff(GsuProgram):
    """Weights go to the items that follow in the block."""

    def weigh(self, trip, block, reply, keys):
        sums, left = super().weigh(trip, block, reply, keys)
        return {"weight": np.roll(sums["weight"], 1)}, left


class SinglePrecision(GsuProgram):
    """The statistic is compared with its threshold in 32 bits."""

    def threshold(self, trip, shard):
        return super().threshold(trip, with_state(shard, z=shard.state["z"].astype(np.float32)))

    def _integer_threshold(self, trip):
        return np.float32(super()._integer_threshold(trip))


class LowFloor(Floored):
    """A floor of one user less."""

    def floor_units(self, trip):
        return super().floor_units(trip) // 2


@dataclass(frozen=True)
class Subject:
    """What a fault may change: the program, what draws its noise, its floor."""

    kind: type = GsuProgram
    keys: type = Keys
    floor: type = Floored
    pool: int = 1  # times D0: what a block keeps of a user

    @property
    def program(self):
        config = SelectionConfig(1.0, 1e-5, "gsu", rounds=4, max_items_per_user=D0, gsu_cap=0.3)
        program = recast(make_plan(config).program, self.kind)
        program.cap *= self.pool
        return program


def gives(program, trip, scores):
    """Item -> units that a user of OWN gives, beside one of OTHERS whose items are all released."""
    keys = Keys(key("hypotheses"))
    block = whole_block([("v", item) for item in OWN] + [("w", item) for item in OTHERS], keys, program.cap)
    names = [item.decode() for item in block.items.to_pylist()]
    reply = {"score": np.array([scores.get(name, RELEASED) for name in names], np.uint16)}
    sums, _ = program.weigh(trip, block, reply, keys)
    return {name: int(units) for name, units in zip(names, sums["weight"]) if units}


def weights(subject):
    """Which hypotheses on weights do not hold."""
    program, broken, samples = subject.program, set(), []
    rng = np.random.default_rng(5)
    for trip in range(1, program.trips):
        whole = gives(program, trip, dict.fromkeys(OWN, SCORE_ONE))
        samples.append(sample := {item for item in whole if item in OWN})
        some = {item: int(rng.integers(1, SCORE_ONE)) for item in OWN}
        one = {min(sample): SCORE_ONE}
        for sent in (whole, gives(program, trip, some), gives(program, trip, one)):
            if not set(sent) <= set(OWN):
                broken.add("wt_out")
            if sum(units**2 for units in sent.values()) > NORM_UNITS:
                broken.add("wt_norm")
            if max(sent.values(), default=0) > program.caps[min(len(sample), D0)] * UNITS:
                broken.add("wt_cap")
    if any(sample != samples[0] for sample in samples) or len(samples[0]) > D0:
        broken.add("sample")
    return broken


def items(count):
    return Shard(0, np.zeros((count, 2), np.uint64), *[np.zeros(0, np.int64)] * 3)


def score_of_the_first(program, trip, others):
    """Of an item in the middle, beside others with such a statistic."""
    z = np.array([program.thresholds[-1] / 2, *others])
    return program._scores(trip, with_state(items(len(z)), z=z, y=z, a=np.full(len(z), 0.5)))[0]


def crosses_early(program, trip):
    """Whether an item is released whose statistic is four units of 2^-30 below the threshold."""
    if math.isinf(program.thresholds[trip]):
        return False
    z = np.array([program.thresholds[trip] - 4 / UNITS])
    return bool(program.threshold(trip, with_state(items(1), z=z)).state["released"][0])


def noise_follows(subject):
    """Whether the noise of the second round is that of the first."""
    keys, fp = (
        subject.keys(key("rounds")),
        np.random.default_rng(3).integers(0, 1 << 63, (4000, 2)).astype(np.uint64),
    )
    first, second = (keys.noise(subject.program.noise(trip), fp).astype(float) for trip in (0, 1))
    return correlation_p(first, second) < FALSE_ALARM


def is_left(subject):
    """Whether an item of MIN_USERS - 1 users keeps anything under the floor."""
    floored = subject.floor(subject.program, MIN_USERS)
    shard = items(1)
    shard.sums = {"weight": np.array([(MIN_USERS - 1) * math.floor(floored.inner.caps[1] * UNITS)])}
    return bool(floored.exact(0, shard).units[0])


def broken(subject):
    program = subject.program
    trips = range(program.trips)
    wrong = weights(subject)
    if any(
        score_of_the_first(program, t, [0.0]) != score_of_the_first(program, t, [9.0, 9.0])
        for t in trips[:-1]
    ):
        wrong.add("score")
    if any(crosses_early(program, trip) for trip in trips):
        wrong.add("cross_slack")
    if noise_follows(subject):
        wrong.add("prod_mu")
    if is_left(subject):
        wrong.add("T")
    return wrong


FAULTS = {
    "score": Subject(GlobalScore),
    "sample": Subject(MovingSample, pool=3),
    "wt_cap": Subject(CurrentDegreeCap),
    "wt_norm": Subject(Overfull),
    "wt_out": Subject(OneOff),
    "cross_slack": Subject(SinglePrecision),
    "prod_mu": Subject(keys=OneLabelKeys),
    "T": Subject(floor=LowFloor),
}


def test_gsu_keeps_all_hypotheses():
    assert broken(Subject()) == set()


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_breaks_its_hypothesis_alone(name):
    assert broken(FAULTS[name]) == {name}
