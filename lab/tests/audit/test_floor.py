"""The audit of methods with a floor on users."""

import pytest

from dpbeam_lab.audit.audit import audit, markdown
from dpbeam_lab.audit.faults import plan_of


@pytest.mark.parametrize("method", ["basic", "mad2r", "gsu", "bits"])  # a floor lies under all alike
def test_the_audit_passes(method):
    floored = plan_of(method, min_users=3)
    result = audit(floored, trials=1_000)
    assert result.passed, markdown([(method, result)])
    assert {f.case for f in result.findings if f.kind == "floor"} == {f.case for f in result.findings}
