"""Every program against its slow reference: noisy statistics of every round, and the released set."""

import pytest

from dpbeam.testing.replay import Watched
from tests.support.instances import random_pairs
from tests.support.running import key, names, reference_trace, release
from tests.support.variants import VARIANTS, case_of, program

SEEDS = range(2)


@pytest.mark.parametrize("name", VARIANTS)
def test_program_equals_slow_reference(name):
    method, case = VARIANTS[name]["method"], case_of(name)
    released = 0
    for seed in SEEDS:
        chosen = program(name)
        pairs = random_pairs(seed, users=100)
        expected = reference_trace(method, chosen, pairs, key(seed))
        watched = Watched(chosen)
        assert names(release(watched, pairs, key(seed), num_blocks=3, num_shards=2)) == expected.released
        assert len(watched.rounds) == len(expected.rounds)
        for trip, wanted in zip(sorted(watched.rounds), expected.rounds):
            got = watched.rounds[trip].state[case.statistic]
            scale = 1.0 if case.statistic == "z" else 2.0**-30
            assert {i.decode() for i in got} == set(wanted)  # also items that nobody sends to
            for item, value in got.items():
                assert abs(value * scale - wanted[item.decode()]) < case.tolerance, (seed, trip, item)
        released += len(expected.released)
    assert released >= 3 * len(SEEDS)  # the instances are worth comparing
