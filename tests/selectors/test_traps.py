"""What a program can get wrong without any other test noticing: samples, announced rounds, state, types, noise."""

from dataclasses import replace

import numpy as np
import pytest

from dpbeam.accounting.noise import NoiseSpec
from dpbeam.engine.program import Keys, add_noise
from dpbeam.kernels.shards import Shard
from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.plan import make_plan
from tests.support.instances import random_pairs
from tests.support.reference import Data
from tests.support.running import key, names, reference_trace, release, watch
from tests.support.statistics import FALSE_ALARM, correlation_p, variance_p
from tests.support.variants import VARIANTS, case_of, program


def low_thresholds(chosen):
    """The same program with thresholds that any noise passes, so that it releases all it may."""
    chosen.thresholds = (-1e6,) * chosen.trips
    return chosen


@pytest.mark.parametrize("name", ["basic", "dp-sips", "gsu4"])
def test_only_items_of_samples_are_released(name):
    """One user with 2,000 items of its own and D0 = 8: even without a threshold only its sample comes out."""
    pairs = random_pairs(1) + [("whale", f"own {i}") for i in range(2_000)]
    chosen = low_thresholds(program(name))
    released = names(release(chosen, pairs, key("traps"), num_blocks=2, num_shards=3))
    samples = Data(pairs, Keys(key("traps"))).capped(8)
    assert len(samples["whale"]) == 8
    assert released == {item for items in samples.values() for item in items}


def test_only_items_of_the_rounds_samples_are_released():
    """With fresh samples: an item that no sample of any round held stays out, though its user's pool holds it."""
    pairs = random_pairs(1) + [("whale", f"own {i}") for i in range(500)]
    chosen = low_thresholds(program("dp-sips resampled"))
    released = names(release(chosen, pairs, key("traps"), num_blocks=2))
    trace = reference_trace("dp-sips", chosen, pairs, key("traps"))
    assert released == trace.released
    assert sum(item.startswith("own") for item in released) == 8 * chosen.trips


@pytest.mark.parametrize("name", ["gsu4", "gsu4 no score"])
def test_state_of_every_item_moves_in_every_round(name):
    """Found, hopeless or forgotten: Z takes the round's noise all the same, as in the slow reference."""
    pairs, chosen = random_pairs(4, users=100), program(name)
    watched = watch(chosen, pairs, key(4), num_blocks=2, num_shards=2)
    trace = reference_trace("gsu", chosen, pairs, key(4))
    idle = 0
    for trip in range(chosen.trips):
        here = watched.rounds[trip]
        assert len(here.state["z"]) == len(trace.rounds[trip])
        for item, z in here.state["z"].items():
            assert z == pytest.approx(trace.rounds[trip][item.decode()], abs=2e-4)
            idle += here.exact[item] == 0
            if trip:
                assert z != watched.rounds[trip - 1].state["z"][item]
    assert idle >= 5


def test_state_types():
    """Integer sums of 64 bits and double precision state, at every trip of every program."""
    kinds = {
        "noisy": np.int64,
        "weight": np.int64,
        "initial": np.int64,
        "z": np.float64,
        "y": np.float64,
        "a": np.float64,
        "present": np.bool_,
        "released": np.bool_,
        "score": np.uint16,
        "seated": np.int64,
        "stayed": np.int64,
        "above_floor": np.bool_,
    }
    for name in VARIANTS:
        inner = program(name)
        seen: list[Shard] = []

        def spy(trip, shard, noisy, present, seen=seen, original=inner.observe):
            after = original(trip, shard, noisy, present)
            seen.append(after)
            return after

        inner.observe = spy
        released = release(inner, random_pairs(1), key(1))
        assert released.noisy_weight.dtype == np.float64
        assert seen
        for shard in seen:
            assert all(values.dtype == np.int64 for values in shard.sums.values())
            for column, values in shard.state.items():
                assert values.dtype == kinds[column], (name, column)


def empty_shard(count: int, seed: int) -> Shard:
    """A shard of items that nobody gives weight to."""
    rng = np.random.default_rng(seed)
    return Shard(
        id=0,
        fp=rng.integers(0, 2**64, (count, 2), np.uint64),
        block_ids=np.zeros(0, np.int64),
        slot_offsets=np.zeros(1, np.int64),
        slots=np.zeros(0, np.int32),
    )


