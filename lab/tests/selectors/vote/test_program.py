"""The test of the theorem of docs/explanation/vote.md sees planted faults."""

import pytest

from dpbeam_lab.audit.methods.vote import RefuseEverybody, RefuseTheHopeless
from tests.selectors.vote.test_program import moved, program, votes_of
from tests.support.instances import random_pairs
from tests.support.running import key, recast


@pytest.mark.parametrize("fault", [RefuseEverybody, RefuseTheHopeless])
def test_planted_fault_is_seen(fault):
    chosen, worst = recast(program(3, 6), fault), 0
    for seed in range(40):
        pairs, extra = (
            random_pairs(seed, users=40),
            [("newcomer", "item 0"), ("newcomer", f"item {seed % 9}")],
        )
        before, after = votes_of(chosen, pairs, key(seed)), votes_of(chosen, pairs + extra, key(seed))
        worst = max(worst, sum(map(abs, moved(before, after).values())))
    assert worst >= 3
