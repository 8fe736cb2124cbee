"""A machine without Java or Go is told what the engines need; in CI nothing may be left out."""

import pytest

from tests.engines import conftest


@pytest.mark.parametrize(
    ("ask", "need"),
    [(conftest.java, "needs Java 17"), (lambda: conftest._fetch("prism"), "needs Go 1.24 or later")],
    ids=["java", "go"],
)
@pytest.mark.parametrize(("ci", "end"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_what_is_missing_is_named(ask, need, ci, end, tmp_path, monkeypatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    for name, value in (("CI", ci), ("PATH", str(tmp_path)), ("DPBEAM_CACHE", str(tmp_path))):
        monkeypatch.setenv(name, value)
    with pytest.raises(end, match=f"^{need}") as stopped:
        ask()
    assert not (ci and stopped.value.pytrace)