def test_noise_of_gsu_accumulates_to_the_variance_of_each_checkpoint():
    """On 100,000 empty items Var(Z_k) = V_k sigma^2, and the rounds are uncorrelated; sigma x 0.97 fails.

    False alarm below 1e-9 for each of 10 p-values.
    """
    rounds = 4
    chosen = make_plan(SelectionConfig(1.0, 1e-5, method="gsu", rounds=rounds)).program
    shard, keys = empty_shard(100_000, rounds), Keys(key("variance"))
    steps, before = [], np.zeros(100_000)
    for trip in range(rounds):
        zeros = np.zeros(len(shard), np.int64)
        shard = add_noise(chosen, trip, replace(shard, sums={"weight": zeros}), keys)
        z = shard.state["z"]
        variance = chosen.variances[trip] * chosen.sigma**2
        assert variance_p(z, variance) > FALSE_ALARM
        assert variance_p(z, variance * 0.97**2) < FALSE_ALARM
        assert variance_p(z, variance / 0.97**2) < FALSE_ALARM
        steps.append(z - before)
        before = z
        shard = chosen.threshold(trip, shard)
        if trip < rounds - 1:
            shard, _ = chosen.reply(trip, shard)
    for first in range(rounds):
        for second in range(first):
            assert correlation_p(steps[first], steps[second]) > FALSE_ALARM


@pytest.mark.parametrize("name", [n for n in VARIANTS if n.startswith(("dp-sips", "mad2r"))])
def test_rounds_draw_independent_noise_of_their_own_scale(name):
    """False alarm below 1e-9 for each of a few p-values; a scale off by 3 % fails."""
    keys, count = Keys(key("independent")), 100_000
    fp = empty_shard(count, 3).fp
    chosen = program(name)
    drawn = []
    for trip in range(chosen.trips):
        if chosen.noise(trip) is None:
            continue
        sigma = chosen.noise(trip).deviation
        shard = replace(empty_shard(count, 3), fp=fp)
        zeros = np.zeros(count, np.int64)
        shard.sums = dict.fromkeys(chosen.sum_names(trip), zeros)
        shard.state = {"initial": zeros}
        noisy = add_noise(chosen, trip, shard, keys).state["noisy"] / 2**30
        assert variance_p(noisy, sigma**2) > FALSE_ALARM
        assert variance_p(noisy, (0.97 * sigma) ** 2) < FALSE_ALARM
        drawn.append(noisy)
    assert correlation_p(drawn[0], drawn[1]) > FALSE_ALARM
    assert correlation_p(drawn[0], drawn[1] + 0.05 * drawn[0]) < FALSE_ALARM


def test_noise_is_the_same_in_a_retry_and_for_any_subset_of_items():
    """A second execution, another order and a part of the items see the same draws; another round or key does not."""
    keys, fp = Keys(key("retry")), empty_shard(1000, 9).fp
    spec = NoiseSpec("gaussian", 2.5, round=3)
    noise = keys.noise(spec, fp)
    some = np.random.default_rng(1).permutation(1000)[:300]
    assert np.array_equal(Keys(key("retry")).noise(spec, fp[some]), noise[some])
    for other in (keys.noise(replace(spec, round=4), fp), Keys(key("other")).noise(spec, fp)):
        assert (other != noise).all()


def test_noise_and_sampling_share_no_label():
    """Every derived key of a run differs from every other."""
    keys = Keys(key("labels"))
    derived = [keys.pairs.user, keys.pairs.item, keys.pairs.sample, *(keys.sample(r) for r in range(1, 65))]
    noise = []
    original = keys._run_key.derive
    keys._run_key = type(
        "Spy", (), {"derive": lambda self, label: noise.append(original(label)) or noise[-1]}
    )()
    for number in range(1, 65):
        keys.noise(NoiseSpec("gaussian", 1.0, number), np.zeros((1, 2), np.uint64))
    assert len(set(derived) | set(noise)) == 67 + 64


@pytest.mark.parametrize("name", VARIANTS)
def test_released_weights_lie_on_the_public_grid(name):
    """Low-order bits of a noisy weight carry nothing: every one is a multiple of a power of two near sigma/1024."""
    chosen = program(name)
    sigma_of = case_of(name).grid_sigma
    sigma = sigma_of(chosen) if sigma_of else max(spec.deviation for spec in chosen.noises())
    assert 0.5 < chosen.weight_grid / (sigma / 1024) < 2
    assert np.log2(chosen.weight_grid) % 1 == 0
    steps = release(chosen, random_pairs(8, users=200), key(8)).noisy_weight / chosen.weight_grid
    assert len(steps)
    assert (steps == np.rint(steps)).all()
