"""Every program against its slow reference: noisy statistics of every round, and the released set."""

import pytest

from tests.support.instances import random_pairs
from tests.support.running import key, names, reference_trace, release, watch
from tests.support.variants import VARIANTS, program

SEEDS = range(6)
# Fixed point loses up to one step of 2^-30 a user; the rerouting coefficients of MAD are rounded down to 2^-24,
# a relative loss of at most 2^-24 d d_max / alpha of a weight that stays below the number of users.
TOLERANCE = {"basic": 2e-7, "dp-sips": 2e-7, "gsu": 2e-4, "mad": 4e-4, "mad2r": 4e-4}


@pytest.mark.parametrize("name", VARIANTS)
def test_program_equals_slow_reference(name):
    method = VARIANTS[name]["method"]
    released = 0
    for seed in SEEDS:
        chosen = program(name)
        pairs = random_pairs(seed, users=100)
        expected = reference_trace(method, chosen, pairs, key(seed))
        found = watch(chosen, pairs, key(seed), num_blocks=3, num_shards=2)
        statistic = "z" if method == "gsu" else "noisy"
        assert len(found.rounds) == len(expected.rounds)
        for trip, wanted in zip(sorted(found.rounds), expected.rounds):
            got = found.rounds[trip].state[statistic]
            scale = 1.0 if statistic == "z" else 2.0**-30
            assert {i.decode() for i in got} == set(wanted)  # also items that nobody sends to
            for item, value in got.items():
                assert abs(value * scale - wanted[item.decode()]) < TOLERANCE[method], (seed, trip, item)
        assert names(release(chosen, pairs, key(seed))) == expected.released
        released += len(expected.released)
    assert released >= 3 * len(SEEDS)  # the instances are worth comparing


@pytest.mark.parametrize("name", [name for name in VARIANTS if VARIANTS[name]["method"].startswith("mad")])
def test_reference_instances_reroute_and_bias(name):
    """The comparison above would say little if no item ever passed the adaptive threshold."""
    heavy, biased = 0, 0
    for seed in SEEDS:
        replies = watch(program(name), random_pairs(seed, users=100), key(seed)).replies
        heavy += sum(value > 0 for value in replies[0]["ratio"].values())
        if name != "mad":
            heavy += 1000 * sum(value > 0 for value in replies[2]["ratio"].values())
            biased += sum(0 < value < 1 << 15 for value in replies[1]["bias"].values())
    assert heavy >= (6 if name == "mad" else 6006)
    assert biased >= 6 or name == "mad"
