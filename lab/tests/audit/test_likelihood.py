"""The audit's measurement of noise: never too small, and faults of the law are seen."""

import math
from dataclasses import replace

import numpy as np
import pytest

from dpbeam.accounting.geometric import CountNoise
from dpbeam.accounting.noise import L1, L2, NoiseSpec
from dpbeam.engine.program import Keys, Program, ReplyColumn, with_state
from dpbeam.kernels.csr import Csr
from dpbeam.kernels.grid import UNITS
from dpbeam.randomness import RunKey
from dpbeam_lab.audit import likelihood
from dpbeam_lab.audit.faults import OneLabelKeys, OtherKindKeys, plan_of
from dpbeam_lab.audit.likelihood import Likelihood

LEVEL = 1e-6
FEW = 50_000  # what an audit of a thousand trials looks at


class Noisy(Program):
    """A weight of 1 for every pair in every round, and nothing released: only the noise is looked at."""

    cap, weight_grid = 1, 1.0

    def __init__(self, kind: str, scales: tuple[float, ...]):
        self.states([NoiseSpec(kind, scale, number) for number, scale in enumerate(scales, start=1)])
        self.norm = {"gaussian": L2, "laplace": L1}[kind]

    def states(self, specs):
        self.specs, self.trips = specs, len(specs)
        self.reply_columns = {trip: {"nothing": ReplyColumn(np.uint8, 0)} for trip in range(self.trips - 1)}

    def sum_names(self, trip):
        return ("weight",)

    def weigh(self, trip, block, reply, keys):
        rows = Csr(block.offsets, block.links)
        return {"weight": rows.item_sums(np.full(len(rows.links), UNITS), block.num_items)}, None

    def noise(self, trip):
        return self.specs[trip]

    def observe(self, trip, shard, noisy, present):
        return shard

    def threshold(self, trip, shard):
        return with_state(shard, released=np.zeros(len(shard), bool), weight=np.zeros(len(shard), np.int64))

    def reply(self, trip, shard):
        return shard, {"nothing": np.zeros(len(shard), np.uint8)}


def keys(seed, kind=Keys) -> Keys:
    return kind(RunKey.insecure_fixed(f"likelihood {seed}"))


@pytest.mark.parametrize("rounds", [2, 8])
def test_measured_gaussian_noise_is_never_below_the_true_one(rounds):
    """The inverse covariance is dominated by the true one, also when few samples are drawn.

    Each of the five draws fails with probability 1e-6.
    """
    program = plan_of("gsu", rounds=rounds).program
    truth = np.diag(np.square(1.0 / np.array([spec.scale for spec in program.noises()])))
    for seed in range(5):
        measured = Likelihood.measure(program, keys(seed), LEVEL, samples=2_000)
        assert measured.trips == list(range(rounds))
        assert not measured.fault
        assert np.linalg.eigvalsh(truth - measured.inverse).min() > 0


def test_measured_laplace_noise_is_never_below_the_true_one():
    """Each of the ten scales fails with probability 1e-6; without widening half of them would."""
    program = Noisy("laplace", (1.0, 3.0))
    for seed in range(5):
        measured = Likelihood.measure(program, keys(seed), LEVEL, samples=2_000)
        assert not measured.fault
        assert (measured.scales > [1.0, 3.0]).all() and (measured.scales < [1.3, 3.9]).all()


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_log_ratio_is_that_of_the_densities(kind):
    """Against the densities of the law, up to the widening of the measured scales by under one percent."""
    program = Noisy(kind, (2.0, 5.0))
    measured = Likelihood.measure(program, keys("ratio"), LEVEL)
    rng = np.random.default_rng(1)
    drawn, moved = rng.normal(0, 3, (2, 50)), rng.normal(0, 1, (2, 50))
    scale = np.array([[2.0], [5.0]])
    if kind == "gaussian":
        expected = (np.square((drawn + moved) / scale) - np.square(drawn / scale)) / 2
    else:
        expected = (np.abs(drawn + moved) - np.abs(drawn)) / scale
    there = rng.normal(0, 9, (2, 50))
    ratio = measured.log_ratio(drawn + there + moved, there + moved, there)
    np.testing.assert_allclose(ratio, expected.sum(axis=0), rtol=0.03, atol=0.03)


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_noise_of_another_kind_is_a_fault(kind):
    program = Noisy(kind, (2.0, 2.0))
    assert not Likelihood.measure(program, keys(0), LEVEL, samples=FEW).fault
    fault = Likelihood.measure(program, keys(0, OtherKindKeys), LEVEL, samples=FEW).fault
    assert fault == "noise of items in round 1 is not as stated"


