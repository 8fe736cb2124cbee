"""The audit of methods with a floor on users."""

import re

import pytest

from dpbeam_lab.audit.audit import audit, markdown
from dpbeam_lab.audit.faults import plan_of
from dpbeam_lab.audit.worst_cases import worst_cases


@pytest.mark.parametrize("method", ["basic", "mad2r", "gsu", "bits"])  # a floor lies under all alike
def test_the_audit_passes(method):
    """At the inputs that a floor changes: items that nobody else holds, and such as come to the floor."""
    floored = plan_of(method, min_users=3)
    cases = [case for case in worst_cases(floored) if re.match("all novel, 8|half novel|lifts", case.name)]
    assert len(cases) == 3
    result = audit(floored, trials=1_000, cases=cases)
    assert result.passed, markdown([(method, result)])
    assert {f.case for f in result.findings if f.kind == "floor"} == {f.case for f in result.findings}
