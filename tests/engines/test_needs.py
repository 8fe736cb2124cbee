"""A machine without Java or Go is told what the engines need; in CI nothing may be left out."""

import os
import pathlib
import subprocess
import sys

import pytest

TESTS = pathlib.Path(__file__).parent


@pytest.mark.parametrize(
    ("test", "need", "ci"),
    [
        ("test_rounds.py::test_ctrl_c_cancels_the_job_on_the_cluster", "needs Java 17", "true"),
        ("test_rounds.py::test_same_bytes_on_every_engine[prism]", "needs Go 1.24 or later", ""),
    ],
)
def test_what_is_missing_is_named(test, need, ci, tmp_path):
    environment = {k: v for k, v in os.environ.items() if k != "JAVA_HOME" and not k.startswith("PYTEST_")}
    # Else it would remove what earlier runs of tests left, at its end: gigabytes, perhaps.
    environment["PYTEST_DEBUG_TEMPROOT"] = str(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--engines", "-rs", "-p", "no:cacheprovider", f"{TESTS}/{test}"],
        env={**environment, "CI": ci, "PATH": str(tmp_path), "DPBEAM_CACHE": str(tmp_path)},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        cwd=TESTS.parents[1],
        timeout=120,
    )
    assert done.returncode == (1 if ci else 0), done.stdout
    (line,) = [line for line in done.stdout.splitlines() if need in line and not line.startswith("FAILED")]
    assert line.startswith("needs" if ci else "SKIPPED [1] ")
    assert "Traceback" not in done.stdout
