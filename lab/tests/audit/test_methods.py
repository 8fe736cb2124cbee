"""Every method has its planted faults and hard inputs in the lab."""

import pytest

from dpbeam.selectors.registry import selectors
from dpbeam_lab.audit.faults import faults, plan_of
from dpbeam_lab.audit.methods import STUDIES, study
from dpbeam_lab.audit.neighbours import Neighbours


def test_every_selector_of_the_registry_is_studied():
    """A new selector fails here until it has a line, and a selector that is gone until its line is."""
    assert list(STUDIES) == list(selectors())


@pytest.mark.parametrize("method", selectors())
def test_its_faults_are_planted_under_its_name(method):
    planted = study(method).faults
    assert planted and all(fault.name.startswith(method) for fault in planted)
    assert {fault.name for fault in planted} <= set(faults())


@pytest.mark.parametrize("method", selectors())
def test_its_hard_inputs_are_inputs(method):
    for case in study(method).hard_cases(plan_of(method)):
        assert isinstance(case, Neighbours) and case.newcomer


def test_a_method_from_outside_has_none_of_its_own():
    assert not study("somebody's").faults