class NoisyCounts(Noisy):
    """Count noise in every round."""

    def __init__(self, *budgets: tuple[float, float]):
        self.states([CountNoise(*budget, number) for number, budget in enumerate(budgets, start=1)])
        self.norm = L1


class OtherCounts(Keys):
    """Planted fault: count noise of twice the stated epsilon."""

    def noise(self, spec, fp, place="noise", **below):
        return super().noise(replace(spec, epsilon=2 * spec.epsilon), fp)


def test_log_ratio_of_count_noise_is_that_of_its_masses():
    program = NoisyCounts((1.0, 1e-2))
    measured = Likelihood.measure(program, keys("counts"), LEVEL, samples=FEW)
    law = program.specs[0].law
    mass = dict(zip(range(law.threshold - 1, -100, -1), np.diff([p / 2**128 for p in law.cumulative])))
    drawn = np.arange(law.threshold - 1, law.threshold - len(law.cumulative), -1.0)
    assert len(drawn) == len(mass)
    for step in (1, -1):
        here, there = (np.full((1, len(drawn)), float(n)) for n in (max(step, 0), max(-step, 0)))
        ratio = measured.log_ratio(drawn[None] + here, here, there)
        for z, value in zip(drawn.astype(int), ratio):
            wanted = mass[z] / mass[z + step] if z + step in mass else math.inf
            assert math.exp(value) == pytest.approx(wanted, rel=1e-9)
        assert np.isinf(ratio).sum() == 1  # where only one of the two can have come from
    assert not measured.fault


def test_count_noise_of_another_budget_is_a_fault():
    program = NoisyCounts((1.0, 1e-2))
    assert not Likelihood.measure(program, keys(1), LEVEL, samples=FEW).fault
    fault = Likelihood.measure(program, keys(1, OtherCounts), LEVEL, samples=FEW).fault
    assert fault == "noise of items in round 1 is not as stated"


def test_repeated_count_noise_is_a_fault():
    program = NoisyCounts((1.0, 1e-2), (1.0, 1e-2))
    assert not Likelihood.measure(program, keys(2), LEVEL, samples=FEW).fault
    assert (
        Likelihood.measure(program, keys(2, OneLabelKeys), LEVEL, samples=FEW).fault
        == "noise of two rounds is related"
    )


def test_repeated_laplace_noise_is_a_fault():
    program = Noisy("laplace", (2.0, 2.0))
    assert (
        Likelihood.measure(program, keys(0, OneLabelKeys), LEVEL, samples=FEW).fault
        == "noise of two rounds is related"
    )


def test_repeated_gaussian_noise_makes_the_loss_large():
    program = Noisy("gaussian", (1.0, 1.0))
    apart = Likelihood.measure(program, keys(0), LEVEL)
    same = Likelihood.measure(program, keys(0, OneLabelKeys), LEVEL)
    here = np.array([[1.0], [-1.0]])
    assert apart.log_ratio(here, here, np.zeros((2, 1)))[0] == pytest.approx(1.0, rel=0.05)
    assert same.log_ratio(here, here, np.zeros((2, 1)))[0] > 1e4


def test_unknown_kinds_have_no_likelihood(monkeypatch):
    monkeypatch.setattr(likelihood, "_KINDS_BY_LAW", dict.fromkeys(likelihood._KINDS_BY_LAW, ("gaussian",)))
    with pytest.raises(ValueError, match="no likelihood is known for noise of kinds"):
        Likelihood.measure(Noisy("laplace", (1.0,)), keys(0), LEVEL, samples=100)
