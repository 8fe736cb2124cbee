"""The audit of a selector that somebody has installed: the sound one passes, what no plan refuses is refuted."""

import pytest

from dpbeam.selection.config import SelectionConfig
from dpbeam.selection.plan import make_plan
from dpbeam_lab.audit.audit import audit
from tests.plugins.faults import ENTRIES, MATRIX, PACKAGE
from tests.support.plugins import installed, put

#: Mistakes of its events and of its program, and a D0 that shows each: where budget is split over many items, coins
#: that rise too fast may still keep the whole.
REFUTED = {
    "epsilon is not divided by D0, and the event forgets D0 as well": 4,
    "delta is not divided by D0, and the event forgets D0 as well": 4,
    "the law rises by twice epsilon, and the event does not look": 1,
    "the program counts a user too many": 4,
    "two rounds draw one noise": 4,
}
EDITS = {fault.name: fault.edits for fault in MATRIX.faults}


def audited(tmp_path, max_items, edits=()):
    put(tmp_path, PACKAGE, ENTRIES, edits)
    with installed(tmp_path, PACKAGE.name):
        return audit(
            make_plan(SelectionConfig(1.0, 0.05, "geometric", max_items_per_user=max_items)), trials=2_000
        )


def test_the_sound_one_passes_and_uses_its_budget(tmp_path):
    result = audited(tmp_path, 4)
    assert result.passed and not result.low(0.3)


@pytest.mark.parametrize(("name", "max_items"), REFUTED.items())
def test_a_fault_is_refuted(name, max_items, tmp_path):
    assert not audited(tmp_path, max_items, EDITS[name]).passed
