"""The replay test (tests/selectors/test_replay.py) sees the planted faults that the audit has too."""

import pytest

from dpbeam.selectors.mad.program import Mad2rProgram
from dpbeam_lab.audit.methods.gsu import CurrentDegreeCap, MovingSample
from dpbeam_lab.audit.methods.mad import KeepAbsent
from tests.selectors.test_replay import HOLDERS, one_item_a_round, seen, seen_on_random_pairs, without_i
from tests.support.running import recast
from tests.support.variants import program


@pytest.mark.parametrize(("fault", "cap", "novel"), [(MovingSample, 20, 15), (CurrentDegreeCap, None, 5)])
def test_planted_fault_is_seen(fault, cap, novel):
    faulty = recast(program("gsu4"), fault)
    faulty.cap = cap or faulty.cap
    assert seen_on_random_pairs(faulty, novel)
    assert not seen_on_random_pairs(program("gsu4"), novel)


def test_planted_keep_of_absent_items_is_seen():
    def is_seen(fault):
        chosen = one_item_a_round(recast(program("mad2r resampled"), fault))
        return seen(chosen, without_i(), lambda seed: [("v", "i")], lambda seed: HOLDERS)

    assert is_seen(KeepAbsent)
    assert not is_seen(Mad2rProgram)
